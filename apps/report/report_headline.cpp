#include "apps/report/report_headline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "apps/cli/quantities.h"
#include "apps/report/design_settings.h"
#include "apps/report/report_outcomes.h"

namespace tersewire::apps {
namespace {

// Step times are not known better than this.
constexpr double kAboutAsFast = 1.05;
// Accuracies that are equal except for rounding are equal.
constexpr double kRounding = 1e-9;

std::string percent_text(double share) { return fmt::format("{:.2f} %", 100 * share); }

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 < words.size() ? ", " : " and ";
    text += words[i];
  }
  return text;
}

// A design with its finished runs, by length.
struct Contender {
  const DesignRuns* design;
  std::vector<Outcome> ends;
};

std::vector<Contender> contenders(const Designs& designs) {
  std::vector<Contender> found;
  for (const DesignRuns& design : designs.list) {
    auto ends = outcomes(design, designs.rates);
    if (!ends.empty()) found.push_back({&design, std::move(ends)});
  }
  return found;
}

// When a design is there, and with which accuracy.
struct Arrival {
  const DesignRuns* design;
  double seconds;
  double accuracy;
};

// Those that come to the accuracy, the soonest first.
std::vector<Arrival> arrivals(const std::vector<Contender>& designs, double accuracy,
                              std::size_t rate) {
  std::vector<Arrival> found;
  for (const auto& [design, ends] : designs) {
    std::optional<Arrival> first;
    for (const Outcome& end : ends) {
      const double seconds = end.steps * end.step_seconds[rate];
      if (end.means.test_accuracy < accuracy || !std::isfinite(seconds)) continue;
      if (!first || seconds < first->seconds) first = {design, seconds, end.means.test_accuracy};
    }
    if (first) found.push_back(*first);
  }
  std::ranges::stable_sort(found, {}, &Arrival::seconds);
  return found;
}

std::string about_as_fast(const std::vector<Arrival>& sorted) {
  std::vector<std::string> names;
  for (const Arrival& arrival : sorted) {
    const bool near = arrival.seconds <= kAboutAsFast * sorted.front().seconds;
    if (near && arrival.design != sorted.front().design) names.push_back(arrival.design->name);
  }
  return names.empty() ? "" : fmt::format(" About as fast: {}.", joined(names));
}

RateVerdict verdict(const LinkRate& rate, const std::vector<Arrival>& sorted,
                    const DesignRuns& reference, double reference_accuracy) {
  const Arrival& best = sorted.front();
  RateVerdict verdict{rate.name, times_name(rate), best.design->name, "", ""};
  const auto other = std::ranges::find(sorted, &reference, &Arrival::design);
  const std::string accuracy =
      fmt::format("{} test accuracy ({:+.2f} points)", percent_text(best.accuracy),
                  100 * (best.accuracy - reference_accuracy));
  if (best.design == &reference) {
    verdict.gain = sorted.size() > 1 ? "nothing else is faster" : "nothing else is as accurate";
    verdict.detail = fmt::format("{}, {} test accuracy.", seconds_text(best.seconds),
                                 percent_text(best.accuracy));
  } else if (other != sorted.end()) {
    verdict.gain = fmt::format("{} times as fast as {}",
                               digits_text(other->seconds / best.seconds, 2), reference.name);
    verdict.detail = fmt::format("{} instead of {}, {}.", seconds_text(best.seconds),
                                 seconds_text(other->seconds), accuracy);
  } else {
    verdict.detail = fmt::format("{}, {}.", seconds_text(best.seconds), accuracy);
  }
  verdict.detail += about_as_fast(sorted);
  return verdict;
}

std::string winners_title(const std::vector<RateVerdict>& verdicts) {
  std::vector<std::pair<std::string, std::vector<std::string>>> rates_of;
  for (const RateVerdict& verdict : verdicts) {
    const auto found = std::ranges::find(rates_of, verdict.design,
                                         &std::pair<std::string, std::vector<std::string>>::first);
    if (found == rates_of.end()) {
      rates_of.push_back({verdict.design, {verdict.rate}});
    } else {
      found->second.push_back(verdict.rate);
    }
  }
  if (rates_of.size() == 1) return "Best for this job: " + rates_of[0].first;
  std::vector<std::string> parts;
  for (const auto& [design, rates] : rates_of) {
    parts.push_back(fmt::format("{} at {}", design, joined(rates)));
  }
  return "Best for this job: " + fmt::format("{}", fmt::join(parts, ", "));
}

std::string repeats_text(const std::vector<Contender>& designs) {
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (const Contender& contender : designs) {
    for (const Outcome& end : contender.ends) least = std::min(least, end.runs);
  }
  if (least > 1) return fmt::format("Accuracies are means of at least {} runs.", least);
  return "Some accuracies are of a single run: differences of some tenths of a point may be "
         "chance.";
}

Headline compare(const Designs& designs, const std::vector<Contender>& found,
                 double tolerance_points) {
  const bool has_baseline =
      designs.baseline && found.front().design == &designs.list[*designs.baseline];
  const Contender& reference =
      has_baseline ? found.front() : *std::ranges::max_element(found, {}, [](const Contender& c) {
        return c.ends.back().means.test_accuracy;
      });
  const double accuracy = reference.ends.back().means.test_accuracy;
  Headline headline;
  bool rivals = false;
  for (std::size_t rate = 0; rate < designs.rates.size(); ++rate) {
    const auto sorted = arrivals(found, accuracy - tolerance_points / 100 - kRounding, rate);
    if (sorted.empty()) continue;
    rivals = rivals || sorted.size() > 1;
    headline.verdicts.push_back(verdict(designs.rates[rate], sorted, *reference.design, accuracy));
  }
  if (headline.verdicts.empty()) {
    headline.title = fmt::format("{} designs", found.size());
    headline.detail = "Their summaries lack what step times are modelled from.";
    return headline;
  }
  const std::string& name = reference.design->name;
  if (!std::ranges::all_of(headline.verdicts,
                           [&](const RateVerdict& one) { return one.design == name; })) {
    headline.title = winners_title(headline.verdicts);
  } else if (rivals) {
    headline.title = fmt::format("No design is faster than {} here", name);
  } else {
    headline.title =
        fmt::format("No other design comes within {} points of {} here", tolerance_points, name);
  }
  headline.detail =
      fmt::format("The fastest to within {} points of {}'s {} test accuracy, at each link rate. {}",
                  tolerance_points, name, percent_text(accuracy), repeats_text(found));
  return headline;
}

// What one design saves over the fp32 that its summary models.
Headline single(const Designs& designs, const Contender& contender) {
  const DesignRuns& design = *contender.design;
  const Outcome& end = contender.ends.back();
  Headline headline;
  headline.title =
      fmt::format("{}: {} test accuracy", design.name, percent_text(end.means.test_accuracy));
  if (end.means.compression_ratio > 1.01) {
    headline.title +=
        fmt::format(", {} times less traffic", digits_text(end.means.compression_ratio, 2));
  }
  headline.detail =
      fmt::format("After {:.0f} steps. Step time at each link rate, against fp32:", end.steps);
  for (std::size_t i = 0; i < designs.rates.size(); ++i) {
    const LinkRate& rate = designs.rates[i];
    const double ours = end.step_seconds[i];
    const double fp32 = design.fp32_seconds(rate);
    if (!std::isfinite(ours)) continue;
    RateVerdict verdict{rate.name, times_name(rate), seconds_text(ours) + " a step", "", ""};
    if (fp32 > 1.01 * ours) {
      verdict.gain = fmt::format("{} times as fast as fp32", digits_text(fp32 / ours, 2));
      verdict.detail = fmt::format("fp32 would take {}.", seconds_text(fp32));
    }
    headline.verdicts.push_back(std::move(verdict));
  }
  return headline;
}

Headline unfinished(const Designs& designs) {
  Headline headline;
  if (designs.list.size() > 1) {
    headline.title = fmt::format("{} designs, {}", designs.list.size(),
                                 designs.same_job ? "none with a result" : "of different jobs");
    return headline;
  }
  const DesignRuns& design = designs.list.front();
  headline.title = design.name + (design.shown_run().diverged() ? ": diverged" : ": not finished");
  if (design.steps.empty()) return headline;
  const StepRecord& last = design.steps.back();
  headline.detail = fmt::format(
      "Bits per value up to step {:.0f}: {:.3g} pushed and {:.3g} pulled (32 without compression).",
      last.step, last.push_bits_per_value, last.pull_bits_per_value);
  return headline;
}

// The values that the runs have, each once, in few words.
std::string values_text(const Designs& designs, const char* key) {
  std::set<std::string> values;
  for (const DesignRuns& design : designs.list) {
    const RunRecord& run = design.shown_run();
    if (run.config().contains(key)) values.insert(setting_text(run, key));
  }
  constexpr std::size_t kMost = 4;
  if (values.size() > kMost) return fmt::format("{} values", values.size());
  return fmt::format("{}", fmt::join(values, ", "));
}

}  // namespace

Headline make_headline(const Designs& designs, double tolerance_points) {
  const auto found = contenders(designs);
  if (found.empty() || (found.size() > 1 && !designs.same_job)) return unfinished(designs);
  if (found.size() == 1) return single(designs, found.front());
  return compare(designs, found, tolerance_points);
}

std::vector<JobFact> job_facts(const Designs& designs) {
  constexpr std::array<std::pair<const char*, const char*>, 6> kFacts{{{"model", "model"},
                                                                       {"data", "data"},
                                                                       {"workers", "workers"},
                                                                       {"batch", "batch a worker"},
                                                                       {"exchange", "exchange"},
                                                                       {"steps", "steps"}}};
  std::vector<JobFact> facts;
  for (const auto& [key, name] : kFacts) {
    std::string value = values_text(designs, key);
    if (!value.empty()) facts.push_back({name, std::move(value)});
  }
  return facts;
}

}  // namespace tersewire::apps
