#include "apps/compare/compare_design.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <set>
#include <string_view>

#include "apps/cli/failures.h"
#include "apps/cli/job_options.h"
#include "apps/cli/nearest.h"
#include "apps/train/train_check.h"
#include "tersewire/counted.h"
#include "trainer/settings/train_config.h"

namespace tersewire::apps {
namespace {

// Pieces between separators that are in no quotes; empty ones are left out.
std::vector<std::string> split(const std::string& text, std::string_view separators) {
  std::vector<std::string> pieces(1);
  char quote = 0;
  for (const char c : text) {
    if (quote == 0 && separators.find(c) != std::string_view::npos) {
      pieces.emplace_back();
      continue;
    }
    if (c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    }
    pieces.back() += c;
  }
  if (quote != 0) {
    throw WrongUsage(fmt::format("a quote in '{}' is not closed; close it", text));
  }
  std::erase_if(pieces, [](const std::string& piece) { return piece.empty(); });
  return pieces;
}

std::string without_quotes(std::string text) {
  std::erase_if(text, [](char c) { return c == '\'' || c == '"'; });
  return text;
}

// Of an option; a codec's parameters come after its colon.
bool is_setting(const std::string& piece) {
  return piece.find('=') < piece.find(':') && piece.find('=') != std::string::npos;
}

// Of train's options that no recipe sets: why no comparison does either, or nothing.
std::string not_for_any(const std::string& key) {
  if (key == "recipe") return "all designs have the same one; use --recipe";
  const bool of_one_run = std::ranges::count(train_options_of_one_run(), key) > 0;
  return of_one_run ? "it is for one run, not for all cells" : "";
}

// `why` refuses some keys: the sentence, or nothing.
template <typename Why>
void add_setting(Settings& settings, const std::string& piece, const Why& why) {
  const std::size_t equals = piece.find('=');
  const std::string key = piece.substr(0, equals);
  std::string refused = not_for_any(key);
  if (refused.empty()) refused = why(key);
  if (!refused.empty()) throw WrongUsage(fmt::format("{} cannot be set here: {}", key, refused));
  const std::vector<std::string> known = train_settings();
  if (std::ranges::find(known, key) == known.end()) {
    throw WrongUsage(fmt::format("train has no setting '{}'{}", key,
                                 did_you_mean(key, known, "'tersewire train --help' lists them")));
  }
  if (!settings.emplace(key, piece.substr(equals + 1)).second) {
    // Where a codec may be set, words without = are codecs.
    throw WrongUsage(fmt::format("{} is given twice; keep one{}", key,
                                 key == "codec" ? ", and separate designs by semicolons" : ""));
  }
}

// Names what the sentence is about.
template <typename Task>
void with_name(const std::string& name, Task&& task) {
  try {
    task();
  } catch (const WrongUsage& error) {
    throw WrongUsage(fmt::format("{}: {}", name, error.what()));
  }
}

std::string not_for_a_design(const std::string& key) {
  if (key == "steps" || key == "epochs") return "all designs take the same number; use --steps";
  if (key == "seed") return "all designs have the same seeds; use --set seed=N";
  if (key == "transport") return "designs run in-process; use --lab to measure them over mpi";
  return "";
}

std::string not_for_all(const std::string& key) {
  if (key == "codec" || key == "push-codec" || key == "pull-codec") {
    return "that is what designs differ in; use --designs";
  }
  return key == "transport" ? not_for_a_design(key) : "";
}

Design design_of(const std::vector<std::string>& pieces) {
  Design design{.name = fmt::format("{}", fmt::join(pieces, " ")), .settings = {}};
  with_name(fmt::format("design '{}'", design.name), [&] {
    for (const std::string& quoted : pieces) {
      const std::string piece = without_quotes(quoted);
      add_setting(design.settings, is_setting(piece) ? piece : "codec=" + piece, not_for_a_design);
    }
  });
  // As on train's command line, a codec leaves nothing of those of the recipe.
  design.settings.emplace("codec", "fp32");
  return design;
}

std::uint64_t steps_of(const std::string& text, std::uint64_t full_steps) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  const bool is_number = error == std::errc() && number > 0;
  if (is_number && unit == "%" && number <= 100) {
    const double steps = std::round(static_cast<double>(full_steps) * number / 100);
    return static_cast<std::uint64_t>(std::max(1.0, steps));
  }
  if (is_number && unit.empty() && number <= trainer::kMostSteps && number == std::floor(number)) {
    return static_cast<std::uint64_t>(number);
  }
  throw WrongUsage(fmt::format(
      "'{}' is not a number of steps; write 500, or a part above 0 and at most 100 %, as 25%",
      text));
}

}  // namespace

std::vector<Design> designs_argument(const std::string& text) {
  std::vector<Design> designs;
  std::set<std::string> names;
  for (const std::string& piece : split(text, ";")) {
    const std::vector<std::string> words = split(piece, " \t\n");
    if (words.empty()) continue;
    designs.push_back(design_of(words));
    if (!names.insert(designs.back().name).second) {
      throw WrongUsage(fmt::format("design '{}' is given twice; keep one", designs.back().name));
    }
  }
  if (designs.empty()) throw WrongUsage("--designs names none; write 'fp32; 3lc:s=1.00; int8'");
  return designs;
}

Settings shared_settings_argument(const std::vector<std::string>& texts) {
  Settings settings;
  for (const std::string& text : texts) {
    if (text.find('=') == std::string::npos) {
      throw WrongUsage(fmt::format("'{}' is not a setting; write KEY=VALUE", text));
    }
    with_name(fmt::format("--set '{}'", text), [&] { add_setting(settings, text, not_for_all); });
  }
  return settings;
}

std::vector<std::string> train_arguments(const Settings& settings) {
  std::vector<std::string> arguments;
  for (const auto& [key, value] : settings) {
    if (value.empty()) {
      // CLI11 takes what follows for the value of `--key=`.
      arguments.insert(arguments.end(), {"--" + key, ""});
    } else {
      arguments.push_back(fmt::format("--{}={}", key, value));
    }
  }
  return arguments;
}

std::vector<StepCount> steps_argument(const std::vector<std::string>& texts,
                                      std::uint64_t full_steps) {
  std::vector<StepCount> counts;
  for (const std::string& text : texts) {
    const StepCount count{.name = text, .steps = steps_of(text, full_steps)};
    const auto same = std::ranges::find(counts, count.steps, &StepCount::steps);
    if (same != counts.end()) {
      throw WrongUsage(fmt::format("{} and {} are both {}; keep one", same->name, text,
                                   counted(count.steps, "step")));
    }
    counts.push_back(count);
  }
  return counts;
}

std::vector<Rate> rates_argument(const std::vector<std::string>& texts) {
  std::vector<Rate> rates;
  for (const std::string& text : texts) {
    const Rate rate{.name = text, .bits_per_second = rate_argument(text)};
    const auto same = std::ranges::find(rates, rate.bits_per_second, &Rate::bits_per_second);
    if (same != rates.end()) {
      throw WrongUsage(fmt::format("{} and {} are the same rate; keep one", same->name, text));
    }
    rates.push_back(rate);
  }
  return rates;
}

}  // namespace tersewire::apps
