#include "weight_average.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "gathered.h"

namespace tersewire {
namespace {

// Weights for an average over all workers, and for one of two.
constexpr MessageKind kForAll = MessageKind::kPush;
constexpr MessageKind kForPartner = MessageKind::kPull;

// Another worker's weights, which have not been averaged with ours yet.
struct PartnerWeights {
  int from;
  SharedBytes bytes;  // what `frame` points into
  Frame frame;
};

struct AveragedPart {
  std::unique_ptr<Encoder> encoder;
  Gathered of_all;
  std::vector<PartnerWeights> of_partners;  // the latest of each, in the order of arrival
  Floats weights;                           // none before the first pull
};

class WeightAverageWorker final : public Worker {
 public:
  WeightAverageWorker(std::shared_ptr<const Placement> placed, Transport& transport, Update update,
                      ThreadPool* threads)
      : Worker(std::move(placed), transport, threads), update_(std::move(update)) {
    for (std::size_t i = 0; i < parts().size(); ++i) {
      parts_.push_back({encoder_for(placement(), placement().push_codecs, i, rank()),
                        Gathered(name(i), job().workers),
                        {},
                        {}});
    }
  }

 private:
  void keep(Received received) override;
  void see_initial(std::size_t part, std::span<const float> parameters) override;
  void take_gradient(std::size_t part, std::span<const float> gradient) override;
  void contribute(std::size_t part, std::uint64_t step, std::span<const float> weights) override;
  [[nodiscard]] bool change_is_here(std::size_t part) const override {
    return !averages_all(part, applied_step(part) + 1) || parts_[part].of_all.complete();
  }
  [[nodiscard]] bool needs(std::size_t part, int rank) const override {
    return !parts_[part].of_all.has(rank);
  }
  void apply_change(std::size_t part, std::span<float> parameters, Counters& counted) override;
  void say_done() override;
  [[nodiscard]] std::vector<ResidualRun> residual_runs() override { return residuals_of(parts_); }
  [[nodiscard]] bool replicas_agree_before(std::uint64_t step) const override {
    return step == 1 || (!asynchronous() && exchanges_after(step - 1));
  }
  // A run ends with one model.
  [[nodiscard]] std::uint64_t closing_changes(std::size_t part) const override {
    const std::uint64_t last = pushed_step(part);
    return last > 0 && !averages_all(part, last) ? 1 : 0;
  }

  [[nodiscard]] bool asynchronous() const { return placement().options.average_asynchronous; }
  [[nodiscard]] bool exchanges_after(std::uint64_t step) const {
    return step % placement().options.average_every == 0;
  }
  // Whether a change is an average over all workers: those of every so many steps, and one that
  // comes after the last step.
  [[nodiscard]] bool averages_all(std::size_t part, std::uint64_t change) const {
    return change > pushed_step(part) || (!asynchronous() && exchanges_after(change));
  }
  // Whom a worker sends to after a step: all others in turn, and so that each hears from one.
  [[nodiscard]] int partner_of(int worker, std::uint64_t step) const {
    const auto others = static_cast<std::uint64_t>(std::max(1, job().workers - 1));
    const std::uint64_t turn = step / placement().options.average_every % others;
    return (worker + 1 + static_cast<int>(turn)) % job().workers;
  }

  void observe(std::size_t part, std::span<const float> gradient);
  SharedBytes encoded_weights(MessageKind kind, std::size_t part, std::uint64_t step,
                              std::span<const float> weights);
  void send_to_partner(std::size_t part);
  void keep_partners(const Received& received, std::size_t part, const Frame& frame);
  void average_with_partners(std::size_t part);

  Update update_;
  std::vector<AveragedPart> parts_;
  std::uint64_t encoded_values_ = 0;  // for the partner, and not sent yet
};

void WeightAverageWorker::see_initial(std::size_t part, std::span<const float> parameters) {
  Floats& weights = parts_[part].weights;
  if (weights.empty()) weights.assign(parameters.begin(), parameters.end());
}

void WeightAverageWorker::take_gradient(std::size_t part, std::span<const float> gradient) {
  AveragedPart& state = parts_[part];
  if (state.weights.size() != gradient.size()) {
    fail(ErrorCode::kFailedPrecondition,
         "{} must be pulled before its first gradient is pushed: its initial values are needed",
         name(part));
  }
  apply_mean(update_, part, gradient, state.weights);
  observe(part, gradient);
  if (!exchanges_after(step())) return;
  if (asynchronous()) {
    send_to_partner(part);
  } else {
    submit(part, step(), state.weights);
  }
}

// A gradient that overflowed says nothing of the weights: the one before it stands.
void WeightAverageWorker::observe(std::size_t part, std::span<const float> gradient) {
  if (std::ranges::all_of(gradient, [](float value) { return std::isfinite(value); })) {
    parts_[part].encoder->observe_gradient(gradient);
  }
}

// The message in which they travel, once all that travels in it is there.
SharedBytes WeightAverageWorker::encoded_weights(MessageKind kind, std::size_t part,
                                                 std::uint64_t step,
                                                 std::span<const float> weights) {
  add_to_push(kind, *parts_[part].encoder, part, step, weights);
  return take_push(part, step);
}

// To all others.
void WeightAverageWorker::contribute(std::size_t part, std::uint64_t step,
                                     std::span<const float> weights) {
  counters_.pushed_values += weights.size() * static_cast<std::size_t>(job().workers - 1);
  const SharedBytes bytes = encoded_weights(kForAll, part, step, weights);
  if (!bytes) return;
  for (int other = 0; other < job().workers; ++other) {
    if (other != rank()) send(other, bytes);
  }
  // Its own part of the average is what the others decode.
  for (const Frame& frame : parse_message(*bytes, true).frames) {
    parts_[*placement().find(frame)].of_all.hold(rank(), {step, bytes, frame});
  }
}

void WeightAverageWorker::send_to_partner(std::size_t part) {
  const int partner = partner_of(rank(), step());
  if (partner == rank()) return;  // alone
  const Floats& weights = parts_[part].weights;
  encoded_values_ += weights.size();
  const SharedBytes bytes = encoded_weights(kForPartner, part, step(), weights);
  if (!bytes) return;
  const std::uint64_t values = std::exchange(encoded_values_, 0);
  // Of one that takes nothing now two models are on their way, and later ones can wait for its next
  // turn.
  if (waiting_for(partner) >= placement().longest_message) return;
  counters_.pushed_values += values;
  send(partner, bytes);
}

void WeightAverageWorker::say_done() {
  for (std::size_t part = 0; part < parts_.size(); ++part) {
    if (closing_changes(part) == 0) continue;
    wait_for_room();
    submit(part, pushed_step(part) + 1, parts_[part].weights);
  }
}

void WeightAverageWorker::keep(Received received) {
  const MessageHeader& header = received.message.header;
  if (header.kind != kForAll && header.kind != kForPartner) {
    fail(ErrorCode::kDataLoss,
         "message from rank {}: workers that average weights take weights only", received.from);
  }
  counters_.pulled_bytes += received.bytes->size();
  for (const Frame& frame : received.message.frames) {
    const std::size_t part = part_in(placement(), received.from, frame);
    check_length(received.from, name(part), frame, placement().most_pushed_bytes(part));
    AveragedPart& state = parts_[part];
    if (header.kind == kForAll) {
      state.of_all.hold(received.from, {header.step, received.bytes, frame});
    } else {
      counters_.pulled_values += state.encoder->elems();
      keep_partners(received, part, frame);
    }
  }
}

void WeightAverageWorker::keep_partners(const Received& received, std::size_t part,
                                        const Frame& frame) {
  const std::uint64_t step = received.message.header.step;
  if (!asynchronous() || !exchanges_after(step) || partner_of(received.from, step) != rank()) {
    fail(ErrorCode::kDataLoss, "weights from worker {}: {} of step {} are not for worker {} alone",
         received.from, name(part), step, rank());
  }
  auto& held = parts_[part].of_partners;
  std::erase_if(held, [&](const PartnerWeights& older) { return older.from == received.from; });
  held.push_back({received.from, received.bytes, frame});
}

void WeightAverageWorker::apply_change(std::size_t part, std::span<float> parameters,
                                       Counters& counted) {
  AveragedPart& state = parts_[part];
  const std::uint64_t change = applied_step(part) + 1;
  const Stopwatch watch(counted.decode_seconds, processor_seconds);
  if (averages_all(part, change)) {
    counted.pulled_values += parameters.size() * static_cast<std::size_t>(job().workers - 1);
    state.of_all.average(change, state.weights, pool());
  } else {
    average_with_partners(part);
  }
  std::ranges::copy(state.weights, parameters.begin());
}

void WeightAverageWorker::average_with_partners(std::size_t part) {
  AveragedPart& state = parts_[part];
  for (const PartnerWeights& partner : state.of_partners) {
    for (float& weight : state.weights) weight *= 0.5F;
    with_context(
        [&] { return fmt::format("weights of {} from worker {}", name(part), partner.from); },
        [&] {
          decode_add(partner.frame.codec, partner.frame.payload, 0.5F, state.weights, pool());
        });
  }
  state.of_partners.clear();
}

}  // namespace

std::unique_ptr<Worker> make_weight_average_worker(std::shared_ptr<const Placement> placement,
                                                   Transport& transport, const Update& update,
                                                   ThreadPool* pool) {
  return std::make_unique<WeightAverageWorker>(std::move(placement), transport, update, pool);
}

}  // namespace tersewire
