#include "apps/compare/compare_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "apps/cli/failures.h"
#include "apps/run/run_json.h"
#include "apps/train/recipe.h"
#include "apps/train/train_check.h"
#include "tersewire/policy.h"
#include "trainer/chooser/codec_chooser.h"
#include "trainer/loop/later_codec.h"
#include "trainer/settings/schedule.h"

namespace tersewire::apps {
namespace {

constexpr std::size_t kMostNameChars = 40;

// A design's name as part of a file's.
std::string file_name(std::string text) {
  std::ranges::replace_if(
      text, [](unsigned char c) { return std::isalnum(c) == 0 && c != '.' && c != '='; }, '-');
  return text.substr(0, kMostNameChars);
}

// The settings of all designs and of this one, which overrides them.
Settings settings_for(const Design& design, const Settings& shared) {
  Settings settings = design.settings;
  settings.insert(shared.begin(), shared.end());
  return settings;
}

std::vector<std::string> arguments_of(const std::string& recipe, const Settings& settings) {
  std::vector<std::string> arguments = train_arguments(settings);
  if (!recipe.empty()) arguments.insert(arguments.begin(), "--recipe=" + recipe);
  return arguments;
}

// Of one cell, whose number of steps replaces the recipe's.
Settings with_steps(Settings settings, std::uint64_t steps, std::uint64_t seed) {
  settings.erase("epochs");
  settings["steps"] = std::to_string(steps);
  settings["seed"] = std::to_string(seed);
  return settings;
}

// Lengths in steps are those of `whole`, the run of all steps: any other keeps their parts.
void scale_lengths(Settings& settings, const trainer::TrainConfig& whole, std::uint64_t steps) {
  if (steps == whole.steps) return;
  if (whole.warm_up_steps > 0) {
    // Rounded down, as a model's own.
    const double warm_up = static_cast<double>(whole.warm_up_steps) * static_cast<double>(steps) /
                           static_cast<double>(whole.steps);
    settings["warm-up"] = std::to_string(static_cast<std::uint64_t>(warm_up));
  }
  const std::string schedule = trainer::scaled_schedule(whole.schedule, whole.steps, steps);
  if (schedule != whole.schedule) settings["schedule"] = schedule;
  if (!whole.later_codec.empty()) {
    settings["later-codec"] = trainer::scaled_later_codec(whole.later_codec, whole.steps);
  }
}

class Planner {
 public:
  explicit Planner(const CompareOptions& options)
      : shared_(shared_settings_argument(options.settings)) {
    if (!options.recipe.empty()) find_recipe(options.recipe);  // no design's fault
    plan_.recipe = options.recipe;
    plan_.designs = designs_argument(options.designs);
    plan_.rates = rates_argument(options.rates);
    const auto fp32 = std::ranges::find(plan_.designs, "fp32", &Design::name);
    if (fp32 != plan_.designs.end()) {
      plan_.baseline = static_cast<std::size_t>(fp32 - plan_.designs.begin());
    }
    const Design& baseline = plan_.designs[plan_.baseline];
    const trainer::TrainConfig config = checked(baseline, settings_for(baseline, shared_));
    plan_.full_steps = config.steps;
    plan_.steps = steps_argument(options.steps, config.steps);
    for (std::uint64_t i = 0; i < options.repeat; ++i) plan_.seeds.push_back(config.job.seed + i);
  }

  ComparePlan plan() {
    for (std::size_t i = 0; i < plan_.designs.size(); ++i) {
      const Design& design = plan_.designs[i];
      const std::uint64_t seed = plan_.seeds.front();
      wholes_.push_back(
          checked(design, with_steps(settings_for(design, shared_), plan_.full_steps, seed)));
      for (const StepCount& count : plan_.steps) {
        const trainer::TrainConfig config = checked(design, cell_settings(i, count.steps, seed));
        if (count.steps == plan_.steps.back().steps) plan_.configs.push_back(config);
      }
    }
    refuse_same_jobs();
    for (const std::uint64_t seed : plan_.seeds) {
      for (const StepCount& count : plan_.steps) {
        for (std::size_t i = 0; i < plan_.designs.size(); ++i) add_cell(i, count.steps, seed);
      }
    }
    return std::move(plan_);
  }

 private:
  [[nodiscard]] Settings cell_settings(std::size_t index, std::uint64_t steps,
                                       std::uint64_t seed) const {
    Settings settings = with_steps(settings_for(plan_.designs[index], shared_), steps, seed);
    scale_lengths(settings, wholes_[index], steps);
    return settings;
  }

  trainer::TrainConfig checked(const Design& design, const Settings& settings) {
    try {
      return check_.config_of(arguments_of(plan_.recipe, settings));
    } catch (const WrongUsage& error) {
      throw WrongUsage(fmt::format("design '{}': {}", design.name, error.what()));
    }
  }

  // '3lc' and '3lc:s=1.250' are.
  void refuse_same_jobs() const {
    std::vector<nlohmann::json> jobs;
    for (const trainer::TrainConfig& config : plan_.configs) {
      nlohmann::json job = config_json(config);
      for (const char* codec : {"push_codec", "pull_codec"}) {
        const auto text = job[codec].get<std::string>();
        if (!trainer::is_auto_pull(text)) job[codec] = whole_text(text, config.job.local_updates);
      }
      const auto same = std::ranges::find(jobs, job);
      if (same != jobs.end()) {
        throw WrongUsage(
            fmt::format("designs '{}' and '{}' are the same job; keep one",
                        plan_.designs[static_cast<std::size_t>(same - jobs.begin())].name,
                        plan_.designs[jobs.size()].name));
      }
      jobs.push_back(std::move(job));
    }
  }

  void add_cell(std::size_t index, std::uint64_t steps, std::uint64_t seed) {
    const Design& design = plan_.designs[index];
    const Settings settings = cell_settings(index, steps, seed);
    Cell cell{.design = index,
              .steps = steps,
              .seed = seed,
              .name = fmt::format("{:02}-{}-{}-steps-seed-{}", index + 1, file_name(design.name),
                                  steps, seed),
              .arguments = arguments_of(plan_.recipe, settings)};
    cell.arguments.insert(cell.arguments.begin(), "train");
    plan_.cells.push_back(std::move(cell));
  }

  Settings shared_;
  TrainCheck check_;
  ComparePlan plan_;
  std::vector<trainer::TrainConfig> wholes_;  // of the designs, with all steps
};

}  // namespace

std::string whole_text(const std::string& codec, int local_updates) {
  const std::vector<TensorInfo> any{{.name = "any", .shape = {1}, .kind = TensorKind::kDense}};
  return choose_codecs("", codec, any, local_updates).front()->text();
}

ComparePlan make_compare_plan(const CompareOptions& options) { return Planner(options).plan(); }

nlohmann::json compare_plan_json(const ComparePlan& plan) {
  nlohmann::json designs = nlohmann::json::array();
  for (std::size_t i = 0; i < plan.designs.size(); ++i) {
    designs.push_back({{"name", plan.designs[i].name}, {"config", config_json(plan.configs[i])}});
  }
  nlohmann::json steps = nlohmann::json::array();
  for (const StepCount& count : plan.steps) steps.push_back(count.steps);
  return {{"version", 1},
          {"recipe", plan.recipe},
          {"designs", designs},
          {"steps", steps},
          {"seeds", plan.seeds}};
}

}  // namespace tersewire::apps
