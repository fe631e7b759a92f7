// A run as TensorBoard reads it.
#include <apps/run/watch/tensorboard.pb.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/cli/output.h"
#include "apps/run/numbers/observed_kinds.h"
#include "apps/run/numbers/step_numbers.h"
#include "apps/run/watch/event_file.h"
#include "apps/run/watch/step_listener.h"
#include "tersewire/error.h"

namespace tersewire::apps {
namespace {

using tensorboard::Event;
using tensorboard::Summary;

constexpr const char* kFormat = "brain.Event:2";

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void add_scalar(Summary& summary, const std::string& tag, double value) {
  Summary::Value* scalar = summary.add_value();
  scalar->set_tag(tag);
  scalar->set_simple_value(static_cast<float>(value));
}

// From the first bin that holds something to the last: a reader takes the edges of these for least
// and greatest. Sums are those of values in the middles of their bins.
void add_histogram(Summary& summary, const std::string& tag, double limit,
                   const trainer::Histograms::Counts& counts) {
  const auto holds = [](std::uint64_t count) { return count > 0; };
  const auto first = std::ranges::find_if(counts, holds);
  const auto last = std::find_if(counts.rbegin(), counts.rend(), holds).base();
  if (first == counts.end() || limit == 0) return;  // bins without values, or without a width
  const double width = 2 * limit / static_cast<double>(counts.size());
  const auto edge = [&](auto bin) {
    return width * static_cast<double>(bin - counts.begin()) - limit;
  };
  Summary::Value* value = summary.add_value();
  value->set_tag(tag);
  tensorboard::HistogramProto& histogram = *value->mutable_histo();
  histogram.set_min(edge(first));
  histogram.set_max(edge(last));
  for (auto bin = first; bin != last; ++bin) {
    const auto count = static_cast<double>(*bin);
    const double middle = edge(bin) + width / 2;
    histogram.add_bucket_limit(edge(bin + 1));
    histogram.add_bucket(count);
    histogram.set_num(histogram.num() + count);
    histogram.set_sum(histogram.sum() + count * middle);
    histogram.set_sum_squares(histogram.sum_squares() + count * middle * middle);
  }
}

// Shown as Markdown, in which indented lines are code: nothing in them means anything.
void add_text(Summary& summary, const std::string& tag, const std::string& lines) {
  std::string text = "    ";
  for (const char c : lines) text += c == '\n' ? "\n    " : std::string(1, c);
  Summary::Value* value = summary.add_value();
  value->set_tag(tag);
  value->mutable_metadata()->mutable_plugin_data()->set_plugin_name("text");
  tensorboard::TensorProto* tensor = value->mutable_tensor();
  tensor->set_dtype(tensorboard::DT_STRING);
  tensor->mutable_tensor_shape()->add_dim()->set_size(1);
  tensor->add_string_val(text);
}

class TensorboardWriter final : public StepListener {
 public:
  TensorboardWriter(const std::string& directory, const nlohmann::json& config,
                    std::uint64_t resumed_after)
      : file_(directory) {
    Event version = event_of(0);
    version.set_file_version(kFormat);
    file_.add(version.SerializeAsString());
    if (resumed_after > 0) {
      Event start = event_of(resumed_after + 1);
      start.mutable_session_log()->set_status(tensorboard::SessionLog::START);
      file_.add(start.SerializeAsString());
    }
    Event text = event_of(resumed_after);
    add_text(*text.mutable_summary(), "configuration/text_summary", json_text(config));
    file_.add(text.SerializeAsString());
  }

  void on_step(const trainer::StepReport& report) override {
    Event event = event_of(report.step);
    Summary& summary = *event.mutable_summary();
    const trainer::StepReport step = between(before_, report);
    for (const StepNumber& number : step_numbers()) {
      if (number.tag == nullptr) continue;
      const double value = number.read(step);
      // The first step pulls nothing.
      if (number.kind == NumberKind::kRatio && value == 0) continue;
      add_scalar(summary, number.tag, value);
    }
    before_ = report;
    write(event);
  }

  void on_observation(const trainer::Observation& observation) override {
    Event event = event_of(observation.step);
    Summary& summary = *event.mutable_summary();
    add_scalar(summary, "accuracy/test", observation.test_accuracy);
    double squares = 0;
    for (const ObservedKind& kind : by_kind(observation)) {
      squares += kind.residual_norm * kind.residual_norm;
      for (const KindNumber& number : kind_numbers()) {
        add_scalar(summary, fmt::format("{}/{}", number.tag, kind.kind), kind.*number.member);
      }
    }
    add_scalar(summary, "residual_norm/all", std::sqrt(squares));
    for (const trainer::TensorObservation& tensor : observation.tensors) {
      const trainer::Histograms& histograms = tensor.histograms;
      add_histogram(summary, "gradient/" + tensor.name, histograms.limit, histograms.gradient);
      add_histogram(summary, "decoded/" + tensor.name, histograms.limit, histograms.decoded);
    }
    write(event);
  }

 private:
  static Event event_of(std::uint64_t step) {
    Event event;
    event.set_wall_time(seconds_since_1970());
    event.set_step(static_cast<std::int64_t>(step));
    return event;
  }

  void write(const Event& event) {
    if (failed_) return;
    try {
      file_.add(event.SerializeAsString());
    } catch (const Error& error) {
      failed_ = true;
      complain(fmt::format("{}; the run continues without TensorBoard's file\n", error.what()));
    }
  }

  EventFile file_;
  trainer::StepReport before_;
  bool failed_ = false;
};

}  // namespace

std::unique_ptr<StepListener> make_tensorboard_writer(const std::string& directory,
                                                      const nlohmann::json& config,
                                                      std::uint64_t resumed_after) {
  return std::make_unique<TensorboardWriter>(directory, config, resumed_after);
}

}  // namespace tersewire::apps
