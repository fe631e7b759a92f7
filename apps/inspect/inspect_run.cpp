// What a run came to, from the files that it left, however it ended.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>
#include <vector>

#include "apps/cli/failures.h"
#include "apps/files/read_file.h"
#include "apps/inspect/inspection.h"
#include "apps/run/checkpoint_directory.h"
#include "apps/run/directory_lock.h"
#include "apps/run/numbers/object_lines.h"
#include "apps/run/run_files.h"
#include "tersewire/error.h"
#include "trainer/settings/train_config.h"

namespace tersewire::apps {
namespace {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

Json object_if_there(const fs::path& path) {
  return is_file(path) ? read_json_object(path) : Json();
}

struct Lines {
  Json first;
  Json last;
  std::uint64_t first_step = 0;
  std::uint64_t last_step = 0;
  std::uint64_t count = 0;
  std::uint64_t unreadable = 0;
};

Lines lines_in(const fs::path& path) {
  Lines lines;
  if (!is_file(path)) return lines;
  ObjectLines objects(path);
  while (const auto line = objects.next()) {
    if (lines.count++ == 0) {
      lines.first = *line;
      lines.first_step = objects.step();
    }
    lines.last = *line;
  }
  lines.last_step = objects.step();
  lines.unreadable = objects.damaged();
  return lines;
}

// A summary that an earlier part of a resumed run left says nothing of what came after it.
bool is_of_the_end(const Json& summary, const Lines& metrics) {
  const auto steps = summary.is_object() ? summary.find("steps") : summary.end();
  return steps != summary.end() && steps->is_number_unsigned() &&
         steps->get<std::uint64_t>() >= metrics.last_step;
}

std::string state_of(const fs::path& run, const Json& summary) {
  if (is_locked(run)) return "running";
  if (summary.is_null()) return "cut off";
  return summary.value("interrupted", Json(false)) == true ? "interrupted" : "finished";
}

Json checkpoints_json(const fs::path& run) {
  const CheckpointDirectory directory(run);
  Json checkpoints = Json::array();
  for (const std::uint64_t step : directory.steps()) {
    Json checkpoint{{"step", step}, {"whole", false}, {"why_not", "it holds no node's file"}};
    try {
      const fs::path path = directory.directory_of(step);
      if (looks_like_checkpoint(path)) {
        const Json json = inspect_checkpoint(path).json;
        checkpoint["whole"] = json["whole"];
        checkpoint["why_not"] = json["why_not"];
        if (json["step"] != step) {
          checkpoint["whole"] = false;
          checkpoint["why_not"] = kOfAnother;
        }
      }
    } catch (const Error& error) {
      checkpoint["why_not"] = error.what();
    }
    checkpoints.push_back(std::move(checkpoint));
  }
  return checkpoints;
}

Json observations_json(const Lines& lines) {
  if (lines.count == 0) return {};
  const auto of = [](const Json& line, const char* key) { return line.value(key, Json()); };
  const Json tensors = of(lines.last, "tensors");
  return {{"count", lines.count},
          {"first_step", lines.first_step},
          {"last_step", lines.last_step},
          {"first_test_accuracy", of(lines.first, "test_accuracy")},
          {"last_test_accuracy", of(lines.last, "test_accuracy")},
          {"tensors", tensors.is_array() ? tensors.size() : 0},
          {"unreadable_lines", lines.unreadable}};
}

Json model_json(const fs::path& path) {
  if (!is_file(path)) return {};
  try {
    const Bytes bytes = read_file(path.string());
    Json json = inspect_tensor_file(bytes).json;
    return {{"whole", true}, {"values", json["values"]}, {"tensors", json["tensors"].size()}};
  } catch (const Error& error) {
    return {{"whole", false}, {"why_not", error.what()}};
  }
}

Json run_json(const fs::path& run) {
  const Lines metrics = lines_in(run / kMetricsFile);
  Json config = object_if_there(run / kConfigFile);
  Json summary = object_if_there(run / kSummaryFile);
  if (!is_of_the_end(summary, metrics)) summary = Json();
  return {{"kind", "run"},
          {"state", state_of(run, summary)},
          {"last_step", metrics.last_step},
          {"steps", config.is_object() ? config.value("steps", Json()) : Json()},
          {"config", config},
          {"metrics",
           {{"lines", metrics.count},
            {"unreadable_lines", metrics.unreadable},
            {"last", metrics.last}}},
          {"summary", summary},
          {"checkpoints", checkpoints_json(run)},
          {"observations", observations_json(lines_in(run / kObservationsFile))},
          {"model", model_json(run / kModelFile)}};
}

std::string line(const char* key, const std::string& text) {
  return fmt::format("{:<18} {}\n", key, text);
}

std::string state_text(const Json& json) {
  std::string text = fmt::format("{}, step {} of {}", plain(json, "state"),
                                 plain(json, "last_step"), plain(json, "steps"));
  const Json& unreadable = json["metrics"]["unreadable_lines"];
  if (unreadable != 0) {
    text += fmt::format("; {} lines of {} cannot be read", plain(unreadable), kMetricsFile);
  }
  return text;
}

bool is_off(const Json& value) {
  return value.is_null() || value == false || value == 0 || value == "" || value == "none";
}

// The settings of a role that are not off.
std::string settings_text(const Json& config, trainer::SettingRole role) {
  std::vector<std::string> settings;
  const trainer::TrainConfig any;
  trainer::visit_settings(any, [&](const trainer::Setting& setting, const auto& /*member*/) {
    const std::string key = trainer::json_key_of(setting);
    if (setting.role != role || !config.contains(key) || is_off(config[key])) return;
    settings.push_back(fmt::format("{} {}", key, plain(config, key.c_str())));
  });
  return fmt::format("{}", fmt::join(settings, ", "));
}

std::string config_text(const Json& config) {
  using enum trainer::SettingRole;
  if (!config.is_object()) return line("job", fmt::format("unknown: there is no {}", kConfigFile));
  std::string text;
  if (config.contains("recipe")) text += line("recipe", plain(config, "recipe"));
  for (const auto& [name, role] :
       {std::pair{"task", kTask}, {"design", kDesign}, {"run", kNeither}}) {
    text += line(name, settings_text(config, role));
  }
  return text;
}

// What the summary says, or, where there is none, the last step.
std::string outcome_text(const Json& json) {
  const Json& summary = json["summary"];
  const Json& last = json["metrics"]["last"];
  const bool ended = summary.is_object();
  if (!ended && !last.is_object()) return "";
  const Json& from = ended ? summary : last;
  const auto of = [&](const char* key) { return plain(from, key); };
  std::string text =
      ended ? line("outcome", fmt::format("test accuracy {}, test loss {}, final loss {}",
                                          of("test_accuracy"), of("test_loss"), of("final_loss")))
            : line("last step", fmt::format("loss {}, accuracy of the batch {}, {} seconds",
                                            of("loss"), of("accuracy"), of("seconds")));
  if (ended && summary.contains("diverged_step") && summary["diverged_step"].is_number()) {
    text += line("diverged", fmt::format("at step {}", of("diverged_step")));
  }
  text +=
      line("traffic", fmt::format("pushed {} and pulled {} bits per value, {} tensors not finite",
                                  of("push_bits_per_value"), of("pull_bits_per_value"),
                                  of("not_finite_tensors")));
  if (ended) {
    text += line("a step", fmt::format("{} seconds: {} computing, {} in codecs, {} waiting",
                                       of("step_seconds"), of("compute_seconds"),
                                       of("codec_seconds"), of("wait_seconds")));
  }
  return text;
}

std::string parts_text(const Json& json) {
  std::string text;
  for (const Json& checkpoint : json["checkpoints"]) {
    text += line("checkpoint", fmt::format("step {}: {}", plain(checkpoint, "step"),
                                           checkpoint["whole"] == true
                                               ? "whole"
                                               : "not whole: " + plain(checkpoint, "why_not")));
  }
  const Json& seen = json["observations"];
  if (seen.is_object()) {
    text +=
        line("observations",
             fmt::format("{}, of steps {} to {} and {} tensors; test accuracy {} to {}",
                         plain(seen, "count"), plain(seen, "first_step"), plain(seen, "last_step"),
                         plain(seen, "tensors"), plain(seen, "first_test_accuracy"),
                         plain(seen, "last_test_accuracy")));
  }
  const Json& model = json["model"];
  if (model.is_object()) {
    text += line("model", model["whole"] == true
                              ? fmt::format("{} values in {} tensors", plain(model, "values"),
                                            plain(model, "tensors"))
                              : plain(model, "why_not"));
  }
  return text;
}

std::string run_text(const Json& json) {
  return line("kind", "run") + line("state", state_text(json)) + config_text(json["config"]) +
         outcome_text(json) + parts_text(json);
}

}  // namespace

Inspection inspect_run(const fs::path& directory) {
  Json json = run_json(directory);
  std::string text = run_text(json);
  return {std::move(json), std::move(text)};
}

}  // namespace tersewire::apps
