#include "parameter_server.h"

#include <algorithm>

#include "node.h"

namespace tersewire {
namespace {

// A push in encoded form, held until enough have arrived.
struct Push {
  SharedBytes bytes;  // what `frame` points into; null where none has arrived
  Frame frame;
};

struct ServerTensor {
  std::unique_ptr<Encoder> encoder;
  std::vector<Push> pushes;  // by rank, of the current step
  int arrived = 0;
  std::uint64_t step = 1;  // the one that pushes are collected for
};

class ParameterServer {
 public:
  ParameterServer(std::shared_ptr<const Placement> placement, Transport& transport,
                  const Update& update, ThreadPool* pool);

  Counters run();

 private:
  void take(Received received);
  void take_push(const Received& received, const Frame& frame);
  void advance(std::size_t tensor);
  void average(std::size_t tensor);
  void send_delta(std::size_t tensor);
  [[nodiscard]] Bytes contributors(const ServerTensor& state) const;

  [[nodiscard]] int quorum() const { return job_.workers - job_.backup_workers; }
  [[nodiscard]] std::string name(std::size_t tensor) const {
    return fmt::format("tensor '{}'", job_.tensors[tensor].name);
  }

  std::shared_ptr<const Placement> placement_;
  const Job& job_;
  Transport& transport_;
  const Update& update_;
  ThreadPool* pool_;
  std::vector<ServerTensor> tensors_;  // by number; only this server's have an encoder
  std::vector<bool> done_;
  // Shared by all tensors: one is worked on at a time.
  Floats mean_;
  Floats delta_;
  Bytes payload_;
  Counters counters_;
};

ParameterServer::ParameterServer(std::shared_ptr<const Placement> placement, Transport& transport,
                                 const Update& update, ThreadPool* pool)
    : placement_(std::move(placement)),
      job_(placement_->job),
      transport_(transport),
      update_(update),
      pool_(pool),
      tensors_(job_.tensors.size()),
      done_(static_cast<std::size_t>(job_.workers), false) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (placement_->owners[i] != transport.rank()) continue;
    tensors_[i].encoder = placement_->pull_codecs[i]->make_encoder(
        job_.tensors[i].elems(), encoder_context(job_, i, transport_.rank()));
    tensors_[i].pushes.resize(static_cast<std::size_t>(job_.workers));
  }
}

Counters ParameterServer::run() {
  while (std::ranges::find(done_, false) != done_.end()) {
    Received received = [&] {
      const Stopwatch watch(counters_.wait_seconds, wall_seconds);
      return receive_before(transport_, job_.deadline, "pushes");
    }();
    take(std::move(received));
  }
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].arrived == 0) continue;
    fail(ErrorCode::kFailedPrecondition,
         "all workers are done, and {} of them pushed {} in step {} without the others; let every "
         "worker end after the same step",
         tensors_[i].arrived, name(i), tensors_[i].step);
  }
  return counters_;
}

void ParameterServer::take(Received received) {
  counters_.pushed_bytes += received.bytes->size();
  if (received.from >= job_.workers) {
    fail(ErrorCode::kDataLoss, "message from rank {}: only workers send to servers", received.from);
  }
  switch (received.message.header.kind) {
    case MessageKind::kPush:
      for (const Frame& frame : received.message.frames) take_push(received, frame);
      return;
    case MessageKind::kDone:
      done_[static_cast<std::size_t>(received.from)] = true;
      return;
    default:
      fail(ErrorCode::kDataLoss, "message from rank {}: servers take pushes only", received.from);
  }
}

void ParameterServer::take_push(const Received& received, const Frame& frame) {
  if (frame.tensor >= tensors_.size() || !tensors_[frame.tensor].encoder) {
    fail(ErrorCode::kDataLoss,
         "push from worker {}: tensor number {} does not belong to this server", received.from,
         frame.tensor);
  }
  ServerTensor& state = tensors_[frame.tensor];
  const std::uint64_t step = received.message.header.step;
  if (step < state.step && job_.backup_workers > 0) {
    // Too late: its sender learns that from the delta, and takes it back.
    ++counters_.unused_pushes;
    return;
  }
  Push& push = state.pushes[static_cast<std::size_t>(received.from)];
  if (step != state.step || push.bytes) {
    fail(ErrorCode::kDataLoss, "push from worker {}: {} came for step {} while step {} is open",
         received.from, name(frame.tensor), step, state.step);
  }
  counters_.pushed_values += state.encoder->elems();
  push = {.bytes = received.bytes, .frame = frame};
  if (++state.arrived == quorum()) advance(frame.tensor);
}

void ParameterServer::advance(std::size_t tensor) {
  ServerTensor& state = tensors_[tensor];
  average(tensor);
  delta_.resize(mean_.size());
  update_(tensor, mean_, delta_);
  send_delta(tensor);
  std::ranges::fill(state.pushes, Push{});
  state.arrived = 0;
  ++state.step;
}

// In the order of ranks, whatever the order of arrival, so that a run repeats to the bit.
void ParameterServer::average(std::size_t tensor) {
  const ServerTensor& state = tensors_[tensor];
  const Stopwatch watch(counters_.decode_seconds, processor_seconds);
  mean_.resize(state.encoder->elems());
  std::ranges::fill(mean_, 0.0F);
  const float weight = 1.0F / static_cast<float>(quorum());
  for (std::size_t rank = 0; rank < state.pushes.size(); ++rank) {
    const Push& push = state.pushes[rank];
    if (!push.bytes) continue;
    with_context([&] { return fmt::format("push of {} from worker {}", name(tensor), rank); },
                 [&] { decode_add(push.frame.codec, push.frame.payload, weight, mean_, pool_); });
  }
}

Bytes ParameterServer::contributors(const ServerTensor& state) const {
  Bytes bitmap((state.pushes.size() + 7) / 8, std::byte{0});
  for (std::size_t rank = 0; rank < state.pushes.size(); ++rank) {
    if (state.pushes[rank].bytes) bitmap[rank / 8] |= std::byte{1} << (rank % 8);
  }
  return bitmap;
}

void ParameterServer::send_delta(std::size_t tensor) {
  ServerTensor& state = tensors_[tensor];
  payload_.clear();
  Encoded encoded;
  {
    const Stopwatch watch(counters_.encode_seconds, processor_seconds);
    encoded =
        with_context([&] { return "delta of " + name(tensor); },
                     [&] { return state.encoder->encode(delta_, state.step, payload_, pool_); });
  }
  counters_.not_finite_tensors += encoded.not_finite ? 1 : 0;

  MessageWriter writer({.kind = MessageKind::kPull,
                        .sender = static_cast<std::uint32_t>(transport_.rank()),
                        .step = state.step});
  const auto number = static_cast<std::uint32_t>(tensor);
  if (state.arrived < job_.workers) {
    const Bytes bitmap = contributors(state);
    writer.add({.tensor = number,
                .codec = CodecId::kContributors,
                .not_finite = false,
                .description = std::nullopt,
                .payload = bitmap});
  }
  writer.add({.tensor = number,
              .codec = encoded.codec,
              .not_finite = encoded.not_finite,
              .description = std::nullopt,
              .payload = payload_});
  // Compressed once: the same bytes go to every worker.
  const SharedBytes bytes = shared(writer);
  for (int worker = 0; worker < job_.workers; ++worker) {
    counters_.pulled_bytes += bytes->size();
    counters_.pulled_values += state.encoder->elems();
    transport_.send(worker, bytes);
  }
}

}  // namespace

Counters run_parameter_server(std::shared_ptr<const Placement> placement, Transport& transport,
                              const Update& update, ThreadPool* pool) {
  return ParameterServer(std::move(placement), transport, update, pool).run();
}

}  // namespace tersewire
