#include "trainer/settings/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <sstream>
#include <vector>

#include "tersewire/counted.h"
#include "tersewire/error.h"
#include "tersewire/setting_text.h"

namespace tersewire::trainer {
namespace {

using Curve = std::function<double(double step)>;

// The part of the run that is done; a step beyond its end does not go on.
double done(double step, double steps) { return std::min(step / steps, 1.0); }

Curve constant(SettingText& text, double /*steps*/) {
  text.finish({});
  return [](double /*step*/) { return 1.0; };
}

Curve cosine(SettingText& text, double steps) {
  const double end = text.take_number("end", 0.01, 0, 1);
  text.finish({"end"});
  return [=](double step) {
    return end + (1 - end) * ((1 + std::cos(std::numbers::pi * done(step, steps))) / 2);
  };
}

Curve polynomial(SettingText& text, double steps) {
  const double power = text.take_number("power", 0.5, 0, 1000);
  const double end = text.take_number("end", 0, 0, 1);
  text.finish({"power", "end"});
  return [=](double step) { return end + (1 - end) * std::pow(1 - done(step, steps), power); };
}

// In steps.
double mark_of(const SettingText& text, const std::string& key, const std::string& value,
               double steps) {
  const auto mark = parsed_number<double>(value);
  if (!mark || *mark <= 0 || (*mark >= 1 && *mark != std::floor(*mark))) {
    text.refuse(key, "a part of the run, between 0 and 1, or a whole number of steps", value);
  }
  return *mark < 1 ? *mark * steps : *mark;
}

std::vector<double> marks_of(const SettingText& text, const std::string& list, double steps) {
  std::vector<double> marks;
  std::istringstream parts(list + "/");
  for (std::string part; std::getline(parts, part, '/');) {
    marks.push_back(mark_of(text, "at", part, steps));
  }
  return marks;
}

Curve staircase(SettingText& text, double steps) {
  const double factor = text.take_number("factor", 0.1, 0, 1);
  const std::string at = text.take_word("at");
  const std::string every = text.take_word("every");
  text.finish({"at", "every", "factor"});
  if (!every.empty()) {
    if (!at.empty()) text.fail("give at or every, not both");
    const double length = mark_of(text, "every", every, steps);
    return [=](double step) { return std::pow(factor, std::floor(step / length)); };
  }
  return [=, marks = marks_of(text, at.empty() ? "0.5/0.75" : at, steps)](double step) {
    const auto passed = std::ranges::count_if(marks, [=](double mark) { return step >= mark; });
    return std::pow(factor, static_cast<double>(passed));
  };
}

Curve exponential(SettingText& text, double steps) {
  const double factor = text.take_number("factor", 0.1, 0, 1);
  const std::string every = text.take_word("every");
  const double length = mark_of(text, "every", every.empty() ? "0.5" : every, steps);
  text.finish({"factor", "every"});
  return [=](double step) { return std::pow(factor, step / length); };
}

std::string scaled_mark(const std::string& value, double steps, double to_steps) {
  const auto mark = parsed_number<double>(value);
  if (!mark || *mark < 1) return value;
  const double part = *mark / steps;
  return fmt::format("{}", part < 1 ? part : std::round(part * to_steps));
}

std::string scaled_marks(const std::string& list, double steps, double to_steps) {
  std::string scaled;
  std::istringstream marks(list);
  for (std::string mark; std::getline(marks, mark, '/');) {
    scaled += (scaled.empty() ? "" : "/") + scaled_mark(mark, steps, to_steps);
  }
  return scaled;
}

Curve curve_of(const std::string& setting, double steps) {
  SettingText text(setting, "schedule");
  if (text.name() == "constant") return constant(text, steps);
  if (text.name() == "cosine") return cosine(text, steps);
  if (text.name() == "polynomial") return polynomial(text, steps);
  if (text.name() == "step") return staircase(text, steps);
  if (text.name() == "exponential") return exponential(text, steps);
  text.refuse_name({"constant", "cosine", "polynomial", "step", "exponential"});
}

}  // namespace

Schedule::Schedule(const std::string& text, const Run& run)
    : run_(run), curve_(curve_of(text, static_cast<double>(run.steps))) {
  if (run.warm_up <= run.steps) return;
  throw Error(ErrorCode::kInvalidArgument,
              "a warm-up of " + counted(run.warm_up, "step") + " is longer than the run of " +
                  counted(run.steps, "step") + "; shorten the warm-up or lengthen the run");
}

std::string scaled_schedule(const std::string& text, std::uint64_t steps, std::uint64_t to_steps) {
  SettingText schedule(text, "schedule");
  for (const char* key : {"at", "every"}) {
    const std::string marks = schedule.take_word(key);
    const std::string scaled =
        scaled_marks(marks, static_cast<double>(steps), static_cast<double>(to_steps));
    if (scaled == marks) continue;
    // A schedule has one of the two.
    schedule.set_default(key, scaled);
    return schedule.text();
  }
  return text;
}

double Schedule::at(std::uint64_t step) const {
  const double rate = curve_(static_cast<double>(step));
  if (step >= run_.warm_up) return rate;
  const double start = 1.0 / run_.workers;
  const double warm = static_cast<double>(step) / static_cast<double>(run_.warm_up);
  return rate * (start + (1 - start) * warm);
}

}  // namespace tersewire::trainer
