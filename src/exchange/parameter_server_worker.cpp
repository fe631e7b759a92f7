#include <algorithm>
#include <deque>
#include <optional>

#include "node.h"
#include "parameter_server.h"

namespace tersewire {
namespace {

// A model delta that has arrived and has not been added yet.
struct Delta {
  std::uint64_t step;
  SharedBytes bytes;  // what `frame` and `contributors` point into
  Frame frame;
  std::optional<ByteView> contributors;
};

struct WorkerTensor {
  std::unique_ptr<Encoder> encoder;
  std::deque<Delta> deltas;
  std::uint64_t applied_step = 0;
  // The last push, until its delta says whether it was used.
  std::uint64_t pushed_step = 0;
  CodecId pushed_codec = CodecId::kFp32;
  Bytes payload;
};

class ParameterServerWorker final : public Communicator {
 private:
  template <typename Task>
  decltype(auto) guarded(Task&& task) {
    return ending_the_job_on_failure(transport_, fmt::format("{}, step {}", me_, step_),
                                     std::forward<Task>(task));
  }

 public:
  ParameterServerWorker(std::shared_ptr<const Placement> placement, Transport& transport,
                        ThreadPool* pool)
      : placement_(std::move(placement)),
        job_(placement_->job),
        transport_(transport),
        pool_(pool),
        me_(fmt::format("worker {}", transport.rank())),
        tensors_(job_.tensors.size()) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      tensors_[i].encoder = placement_->push_codecs[i]->make_encoder(job_.tensors[i].elems());
    }
  }

  ~ParameterServerWorker() override {
    if (!finished_) transport_.abort(me_ + " left the job before it was finished");
  }

  std::uint64_t begin_step() override {
    return guarded([&] {
      while (auto incoming = transport_.receive(std::chrono::milliseconds(0))) {
        keep(parse_incoming(std::move(*incoming)));
      }
      ++step_;
      if (job_.backup_workers > 0) step_ = std::max(step_, newest_delta_ + 1);
      return step_;
    });
  }

  void pull(std::size_t tensor, std::span<float> parameters) override {
    guarded([&] { bring_to(tensor, step_ - 1, parameters); });
  }

  void push(std::size_t tensor, std::span<const float> gradient) override {
    guarded([&] { encode_and_send(tensor, gradient); });
  }

  void finish(std::span<const std::span<float>> parameters) override {
    guarded([&] {
      MessageWriter done({.kind = MessageKind::kDone, .sender = sender(), .step = step_});
      const SharedBytes bytes = shared(done);
      for (int server = 0; server < job_.servers; ++server) send(job_.workers + server, bytes);
      if (parameters.size() != tensors_.size()) {
        fail(ErrorCode::kInvalidArgument, "the job has {} tensors, and {} were given to finish",
             tensors_.size(), parameters.size());
      }
      for (std::size_t i = 0; i < tensors_.size(); ++i) {
        // A step that was begun and not computed has no delta to wait for.
        const bool computed = step_ > 0 && tensors_[i].pushed_step == step_;
        bring_to(i, computed || step_ == 0 ? step_ : step_ - 1, parameters[i]);
      }
      finished_ = true;
    });
  }

  [[nodiscard]] const Counters& counters() const noexcept override { return counters_; }

 private:
  [[nodiscard]] std::uint32_t sender() const {
    return static_cast<std::uint32_t>(transport_.rank());
  }
  [[nodiscard]] std::string name(std::size_t tensor) const {
    return fmt::format("tensor '{}'", job_.tensors.at(tensor).name);
  }
  void send(int to, const SharedBytes& bytes) {
    counters_.pushed_bytes += bytes->size();
    transport_.send(to, bytes);
  }

  void encode_and_send(std::size_t tensor, std::span<const float> gradient);
  void bring_to(std::size_t tensor, std::uint64_t step, std::span<float> parameters);
  void keep(Received received);
  void apply(std::size_t tensor, const Delta& delta, std::span<float> parameters);
  void settle_push(WorkerTensor& state, const Delta& delta);

  std::shared_ptr<const Placement> placement_;
  const Job& job_;
  Transport& transport_;
  ThreadPool* pool_;
  std::string me_;
  std::vector<WorkerTensor> tensors_;
  std::uint64_t step_ = 0;
  std::uint64_t newest_delta_ = 0;
  bool finished_ = false;
  Counters counters_;
};

void ParameterServerWorker::encode_and_send(std::size_t tensor, std::span<const float> gradient) {
  WorkerTensor& state = tensors_.at(tensor);
  if (state.pushed_step == step_ || state.applied_step + 1 != step_) {
    fail(ErrorCode::kFailedPrecondition, "{} must be pulled and then pushed once in every step",
         name(tensor));
  }
  state.payload.clear();
  Encoded encoded;
  {
    const Stopwatch watch(counters_.encode_seconds, processor_seconds);
    encoded = with_context([&] { return name(tensor); },
                           [&] { return state.encoder->encode(gradient, state.payload, pool_); });
  }
  state.pushed_step = step_;
  state.pushed_codec = encoded.codec;
  counters_.not_finite_tensors += encoded.not_finite ? 1 : 0;
  counters_.pushed_values += gradient.size();

  MessageWriter writer({.kind = MessageKind::kPush, .sender = sender(), .step = step_});
  writer.add({.tensor = static_cast<std::uint32_t>(tensor),
              .codec = encoded.codec,
              .not_finite = encoded.not_finite,
              .description = std::nullopt,
              .payload = state.payload});
  send(placement_->owners[tensor], shared(writer));
}

void ParameterServerWorker::bring_to(std::size_t tensor, std::uint64_t step,
                                     std::span<float> parameters) {
  WorkerTensor& state = tensors_.at(tensor);
  if (parameters.size() != state.encoder->elems()) {
    fail(ErrorCode::kInvalidArgument, "{} has {} values, and {} were given to pull into",
         name(tensor), state.encoder->elems(), parameters.size());
  }
  while (state.applied_step < step) {
    if (!state.deltas.empty()) {
      apply(tensor, state.deltas.front(), parameters);
      state.deltas.pop_front();
      continue;
    }
    const Stopwatch watch(counters_.wait_seconds, wall_seconds);
    keep(receive_before(transport_, job_.deadline, "the delta of " + name(tensor)));
  }
}

// Sorts what arrived to its tensors, checking that it is what a server may send.
void ParameterServerWorker::keep(Received received) {
  const MessageHeader& header = received.message.header;
  if (header.kind != MessageKind::kPull) {
    fail(ErrorCode::kDataLoss, "message from rank {}: workers take pulls only", received.from);
  }
  counters_.pulled_bytes += received.bytes->size();
  newest_delta_ = std::max(newest_delta_, header.step);
  std::optional<ByteView> contributors;
  for (const Frame& frame : received.message.frames) {
    if (frame.codec == CodecId::kContributors) {
      contributors = frame.payload;
      continue;
    }
    if (frame.tensor >= tensors_.size() || placement_->owners[frame.tensor] != received.from) {
      fail(ErrorCode::kDataLoss, "message from rank {}: tensor number {} is not its to send",
           received.from, frame.tensor);
    }
    WorkerTensor& state = tensors_[frame.tensor];
    const std::uint64_t before =
        state.deltas.empty() ? state.applied_step : state.deltas.back().step;
    if (header.step != before + 1) {
      fail(ErrorCode::kDataLoss, "message from rank {}: {} came for step {} after step {}",
           received.from, name(frame.tensor), header.step, before);
    }
    state.deltas.push_back({header.step, received.bytes, frame, contributors});
    contributors.reset();
  }
}

void ParameterServerWorker::apply(std::size_t tensor, const Delta& delta,
                                  std::span<float> parameters) {
  WorkerTensor& state = tensors_[tensor];
  const Stopwatch watch(counters_.decode_seconds, processor_seconds);
  with_context(
      [&] { return "delta of " + name(tensor); },
      [&] { decode_add(delta.frame.codec, delta.frame.payload, 1.0F, parameters, pool_); });
  settle_push(state, delta);
  state.applied_step = delta.step;
  counters_.pulled_values += parameters.size();
}

// Nothing lost: what the server did not use goes back to the residual.
void ParameterServerWorker::settle_push(WorkerTensor& state, const Delta& delta) {
  if (!delta.contributors) return;
  check_contributors(*delta.contributors, static_cast<std::size_t>(job_.workers));
  const auto rank = static_cast<std::size_t>(transport_.rank());
  const bool used = ((*delta.contributors)[rank / 8] & std::byte{1} << (rank % 8)) != std::byte{0};
  if (used || state.pushed_step != delta.step) return;
  state.encoder->give_back(state.pushed_codec, state.payload);
  ++counters_.unused_pushes;
}

}  // namespace

std::unique_ptr<Communicator> make_parameter_server_worker(
    std::shared_ptr<const Placement> placement, Transport& transport, ThreadPool* pool) {
  return std::make_unique<ParameterServerWorker>(std::move(placement), transport, pool);
}

}  // namespace tersewire
