#include <algorithm>
#include <deque>
#include <optional>

#include "parameter_server.h"
#include "scaler_agreement.h"
#include "stale_server.h"
#include "worker.h"

namespace tersewire {
namespace {

// A model delta that has arrived and has not been added yet.
struct Delta {
  std::uint64_t step;
  SharedBytes bytes;  // what `frame` and `contributors` point into
  Frame frame;
  std::optional<ByteView> contributors;
};

struct WorkerPart {
  std::unique_ptr<Encoder> encoder;
  std::deque<Delta> deltas;
  // With backup workers the last push, until its delta says whether it was used.
  CodecId pushed_codec = CodecId::kFp32;
  Bytes payload;
  Floats gradient;  // with scaler sharing, until there is an agreement
};

class ParameterServerWorker final : public Worker {
 public:
  ParameterServerWorker(std::shared_ptr<const Placement> placed, Transport& transport,
                        Update update, ThreadPool* threads)
      : Worker(std::move(placed), transport, threads),
        update_(std::move(update)),
        parts_(parts().size()),
        offers_(parts_.size()) {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      parts_[i].encoder = encoder_for(placement(), placement().push_codecs, i, rank());
    }
  }

  // Servers on nodes of their own wait for the word of every worker.
  ~ParameterServerWorker() override {
    if (job().servers == Job::kColocated || !leaves_with_means()) return;
    try {
      say_done();
    } catch (const std::exception&) {  // the job has ended before
    }
  }

 private:
  void keep(Received received) override;
  void contribute(std::size_t part, std::uint64_t step, std::span<const float> gradient) override;
  [[nodiscard]] bool change_is_here(std::size_t part) const override {
    return !parts_[part].deltas.empty();
  }
  void apply_change(std::size_t part, std::span<float> parameters, Counters& counted) override;
  [[nodiscard]] bool applies_at_once() const override { return !update_; }
  void take_mean(std::size_t part, std::span<float> mean, Counters& counted) override;
  [[nodiscard]] Encoder* encoder_of(std::size_t part) override {
    return placement().options.scaler_sharing ? nullptr : parts_[part].encoder.get();
  }
  [[nodiscard]] std::uint64_t next_step() const override {
    return job().backup_workers > 0 ? std::max(step(), newest_delta_) + 1 : step() + 1;
  }
  void say_done() override;
  [[nodiscard]] std::vector<ResidualRun> residual_runs() override { return residuals_of(parts_); }

  // Where the pushes of a part go, and its pulls come from.
  [[nodiscard]] int server_of(std::size_t part) const {
    return placement().tree.empty() ? placement().owners[part]
                                    : placement().tree[static_cast<std::size_t>(rank())].parent;
  }
  [[nodiscard]] int first_server() const { return job().workers; }
  void offer(std::size_t part, std::span<const float> gradient);
  void take_agreement(const Received& received);
  void push_under(const Scalers& agreed);
  void push_encoded(std::size_t part, std::uint64_t step, std::span<const float> gradient,
                    std::span<const float> agreed = {});
  void take_delta(const Received& received, const Frame& frame,
                  std::optional<ByteView> contributors);
  // The next delta, settled, and then what it says, by `take`.
  template <typename Take>
  void take_next(std::size_t part, Counters& counted, const Take& take);
  void settle_push(std::size_t part, const Delta& delta, Counters& counted);

  Update update_;  // none: the servers own the model
  std::vector<WorkerPart> parts_;
  // With scaler sharing: of the parts pushed so far in this step.
  Scalers offers_;
  std::size_t offered_ = 0;
  std::uint64_t awaited_step_ = 0;  // of the agreement that this worker waits for; 0: of none
  std::uint64_t newest_delta_ = 0;
};

void ParameterServerWorker::contribute(std::size_t part, std::uint64_t step,
                                       std::span<const float> gradient) {
  counters_.pushed_values += gradient.size();
  if (placement().options.scaler_sharing) return offer(part, gradient);
  push_encoded(part, step, gradient);
}

void ParameterServerWorker::push_encoded(std::size_t part, std::uint64_t step,
                                         std::span<const float> gradient,
                                         std::span<const float> agreed) {
  WorkerPart& state = parts_[part];
  const Frame frame = add_to_push(MessageKind::kPush, *state.encoder, part, step, gradient, agreed);
  if (job().backup_workers > 0) {
    state.pushed_codec = frame.codec;
    state.payload.assign(frame.payload.begin(), frame.payload.end());
  }
  const int server = server_of(part);
  const SharedBytes push = take_push(part, step, placement().share_node(rank(), server));
  if (push) send(server, push);
}

// The gradient waits until all parts of the step are here and all workers have agreed.
void ParameterServerWorker::offer(std::size_t part, std::span<const float> gradient) {
  parts_[part].gradient.assign(gradient.begin(), gradient.end());
  {
    const Stopwatch watch(counters_.encode_seconds, processor_seconds);
    offers_[part] = parts_[part].encoder->local_scalers(gradient, pool());
  }
  if (++offered_ < parts_.size()) return;
  offered_ = 0;
  const bool agreed_already =
      std::ranges::all_of(offers_, [](const auto& scalers) { return scalers.empty(); });
  if (agreed_already) return push_under(offers_);
  awaited_step_ = step();
  send(first_server(), scalers_message(placement(),
                                       {.kind = MessageKind::kOffer,
                                        .sender = static_cast<std::uint32_t>(rank()),
                                        .step = step()},
                                       offers_));
}

void ParameterServerWorker::take_agreement(const Received& received) {
  const std::uint64_t step = received.message.header.step;
  const std::uint64_t awaited = std::exchange(awaited_step_, 0);
  if (received.from != first_server() || awaited == 0 || step != awaited) {
    fail(ErrorCode::kDataLoss, "message from rank {}: no agreement of step {} is awaited",
         received.from, step);
  }
  push_under(scalers_in(received, placement(), offers_));
}

void ParameterServerWorker::push_under(const Scalers& agreed) {
  for (std::size_t part = parts_.size(); part-- > 0;) {
    push_encoded(part, exchanged_step(), parts_[part].gradient, agreed[part]);
  }
}

void ParameterServerWorker::say_done() {
  wait_until([&] { return awaited_step_ == 0; }, [] { return "the scalers that workers agree on"; },
             [&](int rank) { return rank < job().workers; });
  if (!placement().tree.empty()) return tell_done(server_of(0), 1);
  tell_done(first_server(), placement().servers);
}

void ParameterServerWorker::keep(Received received) {
  const MessageHeader& header = received.message.header;
  counters_.pulled_bytes += received.bytes->size();
  if (header.kind == MessageKind::kAgreement) return take_agreement(received);
  if (header.kind != MessageKind::kPull) {
    fail(ErrorCode::kDataLoss, "message from rank {}: workers take pulls only", received.from);
  }
  if (received.message.frames.empty()) {
    fail(ErrorCode::kDataLoss, "message from rank {}: a pull without a delta", received.from);
  }
  std::optional<ByteView> contributors;
  for (const Frame& frame : received.message.frames) {
    if (frame.codec == CodecId::kContributors) {
      check_length(received.from, "contributors", frame,
                   (static_cast<std::size_t>(job().workers) + 7) / 8);
      contributors = frame.payload;
    } else {
      take_delta(received, frame, std::exchange(contributors, std::nullopt));
    }
  }
}

void ParameterServerWorker::take_delta(const Received& received, const Frame& frame,
                                       std::optional<ByteView> contributors) {
  const std::size_t part = part_in(placement(), received.from, frame);
  if (server_of(part) != received.from) {
    fail(ErrorCode::kDataLoss, "message from rank {}: {} is not its to send", received.from,
         name(part));
  }
  check_length(received.from, name(part), frame, placement().most_pulled_bytes(part));
  WorkerPart& state = parts_[part];
  const std::uint64_t step = received.message.header.step;
  const std::uint64_t before = state.deltas.empty() ? applied_step(part) : state.deltas.back().step;
  const bool early = job().backup_workers == 0 && step > exchanged_step();
  if (step != before + 1 || early) {
    fail(ErrorCode::kDataLoss,
         "message from rank {}: {} came for step {}, which is not due after step {}", received.from,
         name(part), step, before);
  }
  newest_delta_ = std::max(newest_delta_, step);
  state.deltas.push_back({step, received.bytes, frame, contributors});
}

template <typename Take>
void ParameterServerWorker::take_next(std::size_t part, Counters& counted, const Take& take) {
  WorkerPart& state = parts_[part];
  const Delta delta = std::move(state.deltas.front());
  state.deltas.pop_front();
  with_context([&] { return "delta of " + name(part); },
               [&] {
                 settle_push(part, delta, counted);
                 const Stopwatch watch(counted.decode_seconds, processor_seconds);
                 take(delta.frame);
               });
  counted.pulled_values += parts()[part].elems;
}

void ParameterServerWorker::apply_change(std::size_t part, std::span<float> parameters,
                                         Counters& counted) {
  if (update_) return apply_mean(update_, part, parameters, counted);
  take_next(part, counted, [&](const Frame& frame) {
    decode_add(frame.codec, frame.payload, 1.0F, parameters, pool());
  });
}

void ParameterServerWorker::take_mean(std::size_t part, std::span<float> mean, Counters& counted) {
  take_next(part, counted,
            [&](const Frame& frame) { decode(frame.codec, frame.payload, mean, pool()); });
}

// Nothing lost: what the server did not use goes back to the residual.
void ParameterServerWorker::settle_push(std::size_t part, const Delta& delta, Counters& counted) {
  if (!delta.contributors) return;
  if (job().backup_workers == 0) {
    fail(ErrorCode::kDataLoss, "it names contributors, although every worker's push is waited for");
  }
  check_contributors(*delta.contributors, static_cast<std::size_t>(job().workers));
  const auto me = static_cast<std::size_t>(rank());
  const bool used = ((*delta.contributors)[me / 8] & std::byte{1} << (me % 8)) != std::byte{0};
  if (used || pushed_step(part) != delta.step) return;
  parts_[part].encoder->give_back(parts_[part].pushed_codec, parts_[part].payload);
  ++counted.unused_pushes;
}

}  // namespace

std::unique_ptr<Worker> make_parameter_server_worker(std::shared_ptr<const Placement> placement,
                                                     Transport& transport, const Update& update,
                                                     ThreadPool* pool) {
  if (!placement->job.in_lock_step()) {
    return make_stale_worker(std::move(placement), transport, update, pool);
  }
  return std::make_unique<ParameterServerWorker>(std::move(placement), transport, update, pool);
}

}  // namespace tersewire
