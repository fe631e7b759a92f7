#include "apps/run/numbers/step_numbers.h"

#include <array>

#include "apps/run/numbers/traffic_ratios.h"
#include "trainer/members/totals.h"

namespace tersewire::apps {
namespace {

using trainer::StepReport;
using enum NumberKind;

constexpr const char* kPush = "push";
constexpr const char* kPull = "pull";
constexpr const char* kTraffic = "Bytes of whole messages that worker 0 pushed and pulled.";
constexpr const char* kValues = "Values encoded in those bytes.";
constexpr const char* kBits = "Bits per value, on average.";

template <auto Member>
double counter(const StepReport& report) {
  return static_cast<double>(report.counters.*Member);
}

constexpr std::array kNumbers{
    StepNumber{"step", nullptr, "step", nullptr, "Last step that worker 0 ended.", kOfStep, true,
               [](const StepReport& r) { return static_cast<double>(r.step); }},
    StepNumber{"loss", "loss", "loss", nullptr, "Loss of the last batch.", kOfStep, false,
               [](const StepReport& r) { return r.loss; }},
    StepNumber{"accuracy", "accuracy/batch", "batch_accuracy_ratio", nullptr,
               "Accuracy on the last batch, 0 to 1.", kOfStep, false,
               [](const StepReport& r) { return r.accuracy; }},
    StepNumber{nullptr, "seconds/step", "step_seconds", nullptr, "Seconds that the last step took.",
               kOfStep, false, [](const StepReport& r) { return r.seconds; }},
    StepNumber{"seconds", nullptr, "training_seconds_total", nullptr,
               "Seconds since training began.", kTotal, false,
               [](const StepReport& r) { return r.seconds; }},
    StepNumber{"wait_seconds", "seconds/wait", "wait_seconds_total", nullptr,
               "Seconds that worker 0 waited for data.", kTotal, false,
               counter<&Counters::wait_seconds>},
    StepNumber{
        "codec_seconds", "seconds/codec", "codec_seconds_total", nullptr,
        "Processor seconds that worker 0 spent on encoding and decoding.", kTotal, false,
        [](const StepReport& r) { return r.counters.encode_seconds + r.counters.decode_seconds; }},
    StepNumber{"push_bytes", "bytes/push", "traffic_bytes_total", kPush, kTraffic, kTotal, true,
               counter<&Counters::pushed_bytes>},
    StepNumber{"pull_bytes", "bytes/pull", "traffic_bytes_total", kPull, kTraffic, kTotal, true,
               counter<&Counters::pulled_bytes>},
    StepNumber{"push_values", nullptr, "values_total", kPush, kValues, kTotal, true,
               counter<&Counters::pushed_values>},
    StepNumber{"pull_values", nullptr, "values_total", kPull, kValues, kTotal, true,
               counter<&Counters::pulled_values>},
    StepNumber{"push_bits_per_value", "bits_per_value/push", "bits_per_value", kPush, kBits, kRatio,
               false,
               [](const StepReport& r) {
                 return bits_per_value(r.counters.pushed_bytes, r.counters.pushed_values);
               }},
    StepNumber{"pull_bits_per_value", "bits_per_value/pull", "bits_per_value", kPull, kBits, kRatio,
               false,
               [](const StepReport& r) {
                 return bits_per_value(r.counters.pulled_bytes, r.counters.pulled_values);
               }},
    StepNumber{nullptr, nullptr, "compression_ratio", nullptr,
               "How many times smaller the traffic was than 32 bits per value.", kRatio, false,
               [](const StepReport& r) { return compression_ratio(r.counters); }},
    StepNumber{"not_finite_tensors", "not_finite_tensors", "not_finite_tensors_total", nullptr,
               "Tensors that were sent uncompressed for a NaN or an infinity.", kTotal, true,
               counter<&Counters::not_finite_tensors>},
    StepNumber{nullptr, nullptr, "unused_pushes_total", nullptr,
               "Pushes that came too late and went back to the residual.", kTotal, true,
               counter<&Counters::unused_pushes>}};

constexpr std::array kKindNumbers{
    KindNumber{"residual_norm", "residual_norm",
               "Norm of worker 0's residuals in the last observed step, by kind of tensor.",
               &ObservedKind::residual_norm},
    KindNumber{"relative_error", "relative_error_ratio",
               "Mean relative error after decoding these tensors.", &ObservedKind::relative_error},
    KindNumber{"observed_bits_per_value", "observed_bits_per_value",
               "Bits per value of these tensors.", &ObservedKind::bits_per_value}};

}  // namespace

std::span<const StepNumber> step_numbers() { return kNumbers; }
std::span<const KindNumber> kind_numbers() { return kKindNumbers; }

StepReport between(const StepReport& before, const StepReport& now) {
  StepReport report = now;
  report.seconds -= before.seconds;
  trainer::subtract(report.counters, before.counters);
  return report;
}

}  // namespace tersewire::apps
