// What a checkpoint holds, node by node, and whether a run can go on from it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <optional>
#include <vector>

#include "apps/inspect/inspection.h"
#include "apps/run/checkpoint_directory.h"
#include "tersewire/error.h"

namespace tersewire::apps {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxNamed = 8;

// Of each group of arrays: how many values, the norm of those that are finite, and how many are
// not.
Json groups_json(const trainer::StoredNode& node) {
  struct Group {
    std::uint64_t values = 0;
    double squares = 0;
    std::uint64_t not_finite = 0;
  };
  std::map<std::string, Group> groups;
  std::vector<float> values;
  for (const auto& [name, array] : node.arrays) {
    Group& group = groups[name.substr(0, name.find('/'))];
    group.values += array.elems;
    values.resize(array.elems);
    array.read(0, values);
    for (const double value : values) {
      if (std::isfinite(value)) {
        group.squares += value * value;
      } else {
        ++group.not_finite;
      }
    }
  }
  Json json = Json::object();
  for (const auto& [name, group] : groups) {
    json[name] = {{"values", group.values},
                  {"norm", std::sqrt(group.squares)},
                  {"not_finite", group.not_finite}};
  }
  return json;
}

// A checkpoint as its files are read, one after the other.
class Reading {
 public:
  void add(int rank, const fs::path& path) {
    if (first_ && rank >= first_->job.nodes) {
      left_.push_back(path.filename().string());
      return;
    }
    Json node{{"rank", rank}, {"whole", false}};
    try {
      const CheckpointFile file = check_checkpoint_file(path);
      if (!first_) first_ = {.job = file.job, .made_by = file.made_by, .step = file.node.step};
      check_is_of(file, path, rank, first_->step, first_->job);
      node["whole"] = true;
      node["bytes"] = file.bytes;
      node["groups"] = groups_json(file.node);
      ++whole_;
    } catch (const Error& error) {
      node["why_not"] = error.what();
      if (why_not_.is_null()) why_not_ = error.what();
    }
    nodes_.push_back(std::move(node));
  }

  [[nodiscard]] Json json(const std::map<int, fs::path>& files) {
    if (!first_) throw Error(ErrorCode::kDataLoss, why_not_.get<std::string>());
    const CheckpointJob& job = first_->job;
    add_missing(files);
    return {{"kind", "checkpoint"},
            {"step", first_->step},
            {"whole", why_not_.is_null()},
            {"why_not", why_not_},
            {"made_by", first_->made_by},
            {"workers", job.workers},
            {"servers", job.nodes - job.workers},
            {"settings", Json(job.settings)},
            {"nodes", nodes_},
            {"left_over", left_}};
  }

 private:
  struct First {
    CheckpointJob job;
    std::string made_by;
    std::uint64_t step = 0;
  };

  // The files claim how many there are: only the first few that are missing are looked for.
  void add_missing(const std::map<int, fs::path>& files) {
    const int nodes = first_->job.nodes;
    std::vector<int> missing;
    for (int rank = 0; rank < nodes && missing.size() < kMaxNamed; ++rank) {
      if (!files.contains(rank)) missing.push_back(rank);
    }
    if (missing.empty() || !why_not_.is_null()) return;
    const std::size_t more = static_cast<std::size_t>(nodes) - whole_ - missing.size();
    why_not_ =
        fmt::format("of {} nodes there is no file of node {}{}", nodes, fmt::join(missing, ", "),
                    more > 0 ? fmt::format(" and {} more", more) : "");
  }

  std::optional<First> first_;
  Json nodes_ = Json::array();
  Json left_ = Json::array();  // files of ranks that the job does not have
  Json why_not_;               // of the first that is not whole
  std::size_t whole_ = 0;
};

std::string node_text(const Json& node) {
  if (!node["whole"].get<bool>()) {
    return fmt::format("node {:<3} not whole: {}\n", plain(node, "rank"), plain(node, "why_not"));
  }
  std::string text;
  for (const auto& [name, group] : node["groups"].items()) {
    text += fmt::format("node {:<3} {:>14} {:>12} {:>12} {:>10}\n", plain(node, "rank"),
                        plain(Json(name)), plain(group, "values"), plain(group, "norm"),
                        plain(group, "not_finite"));
  }
  return text;
}

std::string checkpoint_text(Json json) {
  const Json nodes = std::move(json["nodes"]);
  const Json settings = std::move(json["settings"]);
  const Json left_over = std::move(json["left_over"]);
  json.erase("left_over");
  json.erase("nodes");
  json.erase("settings");
  if (json["why_not"].is_null()) json.erase("why_not");
  std::string text = lines_of(json, "") + "settings\n" + lines_of(settings, "  ");
  text += fmt::format("\n{:>23} {:>12} {:>12} {:>10}\n", "", "values", "norm", "not finite");
  for (const Json& node : nodes) text += node_text(node);
  for (const Json& name : left_over) {
    text += fmt::format("{} is left from a job of more nodes, and is not read\n", plain(name));
  }
  return text + "\npushed and pulled are residuals.\n";
}

}  // namespace

bool looks_like_checkpoint(const fs::path& directory) {
  return !checkpoint_files(directory).empty();
}

Inspection inspect_checkpoint(const fs::path& directory) {
  const std::map<int, fs::path> files = checkpoint_files(directory);
  Reading reading;
  for (const auto& [rank, path] : files) reading.add(rank, path);
  Json json = reading.json(files);
  std::string text = checkpoint_text(json);
  return {std::move(json), std::move(text)};
}

}  // namespace tersewire::apps
