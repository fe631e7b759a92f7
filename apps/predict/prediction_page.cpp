#include "apps/predict/prediction_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "apps/cli/failures.h"
#include "apps/cli/quantities.h"
#include "apps/files/new_file.h"
#include "apps/report/report_page.h"
#include "tersewire/counted.h"

namespace tersewire::apps {
namespace {

constexpr int kMostWorkers = 512;  // as far as TernGrad's Fig. 5 goes
constexpr double kLeastRate = 1e6;
constexpr double kMostRate = 1e11;
constexpr double kRateStep = 2.154434690031884;  // three to a decade

constexpr const char* kFootnote =
    "Predictions are calculated, not measured, and of speed alone: see docs/predict.md for the "
    "assumptions, evidence/predictions for comparisons with measurements, and docs/choosing.md for the "
    "effect of codecs on accuracy.";

// The best speedup of each codec, over whatever varies.
class Curves {
 public:
  void add(double at, const std::vector<Prediction>& predictions) {
    std::map<std::string, double> best;
    for (const Prediction& each : predictions) {
      if (std::ranges::find(codecs_, each.codecs()) == codecs_.end()) {
        codecs_.push_back(each.codecs());
      }
      double& speedup = best[each.codecs()];
      speedup = std::max(speedup, each.speedup);
    }
    for (const auto& [codec, speedup] : best) rows_[codec].push_back({at, speedup});
  }

  [[nodiscard]] Figure figure(const char* id, const char* title, const std::string& hint,
                              const char* column) const {
    Figure figure{.id = id,
                  .title = title,
                  .hint = hint,
                  .keys = {"design"},
                  .columns = {column, "speedup"},
                  .groups = {}};
    for (const std::string& codec : codecs_) add_group(figure, {codec}, rows_.at(codec));
    round_numbers(figure);
    return figure;
  }
  [[nodiscard]] const std::vector<std::string>& codecs() const { return codecs_; }

 private:
  std::vector<std::string> codecs_;  // in their order
  std::map<std::string, std::vector<std::vector<double>>> rows_;
};

// `own`: the number that is asked about, which the plan takes.
Curves over_workers(const PredictionPlan& plan, int own, const NamedLink& link) {
  std::set<int> numbers{own};
  for (int number = plan.gpus_per_node; number <= kMostWorkers; number *= 2) numbers.insert(number);
  Curves curves;
  for (const int workers : numbers) {
    try {
      curves.add(workers, predict_designs(plan, workers, link));
    } catch (const WrongUsage&) {
      // No exchange takes so many workers.
    }
  }
  return curves;
}

Curves over_rates(const PredictionPlan& plan, int workers, NamedLink link) {
  Curves curves;
  for (double rate = kLeastRate; rate < 1.01 * kMostRate; rate *= kRateStep) {
    link.speed.bits_per_second = rate;
    curves.add(rate, predict_designs(plan, workers, link));
  }
  return curves;
}

}  // namespace

void write_prediction_page(const std::string& path, const std::string& model,
                           const PredictionPlan& plan, int workers, const NamedLink& link) {
  const Curves by_rate = over_rates(plan, workers, link);
  const std::vector<Figure> figures = {
      over_workers(plan, workers, link)
          .figure("speedup-over-workers", "More workers",
                  fmt::format("At {}: each line is a codec with its fastest exchange, relative to "
                              "the fastest exchange with fp32.",
                              link.text),
                  "workers"),
      by_rate.figure("speedup-over-rate", "Faster links",
                     fmt::format("With {}. Where all lines meet at 1, compression does not pay.",
                                 counted(workers, "worker")),
                     "bits_per_second")};
  const auto predictions = predict_designs(plan, workers, link);
  PageText text{.headline = {.title = verdict(plan, predictions), .detail = "", .verdicts = {}},
                .job = {{"model", model},
                        {"workers", std::to_string(workers)},
                        {"link", link.text},
                        {"computation", seconds_text(plan.compute_seconds)}},
                .notes = {},
                .designs = by_rate.codecs(),
                .baseline = std::nullopt,
                .footnote = kFootnote};
  if (std::ranges::find(text.designs, "fp32") != text.designs.end()) text.baseline = "fp32";
  const std::string html = report_html(text, figures);
  write_new_file(path, std::as_bytes(std::span(html)));
}

}  // namespace tersewire::apps
