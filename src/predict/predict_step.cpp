#include <algorithm>
#include <cmath>
#include <map>

#include "errors.h"
#include "exchange_flows.h"
#include "exchange_table.h"
#include "measured_costs.h"
#include "place_job.h"
#include "tersewire/predict.h"

namespace tersewire {
namespace {

// What computation is spread over: the rest costs next to nothing.
bool is_weight(const TensorInfo& tensor) { return tensor.shape.size() > 1; }

// Of a payload, beside its values: a scale, or a length.
constexpr double kPayloadHeadBytes = 4;
// Of a frame of a tensor's first part.
constexpr double kShortFrameBytes = 12;

void check(double value, bool good, const char* what) {
  if (std::isfinite(value) && good) return;
  fail(ErrorCode::kInvalidArgument, "a prediction's {} cannot be {}", what, value);
}

void check_cost(const std::optional<CodecCost>& cost) {
  if (!cost) return;
  check(cost->bits, cost->bits >= 0, "bits of a value");
  check(cost->encode_seconds, cost->encode_seconds >= 0, "seconds to encode a value");
  check(cost->decode_seconds, cost->decode_seconds >= 0, "seconds to decode a value");
}

void check_conditions(const StepConditions& conditions) {
  const LinkSpeed& link = conditions.link;
  check(link.bits_per_second, link.bits_per_second > 0, "link rate");
  check(link.latency_seconds, link.latency_seconds >= 0, "latency");
  check(conditions.compute_seconds, conditions.compute_seconds >= 0, "computation");
  check(conditions.gpus_per_node, conditions.gpus_per_node >= 1, "number of GPUs in a machine");
  if (conditions.gpus_per_node > 1) {
    check(conditions.intra_bits_per_second, conditions.intra_bits_per_second > 0,
          "rate within a machine");
  }
  check_cost(conditions.push);
  check_cost(conditions.pull);
}

// What each part's codec costs in one direction: the job's `own` what was said, others, which a
// policy has chosen, what was measured.
class PartCosts {
 public:
  PartCosts(const Codec& own, const CodecCost& cost) : own_(own.text()), cost_(cost) {}

  [[nodiscard]] const CodecCost& of(const Codec& codec) {
    const auto [found, is_new] = costs_.try_emplace(&codec);
    if (is_new) found->second = codec.text() == own_ ? cost_ : measured_codec(codec).cost;
    return found->second;
  }

 private:
  std::string own_;
  CodecCost cost_;
  std::map<const Codec*, CodecCost> costs_;  // parts with the same text share a codec
};

class Predictor {
 public:
  Predictor(const Job& job, const StepConditions& conditions, bool codecs_cost)
      : placement_(place_job(job)),
        conditions_(conditions),
        slice_(conditions.compute_seconds / 3 /
               static_cast<double>(
                   std::max<std::ptrdiff_t>(std::ranges::count_if(job.tensors, is_weight), 1))),
        codecs_cost_(codecs_cost),
        loads_(placement_->buckets.size()),
        pull_decode_(placement_->parts.size()) {
    fill_loads();
    backward();
    const ExchangeFlows made = make_flows(*placement_, conditions.link, loads_);
    measure_links(made);
    const bool waits = !placement_->options.average_asynchronous;
    arrivals_ = waits
                    ? ends_of(made.flows, made.servers, conditions.link.is_shared ? made.links : 0)
                    : std::vector<double>(placement_->buckets.size(), 0.0);
    forward();
  }

  // From the beginning of a backward pass to the next, of which the accelerator is the clock.
  [[nodiscard]] double seconds() const { return std::max(accelerator_, thread_); }
  [[nodiscard]] double busiest_link_seconds() const { return busiest_link_seconds_; }
  [[nodiscard]] double busiest_network_seconds() const { return busiest_network_seconds_; }
  // A worker's.
  [[nodiscard]] double uplink_seconds() const { return uplink_seconds_; }
  [[nodiscard]] double downlink_seconds() const { return downlink_seconds_; }
  [[nodiscard]] const Placement& placement() const { return *placement_; }

 private:
  void fill_loads() {
    const Job& job = placement_->job;
    Job plain = job;
    plain.policy.clear();
    PartCosts push(*choose_push_codecs(plain).front(),
                   conditions_.push.value_or(measured_codec(job.push_codec).cost));
    PartCosts pull(*choose_pull_codecs(plain).front(),
                   conditions_.pull.value_or(measured_codec(job.pull_codec).cost));
    const bool servers = choose_exchange(job).exchange.count_servers != nullptr;
    encode_.resize(placement_->parts.size());
    for (std::size_t part = 0; part < placement_->parts.size(); ++part) {
      BucketLoad& load = loads_[placement_->bucket_of[part]];
      const Codec& push_codec = *placement_->push_codecs[part];
      const Codec& pull_codec = *placement_->pull_codecs[part];
      encode_[part] = add(load.push, part, push.of(push_codec));
      CodecCost pull_cost = pull.of(pull_codec);
      if (placement_->options.scaler_sharing && push_codec.traits().shares_scalers) {
        pull_cost.bits = std::log2(2.0 * job.workers + 1);  // sums, as levels
      }
      add(load.pull, part, pull_cost);
      pull_decode_[part] =
          decode_seconds(part, (servers ? pull : push).of(servers ? pull_codec : push_codec));
      if (!placement_->owners.empty()) load.owner = placement_->owners[part] - job.workers;
      if (conditions_.gpus_per_node > 1) {
        load.machine_seconds += std::log2(conditions_.gpus_per_node) * 32 * elems(part) /
                                conditions_.intra_bits_per_second;
      }
    }
  }

  [[nodiscard]] double elems(std::size_t part) const {
    return static_cast<double>(placement_->parts[part].elems);
  }
  [[nodiscard]] double decode_seconds(std::size_t part, const CodecCost& cost) const {
    return codecs_cost_ ? cost.decode_seconds * elems(part) : 0;
  }

  // Returns the seconds that encoding takes.
  double add(Leg& leg, std::size_t part, const CodecCost& cost) const {
    const bool first = placement_->parts[part].begin == 0;
    const double encode = codecs_cost_ ? cost.encode_seconds * elems(part) : 0;
    leg.payload_bytes += cost.bits * elems(part) / 8 + kPayloadHeadBytes;
    leg.frame_bytes += first ? kShortFrameBytes : kMaxFrameOverheadBytes;
    leg.encode_seconds += encode;
    leg.decode_seconds += decode_seconds(part, cost);
    return encode;
  }

  void backward() {
    const bool shares = placement_->options.scaler_sharing;
    const bool encodes = encodes_in_push(*placement_) && !shares;
    const auto& tensors = placement_->job.tensors;
    for (std::size_t tensor = tensors.size(); tensor-- > 0;) {
      if (is_weight(tensors[tensor])) accelerator_ += 2 * slice_;
      thread_ = std::max(thread_, accelerator_);
      const auto& first_part = placement_->first_part;
      for (std::size_t part = first_part[tensor + 1]; part-- > first_part[tensor];) {
        if (encodes) thread_ += encode_[part];
        loads_[placement_->bucket_of[part]].ready_seconds = thread_;
      }
    }
    if (!shares) return;
    // Nothing is encoded before all workers have agreed.
    thread_ += 2 * conditions_.link.latency_seconds;
    for (std::size_t part = encode_.size(); part-- > 0;) {
      thread_ += encode_[part];
      loads_[placement_->bucket_of[part]].ready_seconds = thread_;
    }
  }

  void forward() {
    const auto& tensors = placement_->job.tensors;
    const double decodes = decoded_in_pull(*placement_);
    for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) {
      const auto& first_part = placement_->first_part;
      for (std::size_t part = first_part[tensor]; part < first_part[tensor + 1]; ++part) {
        thread_ = std::max(thread_, arrivals_[placement_->bucket_of[part]]);
        thread_ += decodes * pull_decode_[part];
      }
      if (is_weight(tensors[tensor])) accelerator_ = std::max(accelerator_, thread_) + slice_;
    }
  }

  void measure_links(const ExchangeFlows& made) {
    std::vector<double> busy(made.servers, 0.0);
    for (const Flow& flow : made.flows) {
      for (const Stage& stage : flow.stages) {
        for (const Use& use : stage.uses) busy[use.server] += use.seconds;
      }
    }
    const auto links = busy.begin() + static_cast<std::ptrdiff_t>(made.links);
    busiest_link_seconds_ = *std::max_element(busy.begin(), links);
    busiest_network_seconds_ = *std::max_element(busy.begin(), links - 1);
    uplink_seconds_ = busy[0];
    downlink_seconds_ = busy[1];
  }

  std::shared_ptr<const Placement> placement_;
  const StepConditions& conditions_;
  double slice_;  // of a weight's forward pass; the backward pass takes two
  bool codecs_cost_;
  std::vector<BucketLoad> loads_;
  std::vector<double> encode_;       // by part
  std::vector<double> pull_decode_;  // by part, of one contribution
  std::vector<double> arrivals_;     // by bucket
  double accelerator_ = 0;           // when it is free
  double thread_ = 0;                // when the application's thread is
  double busiest_link_seconds_ = 0;
  double busiest_network_seconds_ = 0;
  double uplink_seconds_ = 0;
  double downlink_seconds_ = 0;
};

}  // namespace

StepPrediction predict_step(const Job& job, const StepConditions& conditions) {
  check_conditions(conditions);
  const Predictor whole(job, conditions, true);
  const Predictor without_codecs(job, conditions, false);
  const double compute = conditions.compute_seconds;
  const double link = whole.busiest_link_seconds();
  const ExchangeOptions& options = whole.placement().options;
  const auto rounds = static_cast<double>(job.steps_a_round() * options.average_every);
  StepPrediction step{.compute_seconds = compute};
  step.codec_seconds = std::max(whole.seconds() - without_codecs.seconds(), 0.0) / rounds;
  // Whoever waits for nobody is still no faster than its link.
  const double least = options.average_asynchronous ? rounds * compute : compute;
  step.wire_seconds = std::max(link - least, 0.0) / rounds;
  step.waiting_seconds = std::max(without_codecs.seconds() - std::max(link, compute), 0.0) / rounds;
  step.step_seconds =
      step.compute_seconds + step.codec_seconds + step.wire_seconds + step.waiting_seconds;
  const double bytes_a_second = conditions.link.bits_per_second / 8 / rounds;
  step.sent_bytes = whole.uplink_seconds() * bytes_a_second;
  step.received_bytes = whole.downlink_seconds() * bytes_a_second;
  step.busiest_bytes = whole.busiest_network_seconds() * bytes_a_second;
  return step;
}

double terngrad_step_seconds(Scaling scaling, int gpus_per_node, int nodes, double gradient_bytes,
                             double compute_seconds, double intra_bits_per_second,
                             const LinkSpeed& link) {
  check(gpus_per_node, gpus_per_node >= 1, "number of GPUs in a machine");
  check(nodes, nodes >= 1, "number of machines");
  check(gradient_bytes, gradient_bytes >= 0, "bytes of gradients");
  check(compute_seconds, compute_seconds >= 0, "computation");
  check(intra_bits_per_second, intra_bits_per_second >= 0, "rate within a machine");
  check(link.bits_per_second, link.bits_per_second > 0, "link rate");
  check(link.latency_seconds, link.latency_seconds >= 0, "latency");
  const double gpus = static_cast<double>(gpus_per_node) * nodes;
  const double within = intra_bits_per_second > 0 ? 8 * gradient_bytes / intra_bits_per_second : 0;
  const double between = link.latency_seconds + 8 * gradient_bytes / link.bits_per_second;
  // Of what was profiled, the copy to the host is not shared.
  const double compute =
      scaling == Scaling::kStrong ? (compute_seconds - within) / gpus + within : compute_seconds;
  return compute + within * std::log2(gpus_per_node) + between * std::log2(nodes);
}

}  // namespace tersewire
