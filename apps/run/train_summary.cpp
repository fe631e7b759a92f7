#include "apps/run/train_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "apps/cli/job_options.h"
#include "apps/cli/quantities.h"
#include "apps/run/numbers/traffic_ratios.h"
#include "apps/run/run_json.h"
#include "tersewire/counted.h"
#include "trainer/loop/later_codec.h"

namespace tersewire::apps {
namespace {

constexpr double kBitsPerFloat = 32;
constexpr double kBytesPerFloat = 4;

}  // namespace

TrainSummary::TrainSummary(const trainer::TrainConfig& config, const trainer::TrainResult& result,
                           bool interrupted)
    : config_(config), result_(result), interrupted_(interrupted) {}

SummaryNumbers TrainSummary::numbers() const {
  const Counters& counters = result_.worker_counters;
  return {
      .test_accuracy = result_.test_accuracy,
      .test_loss = result_.test_loss,
      .compression_ratio = compression_ratio(counters),
      .push_bits_per_value = bits_per_value(counters.pushed_bytes, counters.pushed_values),
      .pull_bits_per_value = bits_per_value(counters.pulled_bytes, counters.pulled_values),
      .step_seconds = ratio(result_.seconds, measured_steps()),
      .compute_seconds = result_.compute_seconds,
      .codec_seconds = result_.codec_seconds,
      .wait_seconds = ratio(counters.wait_seconds, measured_steps() * config_.job.workers),
      .busiest_node_bytes = ratio(static_cast<double>(result_.busiest_node_bytes), own_steps())};
}

double TrainSummary::modelled_fp32_step(double bits_per_second) const {
  const double values = ratio(static_cast<double>(result_.busiest_node_values), own_steps());
  return result_.compute_seconds + kBitsPerFloat * values / bits_per_second;
}

double TrainSummary::waited() const {
  const Counters& counters = result_.worker_counters;
  return std::clamp(ratio(counters.wait_seconds, counters.exchange_seconds), 0.0, 1.0);
}

std::string TrainSummary::codec_text() const {
  const Job& job = config_.job;
  std::string text = job.push_codec;
  if (result_.servers_encode && job.push_codec != job.pull_codec) text += " / " + job.pull_codec;
  if (!config_.later_codec.empty()) {
    text += ", then " + trainer::later_codec(config_.later_codec, config_.steps).codec;
  }
  return text;
}

nlohmann::json TrainSummary::json() const {
  const Counters& counters = result_.worker_counters;
  const SummaryNumbers numbers = this->numbers();
  nlohmann::json modelled;
  for (const char* link : kUsualRates) {
    const double rate = rate_argument(link);
    modelled[rate_name(rate)] = {{"step_seconds", modelled_step_seconds(numbers, rate)},
                                 {"fp32_step_seconds", modelled_fp32_step(rate)}};
  }
  nlohmann::json pull_codec;
  if (result_.servers_encode) pull_codec = config_.job.pull_codec;
  nlohmann::json json = {
      {"resumed_after", result_.resumed_after},
      {"validation_loss", result_.test_loss},  // the name that those who train on text know
      {"measured_model", result_.workers_own_model ? "worker 0's replica" : "the servers'"},
      {"measured_values", config_.ema > 0 ? "their moving average" : "the last"},
      {"final_loss", result_.final_loss},
      {"diverged_step",
       result_.diverged_step ? nlohmann::json(*result_.diverged_step) : nlohmann::json()},
      {"steps", result_.steps},
      {"interrupted", interrupted_},
      {"rate_gain", result_.rate_gain},
      {"exchange", config_.job.exchange},
      {"workers", config_.job.workers},
      {"servers", servers_json(config_, result_.servers)},
      {"values", result_.values},
      {"push_codec", config_.job.push_codec},
      {"pull_codec", pull_codec},
      {"push_bytes", counters.pushed_bytes},
      {"pull_bytes", counters.pulled_bytes},
      {"waited", waited()},
      {"modelled", modelled},
      {"not_finite_tensors", counters.not_finite_tensors},
      {"unused_pushes", counters.unused_pushes},
      {"parameters_checksum", result_.parameters_checksum}};
  for (const auto& [key, member] : kSummaryNumbers) json[key] = numbers.*member;
  return json;
}

std::string TrainSummary::table() const {
  const std::string resumed = result_.resumed_after > 0
                                  ? fmt::format(" (resumed after step {})", result_.resumed_after)
                                  : "";
  std::string text = fmt::format(
      "\n{} of {}, {}{}{}: test accuracy {:.2f} %, test loss {}, final loss {}, {:.1f} s\n\n",
      counted(result_.steps, "step"), counted(config_.job.workers, "worker"), config_.job.exchange,
      resumed, interrupted_ ? " (interrupted)" : "", 100 * result_.test_accuracy,
      decimals_text(result_.test_loss, 4), decimals_text(result_.final_loss, 4), result_.seconds);
  if (result_.rate_gain != 1) {
    text +=
        fmt::format("Learning rates were multiplied by {:g} (--rate-gain).\n\n", result_.rate_gain);
  }
  if (!result_.diverged_step) return text + traffic_table();
  return text + fmt::format(
                    "Diverged at step {}: the loss has grown to ten times its best or more{}. The "
                    "savings are meaningless.\nUse a lower --lr, a longer --warm-up or a milder "
                    "codec.\n",
                    *result_.diverged_step,
                    std::isfinite(result_.final_loss) ? "" : ", and is not finite at the end");
}

std::string TrainSummary::traffic_table() const {
  const Counters& counters = result_.worker_counters;
  const auto traffic = [](const char* name, std::uint64_t bytes, std::uint64_t values) {
    const double fp32_bytes = kBytesPerFloat * static_cast<double>(values);
    return fmt::format("{:<24}{:>14}{:>14}{:>9.1f}x  {:.3f} bits per value\n", name,
                       bytes_text(static_cast<double>(bytes)), bytes_text(fp32_bytes),
                       ratio(fp32_bytes, static_cast<double>(bytes)),
                       bits_per_value(bytes, values));
  };
  const SummaryNumbers numbers = this->numbers();
  std::string text;
  text += fmt::format("{:<24}{:>14}{:>14}{:>10}\n", "", codec_text(), "fp32", "saved");
  text += traffic("pushed, all workers", counters.pushed_bytes, counters.pushed_values);
  text += traffic("pulled, all workers", counters.pulled_bytes, counters.pulled_values);
  for (const char* link : kUsualRates) {
    const double rate = rate_argument(link);
    const double ours = modelled_step_seconds(numbers, rate);
    const double fp32 = modelled_fp32_step(rate);
    text += fmt::format("{:<24}{:>14}{:>14}{:>9.1f}x  modelled\n", "step at " + rate_name(rate),
                        seconds_text(ours), seconds_text(fp32), ratio(fp32, ours));
  }
  text += fmt::format(
      "\nModelled: the busiest node's bytes through one link of that rate, after {} of\n"
      "measured computation a step (and {} for the codec); nothing overlapped.\n",
      seconds_text(result_.compute_seconds), seconds_text(result_.codec_seconds));
  text += fmt::format("Workers waited for {:.0f} % of the time that exchanges took here.\n",
                      100 * waited());
  if (result_.workers_own_model) {
    text += "The test was of worker 0's replica, which equals all others.\n";
  }
  if (config_.ema > 0) {
    text += fmt::format("The test was of the moving average of the parameters (decay {}).\n",
                        config_.ema);
  }
  if (counters.not_finite_tensors > 0) {
    text += fmt::format("{} held a NaN or an infinity and {} sent uncompressed.\n",
                        counted(counters.not_finite_tensors, "tensor"),
                        counters.not_finite_tensors == 1 ? "was" : "were");
  }
  return text;
}

}  // namespace tersewire::apps
