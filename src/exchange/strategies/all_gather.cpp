#include "all_gather.h"

#include "gathered.h"

namespace tersewire {
namespace {

struct GatheredPart {
  std::unique_ptr<Encoder> encoder;
  Gathered gradients;
  Followed followed;
};

class AllGatherWorker final : public Worker {
 public:
  AllGatherWorker(std::shared_ptr<const Placement> placed, Transport& transport, Update update,
                  ThreadPool* threads)
      : Worker(std::move(placed), transport, threads), update_(std::move(update)) {
    for (std::size_t i = 0; i < parts().size(); ++i) {
      parts_.push_back({encoder_for(placement(), placement().push_codecs, i, rank()),
                        Gathered(name(i), job().workers),
                        Followed(placement().follows[i] ? parts()[i].elems : 0)});
    }
  }

 private:
  void keep(Received received) override;
  void contribute(std::size_t part, std::uint64_t step, std::span<const float> gradient) override;
  [[nodiscard]] bool change_is_here(std::size_t part) const override {
    return parts_[part].gradients.complete();
  }
  [[nodiscard]] bool needs(std::size_t part, int rank) const override {
    return !parts_[part].gradients.has(rank);
  }
  void apply_change(std::size_t part, std::span<float> parameters, Counters& counted) override {
    apply_mean(update_, part, parameters, counted);
  }
  void take_mean(std::size_t part, std::span<float> mean, Counters& counted) override;
  [[nodiscard]] Encoder* encoder_of(std::size_t part) override {
    return parts_[part].encoder.get();
  }
  [[nodiscard]] std::vector<ResidualRun> residual_runs() override { return residuals_of(parts_); }
  [[nodiscard]] std::vector<ResidualRun> followed_runs() override { return followed_of(parts_); }

  Update update_;
  std::vector<GatheredPart> parts_;
};

void AllGatherWorker::contribute(std::size_t part, std::uint64_t step,
                                 std::span<const float> gradient) {
  add_to_push(MessageKind::kPush, *parts_[part].encoder, part, step, gradient);
  counters_.pushed_values += gradient.size() * static_cast<std::size_t>(job().workers - 1);
  const bool alone = job().workers == 1;
  const SharedBytes bytes = take_push(part, step, alone);
  if (!bytes) return;
  for (int other = 0; other < job().workers; ++other) {
    if (other != rank()) send(other, bytes);
  }
  // Its own part of the mean is what the others decode.
  for (const Frame& frame : parse_message(*bytes, true).frames) {
    parts_[*placement().find(frame)].gradients.hold(rank(), {step, bytes, frame});
  }
}

void AllGatherWorker::keep(Received received) {
  if (received.message.header.kind != MessageKind::kPush) {
    fail(ErrorCode::kDataLoss, "message from rank {}: workers of an all-gather take pushes only",
         received.from);
  }
  counters_.pulled_bytes += received.bytes->size();
  for (const Frame& frame : received.message.frames) {
    const std::size_t part = part_in(placement(), received.from, frame);
    check_length(received.from, name(part), frame, placement().most_pushed_bytes(part));
    GatheredPart& state = parts_[part];
    state.gradients.hold(received.from, {received.message.header.step, received.bytes, frame});
  }
}

void AllGatherWorker::take_mean(std::size_t part, std::span<float> mean, Counters& counted) {
  counted.pulled_values += mean.size() * static_cast<std::size_t>(job().workers - 1);
  const Stopwatch watch(counted.decode_seconds, processor_seconds);
  GatheredPart& state = parts_[part];
  state.gradients.average(applied_step(part) + 1, mean, pool(),
                          state.followed ? &state.followed : nullptr);
}

}  // namespace

std::unique_ptr<Worker> make_all_gather_worker(std::shared_ptr<const Placement> placement,
                                               Transport& transport, const Update& update,
                                               ThreadPool* pool) {
  return std::make_unique<AllGatherWorker>(std::move(placement), transport, update, pool);
}

}  // namespace tersewire
