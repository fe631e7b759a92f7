#include "all_gather.h"

#include <algorithm>
#include <deque>

#include "worker.h"

namespace tersewire {
namespace {

// A worker can be one step ahead of another: its next gradient waits beside its last.
constexpr std::size_t kMostHeld = 2;

// An encoded gradient that has not been averaged yet.
struct HeldGradient {
  std::uint64_t step;
  SharedBytes bytes;  // what `frame` points into
  Frame frame;
};

struct GatheredTensor {
  std::unique_ptr<Encoder> encoder;
  std::vector<std::deque<HeldGradient>> gradients;  // by rank
};

class AllGatherWorker final : public Worker {
 public:
  AllGatherWorker(std::shared_ptr<const Placement> placed, Transport& transport, Update update,
                  ThreadPool* threads)
      : Worker(std::move(placed), transport, threads), update_(std::move(update)) {
    for (std::size_t i = 0; i < job().tensors.size(); ++i) {
      GatheredTensor& tensor = tensors_.emplace_back();
      tensor.encoder = placement().push_codecs[i]->make_encoder(job().tensors[i].elems(),
                                                                encoder_context(job(), i, rank()));
      tensor.gradients.resize(static_cast<std::size_t>(job().workers));
    }
  }

 private:
  void keep(Received received) override;
  void contribute(std::size_t tensor, std::span<const float> gradient) override;
  [[nodiscard]] bool change_is_here(std::size_t tensor) const override {
    return std::ranges::none_of(tensors_[tensor].gradients,
                                [](const auto& of_rank) { return of_rank.empty(); });
  }
  void apply_change(std::size_t tensor, std::span<float> parameters) override;

  void hold(std::size_t tensor, int from, HeldGradient gradient);
  void average(std::size_t tensor);

  Update update_;
  std::vector<GatheredTensor> tensors_;
  // Shared by all tensors: one is worked on at a time.
  Floats mean_;
  Bytes payload_;
};

void AllGatherWorker::contribute(std::size_t tensor, std::span<const float> gradient) {
  payload_.clear();
  const Encoded encoded = encode(*tensors_[tensor].encoder, tensor, step(), gradient, payload_);
  const SharedBytes bytes = message_of(MessageKind::kPush, step(), tensor, encoded, payload_);
  for (int other = 0; other < job().workers; ++other) {
    if (other == rank()) continue;
    counters_.pushed_values += gradient.size();
    send(other, bytes);
  }
  // Its own part of the mean is what the others decode.
  hold(tensor, rank(), {step(), bytes, parse_message(*bytes).frames.front()});
}

void AllGatherWorker::keep(Received received) {
  if (received.message.header.kind != MessageKind::kPush) {
    fail(ErrorCode::kDataLoss, "message from rank {}: workers of an all-gather take pushes only",
         received.from);
  }
  counters_.pulled_bytes += received.bytes->size();
  for (const Frame& frame : received.message.frames) {
    if (frame.tensor >= tensors_.size()) {
      fail(ErrorCode::kDataLoss, "push from worker {}: there is no tensor number {}", received.from,
           frame.tensor);
    }
    counters_.pulled_values += tensors_[frame.tensor].encoder->elems();
    hold(frame.tensor, received.from, {received.message.header.step, received.bytes, frame});
  }
}

void AllGatherWorker::hold(std::size_t tensor, int from, HeldGradient gradient) {
  auto& held = tensors_[tensor].gradients[static_cast<std::size_t>(from)];
  const std::uint64_t before = held.empty() ? applied_step(tensor) : held.back().step;
  if (gradient.step != before + 1 || held.size() == kMostHeld) {
    fail(ErrorCode::kDataLoss, "push from worker {}: {} came for step {} after step {}", from,
         name(tensor), gradient.step, before);
  }
  held.push_back(std::move(gradient));
}

void AllGatherWorker::apply_change(std::size_t tensor, std::span<float> parameters) {
  average(tensor);
  apply_mean(update_, tensor, mean_, parameters);
}

// In the order of ranks, whatever the order of arrival, so that all come to the same bits.
void AllGatherWorker::average(std::size_t tensor) {
  GatheredTensor& state = tensors_[tensor];
  const Stopwatch watch(counters_.decode_seconds, processor_seconds);
  mean_.resize(state.encoder->elems());
  std::ranges::fill(mean_, 0.0F);
  const float weight = 1.0F / static_cast<float>(job().workers);
  for (std::size_t from = 0; from < state.gradients.size(); ++from) {
    const Frame& frame = state.gradients[from].front().frame;
    with_context([&] { return fmt::format("push of {} from worker {}", name(tensor), from); },
                 [&] { decode_add(frame.codec, frame.payload, weight, mean_, pool()); });
  }
  for (auto& of_rank : state.gradients) of_rank.pop_front();
}

}  // namespace

std::unique_ptr<Communicator> make_all_gather_worker(std::shared_ptr<const Placement> placement,
                                                     Transport& transport, const Update& update,
                                                     ThreadPool* pool) {
  return std::make_unique<AllGatherWorker>(std::move(placement), transport, update, pool);
}

}  // namespace tersewire
