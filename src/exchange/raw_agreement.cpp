#include "raw_agreement.h"

#include <algorithm>
#include <bit>

#include "byte_io.h"
#include "errors.h"

namespace tersewire {
namespace {

// By bits: the largest magnitude says it of all.
bool is_finite(std::span<const float> values) {
  constexpr std::uint32_t kMagnitude = 0x7FFFFFFF;
  constexpr std::uint32_t kInfinity = 0x7F800000;
  std::uint32_t largest = 0;
  for (const float value : values) {
    largest = std::max(largest, std::bit_cast<std::uint32_t>(value) & kMagnitude);
  }
  return largest < kInfinity;
}

// The number of the bucket that a message of kind finiteness speaks of.
std::size_t bucket_of(int from, const Message& message, std::size_t buckets) {
  const std::uint32_t number = message.frames.front().tensor;
  if (number < buckets) return number;
  fail(ErrorCode::kDataLoss, "message from rank {}: there is no bucket number {}", from, number);
}

std::vector<bool> not_finite_in(int from, const Message& message, std::size_t parts) {
  return with_context([&] { return fmt::format("message from rank {}", from); },
                      [&] { return finiteness_in(message, parts); });
}

}  // namespace

Encoded encode_in_step(const Job& job, Encoder& encoder, std::span<const float> values,
                       std::uint64_t step, bool raw, Bytes& out, ThreadPool* pool,
                       std::span<const float> agreed) {
  const bool warm_up = step <= job.warm_up_steps;
  if (!warm_up && !raw) {
    return agreed.empty() ? encoder.encode(values, step, out, pool)
                          : encoder.encode_under(agreed, values, step, out, pool);
  }
  if (!is_finite(values)) return encoder.encode(values, step, out, pool);
  append(out, values.data(), values.size_bytes());
  return {.codec = CodecId::kFp32, .not_finite = !warm_up};
}

HeldPushes::HeldPushes(std::shared_ptr<const Placement> placement)
    : placement_(std::move(placement)),
      buckets_(placement_->buckets.size()),
      raw_step_(placement_->bucket_of.size(), 0) {
  for (std::size_t number = 0; number < buckets_.size(); ++number) {
    buckets_[number].pushes.resize(placement_->buckets[number].size());
    buckets_[number].not_finite.resize(placement_->buckets[number].size());
  }
}

// Within its bucket.
std::size_t HeldPushes::place_of(std::size_t part) const {
  const auto& parts = placement_->buckets[placement_->bucket_of[part]];
  return static_cast<std::size_t>(std::ranges::find(parts, part) - parts.begin());
}

SharedBytes HeldPushes::hold(int rank, std::size_t part, std::uint64_t step,
                             std::span<const float> values) {
  const std::size_t number = placement_->bucket_of[part];
  Bucket& bucket = buckets_[number];
  Push& push = bucket.pushes[bucket.held];
  push.part = part;
  push.values.assign(values.begin(), values.end());
  bucket.not_finite[place_of(part)] = !is_finite(values);
  if (++bucket.held < bucket.pushes.size()) return nullptr;
  bucket.held = 0;
  bucket.step = step;
  bucket.awaits_verdict = true;
  ++awaited_;
  return std::make_shared<const Bytes>(finiteness_message(static_cast<std::uint32_t>(rank), step,
                                                          static_cast<std::uint32_t>(number),
                                                          bucket.not_finite));
}

std::span<const HeldPushes::Push> HeldPushes::release(const Message& verdict) {
  const std::size_t number = bucket_of(0, verdict, buckets_.size());
  check_is_awaited(number, verdict);
  Bucket& bucket = buckets_[number];
  const auto& parts = placement_->buckets[number];
  const std::vector<bool> anywhere = not_finite_in(0, verdict, parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (bucket.not_finite[i] && !anywhere[i]) {
      fail(ErrorCode::kDataLoss,
           "message from rank 0: it reports {} of step {} as finite, which it is not here",
           placement_->name(parts[i]), bucket.step);
    }
    if (anywhere[i]) raw_step_[parts[i]] = bucket.step;
  }
  bucket.awaits_verdict = false;
  --awaited_;
  return bucket.pushes;
}

void HeldPushes::check_is_awaited(std::size_t number, const Message& verdict) const {
  const Bucket& bucket = buckets_[number];
  const std::uint64_t step = verdict.header.step;
  if (bucket.awaits_verdict && step == bucket.step) return;
  fail(ErrorCode::kDataLoss,
       "message from rank 0: no report of what is finite in bucket {} in step {} is awaited",
       number, step);
}

FinitenessCount::FinitenessCount(std::shared_ptr<const Placement> placement)
    : placement_(std::move(placement)), buckets_(placement_->buckets.size()) {
  for (Bucket& bucket : buckets_) {
    bucket.said.resize(static_cast<std::size_t>(placement_->job.workers));
  }
}

SharedBytes FinitenessCount::take(int from, const Message& message) {
  const std::size_t number = bucket_of(from, message, buckets_.size());
  Bucket& bucket = buckets_[number];
  const auto worker = static_cast<std::size_t>(from);
  const std::uint64_t step = message.header.step;
  if (worker >= bucket.said.size() || bucket.said[worker]) {
    fail(ErrorCode::kDataLoss,
         "message from rank {}: its report of what is finite in bucket {} in step {} is not due",
         from, number, step);
  }
  bucket.said[worker] = {
      .step = step, .not_finite = not_finite_in(from, message, placement_->buckets[number].size())};
  if (++bucket.workers < bucket.said.size()) return nullptr;
  return verdict(number);
}

// Workers are at one step, that of worker 0, who knows its own.
SharedBytes FinitenessCount::verdict(std::size_t number) {
  Bucket& bucket = buckets_[number];
  Said anywhere = *bucket.said.front();
  for (std::size_t worker = 1; worker < bucket.said.size(); ++worker) {
    const Said& said = *bucket.said[worker];
    if (said.step != anywhere.step) {
      fail(ErrorCode::kDataLoss,
           "message from rank {}: its report of what is finite in bucket {} came for step {} while "
           "step {} is open",
           worker, number, said.step, anywhere.step);
    }
    for (std::size_t i = 0; i < said.not_finite.size(); ++i) {
      if (said.not_finite[i]) anywhere.not_finite[i] = true;
    }
  }
  std::ranges::fill(bucket.said, std::nullopt);
  bucket.workers = 0;
  return std::make_shared<const Bytes>(finiteness_message(
      0, anywhere.step, static_cast<std::uint32_t>(number), anywhere.not_finite));
}

}  // namespace tersewire
