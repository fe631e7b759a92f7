#include "apps/report_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <span>

namespace tersewire::apps {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr double kBitsPerFloat = 32;

// Points that a line is drawn of, at most.
constexpr std::size_t kMaxPoints = 150;
// Longer turns from exchange to exchange are not believed.
constexpr double kMaxTurn = 1e9;
// Observed steps whose histograms are shown, at most.
constexpr std::size_t kMaxHistograms = 5;

double mean(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? kNone : sum / static_cast<double>(values.size());
}

double mean_summary(std::span<const RunRecord* const> runs, const char* key) {
  std::vector<double> values;
  for (const RunRecord* run : runs) values.push_back(run->summary(key));
  return mean(values);
}

bool has_number(std::span<const double> row) {
  return std::ranges::any_of(row, [](double value) { return std::isfinite(value); });
}

// Rows of which nothing is left but what they are a function of show nothing.
void add_group(Figure& figure, std::vector<std::string> key,
               std::vector<std::vector<double>> rows) {
  std::erase_if(
      rows, [](const std::vector<double>& row) { return !has_number(std::span(row).subspan(1)); });
  if (!rows.empty()) figure.groups.push_back({std::move(key), std::move(rows)});
}

// Columns in which nothing is are left out.
void drop_empty_columns(Figure& figure) {
  for (std::size_t i = figure.columns.size(); i-- > 0;) {
    const bool used = std::ranges::any_of(figure.groups, [i](const Group& group) {
      return std::ranges::any_of(
          group.rows, [i](const std::vector<double>& row) { return std::isfinite(row[i]); });
    });
    if (used) continue;
    const auto at = static_cast<std::ptrdiff_t>(i);
    figure.columns.erase(figure.columns.begin() + at);
    for (Group& group : figure.groups) {
      for (std::vector<double>& row : group.rows) row.erase(row.begin() + at);
    }
  }
}

// At most `most` of `count` things, the first and the last among them.
std::vector<std::size_t> spread(std::size_t count, std::size_t most) {
  std::vector<std::size_t> chosen;
  const std::size_t size = std::min(count, most);
  for (std::size_t i = 0; i < size; ++i) {
    chosen.push_back(size == 1 ? count - 1 : i * (count - 1) / (size - 1));
  }
  return chosen;
}

// --- Tables of whole runs ---

// Against the baseline's step; a report without one goes by the fp32 that the run itself models.
double speedup(const Designs& designs, const Design& design, const Outcome& outcome,
               std::size_t rate) {
  if (designs.baseline) {
    const auto others = outcomes(designs.list[*designs.baseline], designs.rates);
    return others.empty() ? kNone : others.back().step_seconds[rate] / outcome.step_seconds[rate];
  }
  return design.shown_run().fp32_step_seconds(designs.rates[rate].name) /
         outcome.step_seconds[rate];
}

double baseline_accuracy(const Designs& designs) {
  if (!designs.baseline) return kNone;
  const auto others = outcomes(designs.list[*designs.baseline], designs.rates);
  return others.empty() ? kNone : others.back().accuracy;
}

// Of a design without a finished run what its course tells.
Outcome end_of(const Design& design, const std::vector<LinkRate>& rates) {
  const auto ends = outcomes(design, rates);
  if (!ends.empty()) return ends.back();
  Outcome none{.steps = kNone,
               .runs = 0,
               .accuracy = kNone,
               .lowest = kNone,
               .highest = kNone,
               .push_bits_per_value = kNone,
               .pull_bits_per_value = kNone,
               .compression_ratio = kNone,
               .step_seconds = std::vector<double>(rates.size(), kNone)};
  if (design.steps.empty()) return none;
  const StepRecord& last = design.steps.back();
  none.steps = last.step;
  none.push_bits_per_value = last.push_bits_per_value;
  none.pull_bits_per_value = last.pull_bits_per_value;
  return none;
}

std::vector<double> design_row(const Designs& designs, const Design& design) {
  const Outcome end = end_of(design, designs.rates);
  std::vector<double> row{end.steps,
                          static_cast<double>(end.runs),
                          end.accuracy,
                          end.runs > 1 ? end.lowest : kNone,
                          end.runs > 1 ? end.highest : kNone,
                          100 * (end.accuracy - baseline_accuracy(designs)),
                          end.push_bits_per_value,
                          end.pull_bits_per_value,
                          end.compression_ratio};
  for (std::size_t rate = 0; rate < designs.rates.size(); ++rate) {
    row.push_back(end.step_seconds[rate]);
    row.push_back(speedup(designs, design, end, rate));
  }
  return row;
}

Figure designs_table(const Designs& designs) {
  Figure figure{.id = "designs",
                .title = "In numbers",
                .hint =
                    "Accuracies are those of the longest runs, as means over repeats. Bits are "
                    "those that a value of the model takes on its way, 32 without compression.",
                .keys = {"design"},
                .columns = {"steps", "runs", "test_accuracy", "lowest_accuracy", "highest_accuracy",
                            "accuracy_difference_points", "push_bits_per_value",
                            "pull_bits_per_value", "compression_ratio"},
                .groups = {}};
  for (const LinkRate& rate : designs.rates) {
    figure.columns.push_back(fmt::format("{}_step_seconds at {}", times_name(rate), rate.name));
    figure.columns.push_back("speedup at " + rate.name);
  }
  for (const Design& design : designs.list) {
    add_group(figure, {design.name}, {design_row(designs, design)});
  }
  drop_empty_columns(figure);
  return figure;
}

// Where a design's runs ended.
std::vector<std::vector<double>> ends_over_time(const std::vector<Outcome>& ends,
                                                std::size_t rate) {
  std::vector<std::vector<double>> rows;
  for (const Outcome& end : ends) {
    rows.push_back({end.steps * end.step_seconds[rate], end.accuracy, end.lowest, end.highest,
                    end.steps, static_cast<double>(end.runs)});
  }
  return rows;
}

// The tests of one run on its way. An observed step shows the model as it was before.
std::vector<std::vector<double>> course_over_time(const Design& design, double step_seconds) {
  std::vector<std::vector<double>> rows;
  for (const std::size_t i : spread(design.observed.size(), kMaxPoints)) {
    const ObservedStep& step = design.observed[i];
    const double steps = step.step - 1;
    if (!std::isfinite(step.test_accuracy) || steps < 1) continue;
    rows.push_back({steps * step_seconds, step.test_accuracy, kNone, kNone, steps, 1});
  }
  return rows;
}

// 3LC, figure 3.
Figure accuracy_over_time(const Designs& designs) {
  Figure figure{.id = "accuracy-over-time",
                .title = "How accurate, how soon",
                .hint =
                    "Tests at the ends of runs, and on their way where runs of one length were "
                    "observed. Further left is sooner, higher is better. A time is the steps "
                    "times a step's time at that rate.",
                .keys = {"rate", "times", "design"},
                .columns = {"seconds", "test_accuracy", "lowest_accuracy", "highest_accuracy",
                            "steps", "runs"},
                .groups = {}};
  // Where there are runs of several lengths, those compare: each had its whole schedule.
  const bool one_length = std::ranges::all_of(designs.list, [&](const Design& design) {
    return outcomes(design, designs.rates).size() < 2;
  });
  std::size_t points = 0;
  for (std::size_t rate = 0; rate < designs.rates.size(); ++rate) {
    for (const Design& design : designs.list) {
      const auto ends = outcomes(design, designs.rates);
      if (ends.empty() || !std::isfinite(ends.back().step_seconds[rate])) continue;
      auto rows = one_length ? course_over_time(design, ends.back().step_seconds[rate])
                             : std::vector<std::vector<double>>();
      std::ranges::copy(ends_over_time(ends, rate), std::back_inserter(rows));
      points += rows.size();
      const LinkRate& link = designs.rates[rate];
      add_group(figure, {link.name, times_name(link), design.name}, std::move(rows));
    }
  }
  // One point at each rate compares with nothing.
  if (points <= designs.rates.size()) figure.groups.clear();
  return figure;
}

// INCEPTIONN, figure 12.
Figure step_time(const Designs& designs) {
  Figure figure{.id = "step-time",
                .title = "Where a step's time goes",
                .hint =
                    "At a link rate, modelled: measured computation and coding, then the busiest "
                    "node's bytes on its link. As run: measured on the machine of the run, "
                    "whose processors its nodes may have shared.",
                .keys = {"rate", "times", "design"},
                .columns = {"computation_seconds", "codec_seconds", "wire_seconds",
                            "waiting_seconds", "other_seconds"},
                .groups = {}};
  for (const LinkRate& rate : designs.rates) {
    for (const Design& design : designs.list) {
      const RunRecord& run = design.shown_run();
      if (!std::isfinite(modelled_step_seconds(run, rate))) continue;
      figure.groups.push_back(
          {{rate.name, "modelled", design.name},
           {{run.summary("compute_seconds"), run.summary("codec_seconds"),
             8 * run.summary("busiest_node_bytes") / rate.bits_per_second, kNone, kNone}}});
    }
  }
  for (const Design& design : designs.list) {
    const RunRecord& run = design.shown_run();
    const double computation = run.summary("compute_seconds");
    const double codec = run.summary("codec_seconds");
    const double waiting = run.summary("wait_seconds");
    const double other = run.summary("step_seconds") - computation - codec - waiting;
    if (!std::isfinite(other)) continue;
    figure.groups.push_back({{"as run", "measured", design.name},
                             {{computation, codec, kNone, waiting, std::max(other, 0.0)}}});
  }
  return figure;
}

// 3LC, figure 5: designs that differ in s alone, at least two of them.
Figure sensitivity(const Designs& designs) {
  Figure figure{.id = "sensitivity",
                .title = "What the sparsity multiplier s does",
                .hint =
                    "A higher s sends less and learns later. Points are designs that differ in "
                    "s alone.",
                .keys = {"family"},
                .columns = {"s", "test_accuracy", "push_bits_per_value", "pull_bits_per_value"},
                .groups = {}};
  std::map<std::string, std::map<double, const Design*>> families;
  for (const Design& design : designs.list) {
    const auto setting = codec_setting(design.shown_run(), "s");
    if (setting) families[setting->rest].emplace(setting->value, &design);
  }
  for (const auto& [rest, by_s] : families) {
    if (by_s.size() < 2) continue;
    std::vector<std::vector<double>> rows;
    for (const auto& [s, design] : by_s) {
      const Outcome end = end_of(*design, designs.rates);
      rows.push_back({s, end.accuracy, end.push_bits_per_value, end.pull_bits_per_value});
    }
    add_group(figure, {by_s.begin()->second->name}, std::move(rows));
  }
  return figure;
}

// --- Lines over steps ---

// Steps from one exchange to the next: local-steps=K, or weight-average:every=K.
std::size_t steps_per_exchange(const RunRecord& run) {
  double steps = run.config_number("local_steps");
  const std::string exchange = run.config_text("exchange");
  const std::size_t every = exchange.find("every=");
  if (every != std::string::npos) steps = std::strtod(exchange.c_str() + every + 6, nullptr);
  return steps >= 1 && steps < kMaxTurn ? static_cast<std::size_t>(steps) : 1;
}

// How many lines of a course become a point: whole turns from exchange to exchange.
std::size_t lines_per_point(const Design& design) {
  const std::size_t least = design.steps.size() / kMaxPoints + 1;
  const std::size_t turn = steps_per_exchange(design.shown_run());
  return (least + turn - 1) / turn * turn;
}

// Calls `make` with each point's lines and the line before them, null for the first. The last point
// takes what is left over.
template <typename Make>
std::vector<std::vector<double>> course(const Design& design, Make&& make) {
  const std::size_t size = lines_per_point(design);
  const std::span<const StepRecord> steps = design.steps;
  std::vector<std::vector<double>> rows;
  for (std::size_t at = 0; at < steps.size();) {
    const std::size_t left = steps.size() - at;
    const auto lines = steps.subspan(at, left < 2 * size ? left : size);
    rows.push_back(make(lines, at == 0 ? nullptr : &steps[at - 1]));
    at += lines.size();
  }
  return rows;
}

double mean_of(std::span<const StepRecord> lines, double StepRecord::*member) {
  double sum = 0;
  for (const StepRecord& line : lines) sum += line.*member;
  return sum / static_cast<double>(lines.size());
}

// 3LC, figure 4.
Figure loss_over_steps(const Designs& designs) {
  Figure figure{.id = "loss",
                .title = "Loss over steps",
                .hint =
                    "Of worker 0's batches; a point is the mean of the steps since the last. "
                    "Lower is better.",
                .keys = {"design"},
                .columns = {"step", "training_loss"},
                .groups = {}};
  for (const Design& design : designs.list) {
    add_group(figure, {design.name}, course(design, [](auto lines, const StepRecord*) {
                return std::vector{lines.back().step, mean_of(lines, &StepRecord::loss)};
              }));
  }
  return figure;
}

// 3LC, figure 4.
Figure accuracy_over_steps(const Designs& designs) {
  Figure figure{.id = "accuracy",
                .title = "Accuracy over steps",
                .hint =
                    "Of worker 0's batches, as means, and of the test data where steps were "
                    "observed (--observe-steps) and at the end. Higher is better.",
                .keys = {"on", "design"},
                .columns = {"step", "accuracy"},
                .groups = {}};
  for (const Design& design : designs.list) {
    add_group(figure, {"training batches", design.name},
              course(design, [](auto lines, const StepRecord*) {
                return std::vector{lines.back().step, mean_of(lines, &StepRecord::accuracy)};
              }));
  }
  for (const Design& design : designs.list) {
    std::vector<std::vector<double>> rows;
    for (const ObservedStep& step : design.observed) {
      rows.push_back({step.step, step.test_accuracy});
    }
    const RunRecord& run = design.shown_run();
    const double last = run.summary("steps");
    // An observed step shows the model as it was before; a single end is no line.
    if (!rows.empty() && last >= rows.back()[0]) {
      rows.push_back({last + (last == rows.back()[0] ? 1 : 0), run.summary("test_accuracy")});
    }
    add_group(figure, {"test data", design.name}, std::move(rows));
  }
  return figure;
}

// Values that a worker sends or receives in a step, which the running mean of bits a value tells; a
// resumed run's counts from where it was resumed.
double values_per_step(const Design& design, double StepRecord::*bytes, double StepRecord::*bits) {
  if (design.steps.empty()) return kNone;
  const StepRecord& last = design.steps.back();
  const double resumed = design.shown_run().summary("resumed_after");
  double bytes_before = 0;
  double steps_before = 0;
  for (const StepRecord& step : design.steps) {
    if (!(step.step <= resumed)) break;
    bytes_before = step.*bytes;
    steps_before = step.step;
  }
  const double values =
      8 * (last.*bytes - bytes_before) / (last.*bits) / (last.step - steps_before);
  return values > 0 ? values : kNone;
}

std::vector<std::vector<double>> bits_course(const Design& design, double StepRecord::*bytes,
                                             double StepRecord::*bits) {
  const double values = values_per_step(design, bytes, bits);
  return course(design, [&](auto lines, const StepRecord* before) {
    const StepRecord& last = lines.back();
    const double new_bytes = last.*bytes - (before != nullptr ? before->*bytes : 0);
    const double new_steps = last.step - (before != nullptr ? before->step : 0);
    return std::vector{last.step, 8 * new_bytes / (values * new_steps)};
  });
}

// 3LC, figure 6.
Figure bits_over_steps(const Designs& designs) {
  Figure figure{.id = "bits-per-value",
                .title = "Bits a value over steps",
                .hint =
                    "What a worker sends (push) and receives (pull), messages' heads included. "
                    "Without compression a value has 32 bits.",
                .keys = {"direction", "design"},
                .columns = {"step", "bits_per_value"},
                .groups = {}};
  for (const Design& design : designs.list) {
    add_group(figure, {"push", design.name},
              bits_course(design, &StepRecord::push_bytes, &StepRecord::push_bits_per_value));
  }
  for (const Design& design : designs.list) {
    add_group(figure, {"pull", design.name},
              bits_course(design, &StepRecord::pull_bytes, &StepRecord::pull_bits_per_value));
  }
  return figure;
}

// --- Observed steps ---

// The largest tensors of a design's last observed step.
std::set<std::string> followed_tensors(const Design& design) {
  std::vector<std::pair<double, std::string>> sizes;
  if (!design.observed.empty()) {
    for (const TensorRecord& tensor : design.observed.back().tensors) {
      sizes.emplace_back(-tensor.values, tensor.name);
    }
  }
  std::ranges::stable_sort(sizes, {}, &std::pair<double, std::string>::first);
  sizes.resize(std::min(sizes.size(), kFollowedTensors));
  std::set<std::string> names;
  for (auto& [size, name] : sizes) names.insert(std::move(name));
  return names;
}

std::vector<std::vector<double>> histogram_rows(const TensorRecord& tensor) {
  std::vector<std::vector<double>> rows;
  const double width = 2 * tensor.limit / static_cast<double>(tensor.gradient.size());
  for (std::size_t i = 0; i < tensor.gradient.size(); ++i) {
    rows.push_back({-tensor.limit + (static_cast<double>(i) + 0.5) * width, tensor.gradient[i],
                    tensor.decoded[i]});
  }
  return rows;
}

// TernGrad, figure 2.
Figure histograms(const Designs& designs) {
  Figure figure{.id = "histograms",
                .title = "Gradients before and after the codec",
                .hint =
                    "How many values of a tensor lie where: of what worker 0 was to send, and of "
                    "what receivers decode, which holds part of the residual too. Counts are "
                    "on a logarithmic scale.",
                .keys = {"design", "tensor", "step"},
                .columns = {"value", "gradient_count", "decoded_count"},
                .groups = {}};
  for (const Design& design : designs.list) {
    const std::set<std::string> names = followed_tensors(design);
    for (const std::size_t i : spread(design.observed.size(), kMaxHistograms)) {
      const ObservedStep& step = design.observed[i];
      for (const TensorRecord& tensor : step.tensors) {
        if (!names.contains(tensor.name) || tensor.gradient.empty()) continue;
        figure.groups.push_back(
            {{design.name, tensor.name, fmt::format("{}", step.step)}, histogram_rows(tensor)});
      }
    }
  }
  return figure;
}

// AdaComp, figure 5.
Figure residuals(const Designs& designs) {
  Figure figure{.id = "residuals",
                .title = "What is held back",
                .hint =
                    "Magnitudes of the residual, the part of the gradients that is not sent yet. "
                    "A line that keeps rising says that a codec does not keep up.",
                .keys = {"tensor", "design"},
                .columns = {"step", "residual_p95", "residual_rms", "residual_max"},
                .groups = {}};
  for (const Design& design : designs.list) {
    std::map<std::string, std::vector<std::vector<double>>> lines;
    const std::set<std::string> names = followed_tensors(design);
    for (const std::size_t i : spread(design.observed.size(), kMaxPoints)) {
      const ObservedStep& step = design.observed[i];
      for (const TensorRecord& tensor : step.tensors) {
        if (!names.contains(tensor.name)) continue;
        lines[tensor.name].push_back(
            {step.step, tensor.residual_p95, tensor.residual_rms, tensor.residual_max});
      }
    }
    for (auto& [name, rows] : lines) {
      // A codec without a residual has no line.
      const bool kept = std::ranges::any_of(rows, [](const auto& row) { return row[3] > 0; });
      if (kept) add_group(figure, {name, design.name}, std::move(rows));
    }
  }
  return figure;
}

Figure layers(const Designs& designs) {
  Figure figure{.id = "layers",
                .title = "Layer by layer",
                .hint =
                    "At the last observed step. The error is relative: the root mean square of "
                    "what decoding misses over that of what was encoded; what it misses stays "
                    "in the residual and is sent later.",
                .keys = {"design", "tensor", "kind", "codec"},
                .columns = {"values", "bits_per_value", "ratio", "relative_error", "gradient_rms"},
                .groups = {}};
  for (const Design& design : designs.list) {
    if (design.observed.empty()) continue;
    for (const TensorRecord& tensor : design.observed.back().tensors) {
      figure.groups.push_back(
          {{design.name, tensor.name, tensor.kind, tensor.codec},
           {{tensor.values, tensor.bits_per_value, kBitsPerFloat / tensor.bits_per_value,
             tensor.relative_error, tensor.rms}}});
    }
  }
  return figure;
}

struct FigureMaker {
  const char* id;
  Figure (*make)(const Designs&);
};

// In the order of the page.
constexpr std::array<FigureMaker, 10> kMakers{{{"designs", designs_table},
                                               {"accuracy-over-time", accuracy_over_time},
                                               {"step-time", step_time},
                                               {"loss", loss_over_steps},
                                               {"accuracy", accuracy_over_steps},
                                               {"bits-per-value", bits_over_steps},
                                               {"sensitivity", sensitivity},
                                               {"histograms", histograms},
                                               {"residuals", residuals},
                                               {"layers", layers}}};

// Charts need no more than seven digits, and files get half as large. Whole numbers stay as they
// are.
double rounded(double value) {
  if (!std::isfinite(value) || value == 0) return std::isfinite(value) ? 0 : kNone;
  if (value == std::floor(value)) return value;
  const double scale = std::pow(10, 6 - std::floor(std::log10(std::abs(value))));
  return std::isfinite(scale) && scale > 0 ? std::round(value * scale) / scale : value;
}

std::string csv_text(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace

const char* times_name(const LinkRate& rate) { return rate.measured ? "measured" : "modelled"; }

std::vector<Outcome> outcomes(const Design& design, const std::vector<LinkRate>& rates) {
  std::map<double, std::vector<const RunRecord*>> by_steps;
  for (const RunRecord& run : design.runs) {
    const double steps = run.summary("steps");
    if (run.finished() && steps > 0 && std::isfinite(run.summary("test_accuracy"))) {
      by_steps[steps].push_back(&run);
    }
  }
  std::vector<Outcome> ends;
  for (const auto& [steps, runs] : by_steps) {
    std::vector<double> accuracies;
    for (const RunRecord* run : runs) accuracies.push_back(run->summary("test_accuracy"));
    Outcome end{.steps = steps,
                .runs = runs.size(),
                .accuracy = mean(accuracies),
                .lowest = std::ranges::min(accuracies),
                .highest = std::ranges::max(accuracies),
                .push_bits_per_value = mean_summary(runs, "push_bits_per_value"),
                .pull_bits_per_value = mean_summary(runs, "pull_bits_per_value"),
                .compression_ratio = mean_summary(runs, "compression_ratio"),
                .step_seconds = {}};
    for (const LinkRate& rate : rates) {
      std::vector<double> seconds;
      for (const RunRecord* run : runs) seconds.push_back(modelled_step_seconds(*run, rate));
      end.step_seconds.push_back(rate.measured ? design.measured.at(rate.name) : mean(seconds));
    }
    ends.push_back(std::move(end));
  }
  return ends;
}

std::vector<Figure> make_figures(const Designs& designs) {
  std::vector<Figure> figures;
  for (const FigureMaker& maker : kMakers) {
    Figure figure = maker.make(designs);
    if (figure.groups.empty()) continue;
    for (Group& group : figure.groups) {
      for (std::vector<double>& row : group.rows) std::ranges::transform(row, row.begin(), rounded);
    }
    figures.push_back(std::move(figure));
  }
  return figures;
}

std::vector<std::string> figure_ids() {
  std::vector<std::string> ids;
  for (const FigureMaker& maker : kMakers) ids.emplace_back(maker.id);
  return ids;
}

std::string csv(const Figure& figure) {
  std::string text;
  for (const std::string& key : figure.keys) text += csv_text(key) + ",";
  for (const std::string& column : figure.columns) {
    text += csv_text(column) + (&column == &figure.columns.back() ? "\r\n" : ",");
  }
  for (const Group& group : figure.groups) {
    std::string front;
    for (const std::string& key : group.key) front += csv_text(key) + ",";
    for (const std::vector<double>& row : group.rows) {
      text += front;
      for (std::size_t i = 0; i < row.size(); ++i) {
        if (i > 0) text += ',';
        if (std::isfinite(row[i])) text += fmt::format("{}", row[i]);
      }
      text += "\r\n";
    }
  }
  return text;
}

}  // namespace tersewire::apps
