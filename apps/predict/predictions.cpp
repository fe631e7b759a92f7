#include "apps/predict/predictions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "apps/cli/failures.h"
#include "apps/cli/job_options.h"
#include "apps/cli/quantities.h"
#include "tersewire/codec.h"
#include "tersewire/counted.h"
#include "tersewire/policy.h"
#include "tersewire/setting_text.h"
#include "tersewire/transports.h"
#include "trainer/settings/train_config.h"

namespace tersewire::apps {
namespace {

// What a model cannot be trusted to tell apart.
constexpr double kWorthIt = 1.05;
constexpr double kLeastRate = 1e4;
constexpr double kMostRate = 1e12;

double latency_argument(const std::string& text, const std::string& link) {
  constexpr double kMostSeconds = 1e6;
  const auto latency = parsed_time(text);
  if (!latency || *latency >= kMostSeconds) {
    throw WrongUsage(
        fmt::format("'{}' of link '{}' is not a latency; write 20ms, 300us or 1s", text, link));
  }
  return *latency;
}

struct Way {
  std::string exchange;
  std::optional<int> servers;
};

std::vector<Way> ways_of(const PredictionPlan& plan) {
  std::vector<Way> ways;
  for (const std::string& exchange : plan.exchanges) ways.push_back({exchange, plan.job.servers});
  if (!ways.empty()) return ways;
  for (const std::string_view exchange : exchange_names()) {
    ways.push_back({std::string(exchange), plan.job.servers});
    if (!plan.job.servers) ways.push_back({std::string(exchange), Job::kColocated});
  }
  return ways;
}

std::vector<std::string> codecs_of(const PredictionPlan& plan) {
  if (!plan.codecs.empty()) return plan.codecs;
  std::vector<std::string> codecs;
  for (const MeasuredCodec& measured : measured_codecs()) codecs.emplace_back(measured.codec);
  return codecs;
}

std::optional<CodecCost> cost_of(const std::map<std::string, CodecCost>& costs,
                                 const std::string& codec) {
  auto found = costs.find(codec);
  // The cost of other parameters, where these have none.
  if (found == costs.end()) found = costs.find(std::string(measured_codec(codec).codec));
  return found == costs.end() ? std::nullopt : std::optional(found->second);
}

Job job_of(const PredictionPlan& plan, const Way& way, const std::string& codec, int workers) {
  Job job = plan.job;
  job.workers = workers / plan.gpus_per_node;
  job.servers = way.servers;
  job.exchange = way.exchange;
  job.push_codec = codec;
  job.pull_codec = plan.pull_codec && codec != "fp32" ? *plan.pull_codec : codec;
  return job;
}

StepPrediction predict_terngrad(const PredictionPlan& plan, const Job& job, const LinkSpeed& link) {
  double values = 0;
  for (const TensorInfo& tensor : plan.job.tensors) values += static_cast<double>(tensor.elems());
  const double bits =
      cost_of(plan.push_costs, job.push_codec).value_or(measured_codec(job.push_codec).cost).bits;
  const double bytes = values * bits / 8;
  StepPrediction step;
  step.compute_seconds = plan.scaling == Scaling::kStrong
                             ? plan.compute_seconds / (job.workers * plan.gpus_per_node)
                             : plan.compute_seconds;
  step.step_seconds = terngrad_step_seconds(plan.scaling, plan.gpus_per_node, job.workers, bytes,
                                            plan.compute_seconds, plan.intra_bits_per_second, link);
  step.wire_seconds = step.step_seconds - step.compute_seconds;
  step.sent_bytes = step.received_bytes = step.busiest_bytes = bytes * std::log2(job.workers);
  return step;
}

StepPrediction predict_one(const PredictionPlan& plan, const Job& job, const LinkSpeed& link) {
  if (job.exchange == kTernGradModel) return predict_terngrad(plan, job, link);
  const double shares = plan.scaling == Scaling::kStrong
                            ? static_cast<double>(job.workers) * plan.gpus_per_node
                            : 1.0;
  return predict_step(job, {.link = link,
                            .compute_seconds = plan.compute_seconds / shares,
                            .push = cost_of(plan.push_costs, job.push_codec),
                            .pull = cost_of(plan.pull_costs, job.pull_codec),
                            .gpus_per_node = plan.gpus_per_node,
                            .intra_bits_per_second = plan.intra_bits_per_second});
}

std::string placement_text(const Job& job) {
  if (job.exchange == kTernGradModel) return "";
  if (job.servers == Job::kColocated) return trainer::kColocatedText;
  const int servers = server_nodes(job);
  return servers > 0 ? std::to_string(servers) : "";
}

// Those of one way; `refusal` is why the last of the others were left out.
void add_designs(const PredictionPlan& plan, const Way& way, const std::vector<std::string>& codecs,
                 int workers, const NamedLink& link, std::vector<Prediction>& predictions,
                 std::string& refusal) {
  for (const std::string& codec : codecs) {
    try {
      const Job job = job_of(plan, way, codec, workers);
      predictions.push_back({.exchange = way.exchange,
                             .codec = codec,
                             .pull_codec = job.pull_codec,
                             .placement = placement_text(job),
                             .workers = workers,
                             .link = link,
                             .step = predict_one(plan, job, link.speed)});
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kInvalidArgument) throw;
      refusal = error.what();
    }
  }
}

// The fastest with fp32 alone: of an exchange whose parameters do not fit it, without them.
Prediction fastest_fp32(PredictionPlan plan, int workers, const NamedLink& link) {
  plan.job.policy.clear();
  std::vector<Prediction> predictions;
  std::string refusal;
  for (Way way : ways_of(plan)) {
    const std::size_t before = predictions.size();
    add_designs(plan, way, {"fp32"}, workers, link, predictions, refusal);
    if (predictions.size() > before) continue;
    way.exchange = SettingText(way.exchange, "exchange").name();
    add_designs(plan, way, {"fp32"}, workers, link, predictions, refusal);
  }
  if (predictions.empty()) throw WrongUsage(refusal);
  return *std::ranges::min_element(predictions, {},
                                   [](const Prediction& each) { return each.step.step_seconds; });
}

bool is_trusted(const Prediction& each) {
  return measured_codec(each.codec).points_lost <= kMostPointsLost;
}

// Whatever the policy has for a tensor counts, too.
bool compresses_nothing(const PredictionPlan& plan) {
  return std::ranges::all_of(plan.codecs, [&](const std::string& codec) {
    const auto chosen = choose_codecs(plan.job.policy, codec, plan.job.tensors);
    return std::ranges::all_of(chosen,
                               [](const auto& each) { return each->id() == CodecId::kFp32; });
  });
}

double most_gained_at(const PredictionPlan& plan, int workers, NamedLink link, double rate) {
  link.speed.bits_per_second = rate;
  return most_gained(predict_designs(plan, workers, link), plan.codecs_are_named());
}

// By halving, to a fiftieth. Nothing where compression pays at every rate, or at none.
std::optional<double> rate_above_which_nothing_is_worth_it(const PredictionPlan& plan, int workers,
                                                           const NamedLink& link) {
  double low = kLeastRate;
  double high = kMostRate;
  if (most_gained_at(plan, workers, link, low) < kWorthIt) return std::nullopt;
  if (most_gained_at(plan, workers, link, high) >= kWorthIt) return std::nullopt;
  while (high > 1.02 * low) {
    const double middle = std::sqrt(low * high);
    (most_gained_at(plan, workers, link, middle) < kWorthIt ? high : low) = middle;
  }
  return high;
}

}  // namespace

NamedLink link_argument(const std::string& text) {
  const std::size_t comma = text.find(',');
  NamedLink link{.text = text, .speed = {}};
  link.speed.bits_per_second = rate_argument(text.substr(0, comma));
  if (comma != std::string::npos) {
    link.speed.latency_seconds = latency_argument(text.substr(comma + 1), text);
  }
  return link;
}

std::string Prediction::design() const { return placed_exchange() + "/" + codecs(); }

std::string Prediction::placed_exchange() const {
  return exchange + (placement == trainer::kColocatedText ? ", colocated" : "");
}

std::string Prediction::codecs() const {
  return pull_codec == codec ? codec : fmt::format("{}, pull {}", codec, pull_codec);
}

std::vector<Prediction> predict_designs(const PredictionPlan& plan, int workers,
                                        const NamedLink& link) {
  if (workers % plan.gpus_per_node != 0) {
    throw WrongUsage(fmt::format("{} cannot fill machines of {} GPUs; use a multiple",
                                 counted(workers, "worker"), plan.gpus_per_node));
  }
  std::vector<Prediction> predictions;
  std::string refusal;
  const std::vector<std::string> codecs = codecs_of(plan);
  for (const Way& way : ways_of(plan)) {
    add_designs(plan, way, codecs, workers, link, predictions, refusal);
  }
  if (predictions.empty()) throw WrongUsage(refusal);
  const double baseline = fastest_fp32(plan, workers, link).step.step_seconds;
  for (Prediction& each : predictions) each.speedup = baseline / each.step.step_seconds;
  return predictions;
}

double most_gained(const std::vector<Prediction>& predictions, bool all) {
  double speedup = 0;
  for (const Prediction& each : predictions) {
    if (all || is_trusted(each)) speedup = std::max(speedup, each.speedup);
  }
  return speedup;
}

const Prediction& best_of(const std::vector<Prediction>& predictions, bool all) {
  const double most = most_gained(predictions, all);
  const double enough = std::max(most / kWorthIt, std::min(most, kWorthIt));
  const auto rank = [&](const Prediction& each) {
    const bool counts = (all || is_trusted(each)) && each.speedup >= enough;
    const double bits = counts ? measured_codec(each.codec).cost.bits : -1;
    return std::pair(bits, each.speedup);
  };
  return *std::ranges::max_element(predictions, {}, rank);
}

std::string verdict(const PredictionPlan& plan, const std::vector<Prediction>& predictions) {
  const bool all = plan.codecs_are_named();
  if (!all && std::ranges::none_of(predictions, is_trusted)) {
    return "None of these codecs trained nearly as fp32 does (points lost); name one with --codec "
           "to have it compared.";
  }
  const char* const none = all ? "no design" : "no design that trains nearly as well";
  const Prediction& best = best_of(predictions, all);
  const Prediction fp32 = fastest_fp32(plan, best.workers, best.link);
  if (all && compresses_nothing(plan)) {
    return fmt::format("{} takes {} a step; name other codecs with --codec to compare.",
                       fp32.design(), seconds_text(fp32.step.step_seconds));
  }
  std::string text;
  const bool worth_it = most_gained(predictions, all) >= kWorthIt;
  if (!worth_it) {
    text = fmt::format(
        "Compression does not pay at {}: {} takes {} a step, and {} is more than 5 % faster.",
        best.link.text, fp32.design(), seconds_text(fp32.step.step_seconds), none);
  } else {
    text = fmt::format("Take {}: {} a step instead of {} with {}, {} times as fast.", best.design(),
                       seconds_text(best.step.step_seconds), seconds_text(fp32.step.step_seconds),
                       fp32.design(), digits_text(best.speedup, 3));
  }
  const auto rate = rate_above_which_nothing_is_worth_it(plan, best.workers, best.link);
  if (rate) {
    return text +
           fmt::format(" Above {} compression does not pay: {} is more than 5 % faster than fp32.",
                       rate_text(*rate), none);
  }
  return text +
         (worth_it ? " That is so at every rate up to 1 Tbit/s." : " That is so at every rate.");
}

}  // namespace tersewire::apps
