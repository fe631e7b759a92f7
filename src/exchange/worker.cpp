#include "worker.h"

namespace tersewire {

Worker::Worker(std::shared_ptr<const Placement> placement, Transport& transport, ThreadPool* pool)
    : placement_(std::move(placement)),
      transport_(transport),
      pool_(pool),
      me_(fmt::format("worker {}", transport.rank())),
      progress_(placement_->job.tensors.size()) {}

Worker::~Worker() {
  if (!finished_) transport_.abort(me_ + " left the job before it was finished");
}

std::string Worker::name(std::size_t tensor) const {
  return fmt::format("tensor '{}'", job().tensors.at(tensor).name);
}

std::uint64_t Worker::begin_step() {
  return guarded([&] {
    keep_what_has_arrived();
    return step_ = next_step();
  });
}

void Worker::pull(std::size_t tensor, std::span<float> parameters) {
  guarded([&] { bring_to(tensor, step_ - 1, parameters); });
}

void Worker::push(std::size_t tensor, std::span<const float> gradient) {
  guarded([&] {
    Progress& progress = progress_.at(tensor);
    if (progress.pushed_step == step_ || progress.applied_step + 1 != step_) {
      fail(ErrorCode::kFailedPrecondition, "{} must be pulled and then pushed once in every step",
           name(tensor));
    }
    contribute(tensor, gradient);
    progress.pushed_step = step_;
    keep_what_has_arrived();
  });
}

void Worker::keep_what_has_arrived() {
  while (auto incoming = transport_.receive(std::chrono::milliseconds(0))) {
    keep(parse_incoming(std::move(*incoming)));
  }
}

void Worker::finish(std::span<const std::span<float>> parameters) {
  guarded([&] {
    say_done();
    if (parameters.size() != progress_.size()) {
      fail(ErrorCode::kInvalidArgument, "the job has {} tensors, and {} were given to finish",
           progress_.size(), parameters.size());
    }
    for (std::size_t i = 0; i < progress_.size(); ++i) {
      // A step that was begun and not computed has no change to wait for.
      const bool computed = progress_[i].pushed_step == step_;
      bring_to(i, computed ? step_ : step_ - 1, parameters[i]);
    }
    finished_ = true;
  });
}

void Worker::bring_to(std::size_t tensor, std::uint64_t step, std::span<float> parameters) {
  const std::size_t elems = job().tensors.at(tensor).elems();
  if (parameters.size() != elems) {
    fail(ErrorCode::kInvalidArgument, "{} has {} values, and {} were given to pull into",
         name(tensor), elems, parameters.size());
  }
  Progress& progress = progress_[tensor];
  while (progress.applied_step < step) {
    if (change_is_here(tensor)) {
      apply_change(tensor, parameters);
      ++progress.applied_step;
      continue;
    }
    const Stopwatch watch(counters_.wait_seconds, wall_seconds);
    keep(receive_before(transport_, job().deadline, "the delta of " + name(tensor)));
  }
}

void Worker::apply_mean(const Update& update, std::size_t tensor, std::span<const float> mean,
                        std::span<float> parameters) {
  delta_.resize(mean.size());
  update(tensor, mean, delta_);
  for (std::size_t i = 0; i < mean.size(); ++i) parameters[i] += delta_[i];
}

Encoded Worker::encode(Encoder& encoder, std::size_t tensor, std::uint64_t step,
                       std::span<const float> values, Bytes& out) {
  const Stopwatch watch(counters_.encode_seconds, processor_seconds);
  const Encoded encoded = with_context([&] { return name(tensor); },
                                       [&] { return encoder.encode(values, step, out, pool_); });
  counters_.not_finite_tensors += encoded.not_finite ? 1 : 0;
  return encoded;
}

SharedBytes Worker::message_of(MessageKind kind, std::uint64_t step, std::size_t tensor,
                               const Encoded& encoded, ByteView payload) const {
  MessageWriter writer(
      {.kind = kind, .sender = static_cast<std::uint32_t>(transport_.rank()), .step = step});
  writer.add({.tensor = static_cast<std::uint32_t>(tensor),
              .codec = encoded.codec,
              .not_finite = encoded.not_finite,
              .description = std::nullopt,
              .payload = payload});
  return shared(writer);
}

void Worker::send(int to, const SharedBytes& bytes) {
  counters_.pushed_bytes += bytes->size();
  transport_.send(to, bytes);
}

}  // namespace tersewire
