#include <algorithm>
#include <deque>
#include <optional>

#include "parameter_server.h"
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

struct WorkerTensor {
  std::unique_ptr<Encoder> encoder;
  std::deque<Delta> deltas;
  // The last push, until its delta says whether it was used.
  CodecId pushed_codec = CodecId::kFp32;
  Bytes payload;
};

class ParameterServerWorker final : public Worker {
 public:
  ParameterServerWorker(std::shared_ptr<const Placement> placed, Transport& transport,
                        Update update, ThreadPool* threads)
      : Worker(std::move(placed), transport, threads),
        update_(std::move(update)),
        tensors_(job().tensors.size()) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      tensors_[i].encoder = placement().push_codecs[i]->make_encoder(
          job().tensors[i].elems(), encoder_context(job(), i, rank()));
    }
  }

 private:
  void keep(Received received) override;
  void contribute(std::size_t tensor, std::span<const float> gradient) override;
  [[nodiscard]] bool change_is_here(std::size_t tensor) const override {
    return !tensors_[tensor].deltas.empty();
  }
  void apply_change(std::size_t tensor, std::span<float> parameters) override;
  [[nodiscard]] std::uint64_t next_step() const override {
    return job().backup_workers > 0 ? std::max(step(), newest_delta_) + 1 : step() + 1;
  }
  void say_done() override;

  void decode_change(std::size_t tensor, const Delta& delta, std::span<float> parameters);
  void settle_push(std::size_t tensor, const Delta& delta);

  Update update_;  // none: the servers own the model
  std::vector<WorkerTensor> tensors_;
  Floats mean_;  // shared by all tensors: one is worked on at a time
  std::uint64_t newest_delta_ = 0;
};

void ParameterServerWorker::contribute(std::size_t tensor, std::span<const float> gradient) {
  WorkerTensor& state = tensors_[tensor];
  state.payload.clear();
  const Encoded encoded = encode(*state.encoder, tensor, step(), gradient, state.payload);
  state.pushed_codec = encoded.codec;
  counters_.pushed_values += gradient.size();
  send(placement().owners[tensor],
       message_of(MessageKind::kPush, step(), tensor, encoded, state.payload));
}

void ParameterServerWorker::say_done() {
  MessageWriter done(
      {.kind = MessageKind::kDone, .sender = static_cast<std::uint32_t>(rank()), .step = step()});
  const SharedBytes bytes = shared(done);
  for (int server = 0; server < job().servers; ++server) send(job().workers + server, bytes);
}

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
    if (frame.tensor >= tensors_.size() || placement().owners[frame.tensor] != received.from) {
      fail(ErrorCode::kDataLoss, "message from rank {}: tensor number {} is not its to send",
           received.from, frame.tensor);
    }
    WorkerTensor& state = tensors_[frame.tensor];
    const std::uint64_t before =
        state.deltas.empty() ? applied_step(frame.tensor) : state.deltas.back().step;
    if (header.step != before + 1) {
      fail(ErrorCode::kDataLoss, "message from rank {}: {} came for step {} after step {}",
           received.from, name(frame.tensor), header.step, before);
    }
    state.deltas.push_back({header.step, received.bytes, frame, contributors});
    contributors.reset();
  }
}

void ParameterServerWorker::apply_change(std::size_t tensor, std::span<float> parameters) {
  WorkerTensor& state = tensors_[tensor];
  const Delta delta = std::move(state.deltas.front());
  state.deltas.pop_front();
  with_context([&] { return "delta of " + name(tensor); },
               [&] { decode_change(tensor, delta, parameters); });
  settle_push(tensor, delta);
  counters_.pulled_values += parameters.size();
}

void ParameterServerWorker::decode_change(std::size_t tensor, const Delta& delta,
                                          std::span<float> parameters) {
  {
    const Stopwatch watch(counters_.decode_seconds, processor_seconds);
    if (!update_) {
      return decode_add(delta.frame.codec, delta.frame.payload, 1.0F, parameters, pool());
    }
    mean_.resize(parameters.size());
    decode(delta.frame.codec, delta.frame.payload, mean_, pool());
  }
  apply_mean(update_, tensor, mean_, parameters);
}

// Nothing lost: what the server did not use goes back to the residual.
void ParameterServerWorker::settle_push(std::size_t tensor, const Delta& delta) {
  if (!delta.contributors) return;
  check_contributors(*delta.contributors, static_cast<std::size_t>(job().workers));
  const auto me = static_cast<std::size_t>(rank());
  const bool used = ((*delta.contributors)[me / 8] & std::byte{1} << (me % 8)) != std::byte{0};
  if (used || pushed_step(tensor) != delta.step) return;
  tensors_[tensor].encoder->give_back(tensors_[tensor].pushed_codec, tensors_[tensor].payload);
  ++counters_.unused_pushes;
}

}  // namespace

std::unique_ptr<Communicator> make_parameter_server_worker(
    std::shared_ptr<const Placement> placement, Transport& transport, const Update& update,
    ThreadPool* pool) {
  return std::make_unique<ParameterServerWorker>(std::move(placement), transport, update, pool);
}

}  // namespace tersewire
