#include "apps/report/report_designs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

#include "apps/cli/job_options.h"
#include "apps/report/design_settings.h"
#include "apps/report/found_runs.h"
#include "apps/run/numbers/traffic_ratios.h"

namespace tersewire::apps {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostSentences = 5;

class Grouping {
 public:
  explicit Grouping(FoundRuns found) : found_(std::move(found)) {
    designs_.notes = std::move(found_.notes);
  }

  Designs designs() &&;

 private:
  void group();
  void name_designs();
  [[nodiscard]] bool is_taken(const std::string& name) const;
  [[nodiscard]] std::string free_name(const std::string& name) const;
  [[nodiscard]] std::string name_with_directory(const Origin& origin) const;
  void choose_times();
  void read_courses();
  void choose_baseline();
  void check_job();
  void tell_diverged();
  void tell_unfinished();

  FoundRuns found_;
  DesignConfig usual_;
  Designs designs_;
};

void Grouping::group() {
  std::vector<DesignConfig> configs;  // of the designs
  std::vector<Origin> origins;
  for (FoundRun& found : found_.runs) {
    const DesignConfig config = design_config(found.run);
    std::size_t i = 0;
    for (; i < configs.size(); ++i) {
      if (origins[i].name != found.origin.name) continue;
      // What one comparison gave a name is one design whatever its runs say.
      const bool is_named_alike = !found.origin.name.empty() && origins[i] == found.origin;
      if (is_named_alike || configs[i] == config) break;
    }
    if (i == configs.size()) {
      configs.push_back(config);
      origins.push_back(found.origin);
      std::string name = found.origin.name;
      if (!name.empty() && is_taken(name)) name = name_with_directory(found.origin);
      designs_.list.emplace_back().name = name;
    }
    designs_.list[i].measured.merge(found_.lab[found.origin]);
    designs_.list[i].runs.push_back(std::move(found.run));
  }
  usual_ = usual_config(configs);
  name_designs();
}

bool Grouping::is_taken(const std::string& name) const {
  return std::ranges::count(designs_.list, name, &DesignRuns::name) > 0;
}

std::string Grouping::free_name(const std::string& name) const {
  std::string free = name;
  for (int number = 2; is_taken(free); ++number) free = fmt::format("{} ({})", name, number);
  return free;
}

std::string Grouping::name_with_directory(const Origin& origin) const {
  std::error_code error;
  const fs::path comparison = fs::weakly_canonical(origin.comparison / ".", error);
  return free_name(fmt::format("{} ({})", origin.name, comparison.filename().string()));
}

void Grouping::name_designs() {
  for (DesignRuns& design : designs_.list) {
    if (!design.name.empty()) continue;
    std::string name = design_name(design.runs.front(), usual_, false);
    if (is_taken(name)) name = design_name(design.runs.front(), usual_, true);
    design.name = free_name(name);
  }
}

// Times of two kinds do not compare.
void Grouping::choose_times() {
  for (LinkRate& rate : designs_.rates) {
    rate.measured = std::ranges::all_of(designs_.list, [&](const DesignRuns& design) {
      return design.measured.contains(rate.bits_per_second) ||
             std::ranges::none_of(design.runs, &RunRecord::finished);
    });
  }
}

// NaNs have no order.
double or_zero(double number) { return std::isfinite(number) ? number : 0; }

void Grouping::read_courses() {
  for (DesignRuns& design : designs_.list) {
    const auto longest = std::ranges::max_element(design.runs, {}, [](const RunRecord& run) {
      return std::tuple(run.finished(), or_zero(run.config_number("steps")),
                        -or_zero(run.config_number("seed")));
    });
    design.shown = static_cast<std::size_t>(longest - design.runs.begin());
    design.steps = longest->steps(designs_.notes);
    design.observed = longest->observed(kFollowedTensors, designs_.notes);
  }
}

void Grouping::choose_baseline() {
  for (std::size_t i = 0; i < designs_.list.size() && !designs_.baseline; ++i) {
    if (designs_.list[i].name == found_.baseline) designs_.baseline = i;
  }
  // Otherwise the most usual one of fp32.
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (std::size_t i = 0; i < designs_.list.size() && found_.baseline.empty(); ++i) {
    const RunRecord& run = designs_.list[i].shown_run();
    if (codecs_text(run) != "fp32" || run.config_number("local_steps") > 1 ||
        run.config_number("local_updates") > 0) {
      continue;
    }
    const std::size_t unusual = unusual_keys(run, usual_);
    if (unusual >= least) continue;
    least = unusual;
    designs_.baseline = i;
  }
  if (!designs_.baseline) return;
  // First in every legend and table.
  const auto place = designs_.list.begin() + static_cast<std::ptrdiff_t>(*designs_.baseline);
  std::rotate(designs_.list.begin(), place, place + 1);
  designs_.baseline = 0;
}

void Grouping::check_job() {
  for (const std::string& key : task_keys()) {
    std::set<std::string> values;
    for (const DesignRuns& design : designs_.list) {
      for (const RunRecord& run : design.runs) {
        if (run.config().contains(key)) values.insert(setting_text(run, key));
      }
    }
    if (values.size() < 2) continue;
    designs_.same_job = false;
    designs_.notes.push_back(
        fmt::format("The runs differ in {} ({}), so their accuracies and times do not compare; "
                    "report on runs of one job to learn which design is best.",
                    key, fmt::join(values, ", ")));
  }
}

void Grouping::tell_diverged() {
  for (const DesignRuns& design : designs_.list) {
    const auto diverged = std::ranges::count_if(design.runs, &RunRecord::diverged);
    if (diverged == 0) continue;
    std::vector<std::string> steps;
    for (const RunRecord& run : design.runs) {
      const double step = run.summary("diverged_step");
      if (run.diverged() && std::isfinite(step)) steps.push_back(fmt::format("{:.0f}", step));
    }
    const std::string since =
        steps.empty() ? "" : fmt::format(" (at step {})", fmt::join(steps, ", "));
    designs_.notes.push_back(fmt::format(
        "{}: {} of {} runs diverged{}, with a loss that was not finite or ten times its "
        "best at the end; they are left out of every mean. Use a lower learning rate, a "
        "longer warm-up or a milder codec.",
        design.name, diverged, design.runs.size(), since));
  }
}

void Grouping::tell_unfinished() {
  std::vector<std::string> sentences;
  for (const DesignRuns& design : designs_.list) {
    for (const RunRecord& run : design.runs) {
      if (run.finished()) continue;
      double last = run.summary("steps");
      if (&run == &design.shown_run() && !design.steps.empty()) last = design.steps.back().step;
      const double planned = run.config_number("steps");
      const std::string of = planned > 0 ? fmt::format(" of {:.0f}", planned) : "";
      const std::string after = last > 0 ? fmt::format(" after step {:.0f}{}", last, of) : "";
      sentences.push_back(fmt::format("The run in {} was {}{}; this shows what it recorded.",
                                      run.directory().string(),
                                      run.interrupted() ? "interrupted" : "cut off", after));
    }
  }
  if (sentences.size() > kMostSentences) {
    const std::string count = fmt::format(
        "{} runs were cut off or interrupted; of these only the "
        "course is shown.",
        sentences.size());
    sentences = {count};
  }
  if (found_.missing_cells > 0) {
    sentences.push_back(fmt::format("{} of the comparison's runs {} not there yet.",
                                    found_.missing_cells,
                                    found_.missing_cells == 1 ? "is" : "are"));
  }
  designs_.notes.insert(designs_.notes.begin(), sentences.begin(), sentences.end());
}

Designs Grouping::designs() && {
  if (found_.rates.empty()) {
    for (const char* rate : kUsualRates) found_.rates.push_back(rate_argument(rate));
  }
  for (const double bits : found_.rates) designs_.rates.push_back({rate_name(bits), bits});
  std::ranges::sort(designs_.rates, {}, &LinkRate::bits_per_second);
  group();
  choose_times();
  read_courses();
  choose_baseline();
  check_job();
  tell_diverged();
  tell_unfinished();
  return std::move(designs_);
}

}  // namespace

double DesignRuns::fp32_seconds(const LinkRate& rate) const {
  return rate.measured ? std::numeric_limits<double>::quiet_NaN()
                       : shown_run().fp32_step_seconds(rate.bits_per_second);
}

Designs read_designs(const std::vector<std::string>& directories) {
  return Grouping(find_runs(directories)).designs();
}

}  // namespace tersewire::apps
