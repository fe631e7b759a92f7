#include "residual_encoder.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <functional>

#include "byte_io.h"
#include "errors.h"
#include "float_mode.h"
#include "kernels.h"
#include "random_words.h"

namespace tersewire {
namespace {

constexpr std::uint32_t kMaxSenders = 1U << 24;
constexpr std::uint64_t kFirstElemUnit = 4;  // of random_words()
// Where every |T| is below it no residual overflows. What is sent is then less than half the
// distance between the largest floats, so nothing that it is taken from grows past them; and an
// input that counts l times is little more than 1 / l of the residual that it cancels, l being 64
// at most.
constexpr float kNeverOverflows = 0x1p100F;

}  // namespace

ResidualEncoder::ResidualEncoder(std::size_t elems, const EncoderContext& context,
                                 const EncoderOptions& options)
    : elems_(elems),
      context_(context),
      reject_not_finite_(options.reject_not_finite),
      lead_(options.lead),
      differences_(options.differences) {
  if (context.sender >= kMaxSenders) {
    fail(ErrorCode::kInvalidArgument, "sender number {} is too high; use numbers below {}",
         context.sender, kMaxSenders);
  }
  if (context.first_elem % kFirstElemUnit != 0) {
    fail(ErrorCode::kInvalidArgument,
         "an encoder's values cannot begin with element {} of their tensor; begin at a multiple of "
         "{}",
         context.first_elem, kFirstElemUnit);
  }
  if (options.error_feedback) residual_.resize(elems);
}

void ResidualEncoder::random_words(std::uint64_t step, std::size_t first, std::size_t n,
                                   std::uint32_t* out) const {
  kernels::random_words(
      {.seed = context_.seed, .sender = context_.sender, .tensor = context_.tensor, .step = step},
      context_.first_elem + first, n, out);
}

std::uint32_t ResidualEncoder::survey(const float* input, const float* residual, ThreadPool* pool) {
  const auto parts = Partition::of(elems_, kMinMovedElems, pool);
  std::atomic<std::uint32_t> largest{0};
  run_parts(pool, parts.count(), [&](std::size_t i) {
    const std::size_t begin = parts.begin(i);
    const std::uint32_t bits = kernels::max_abs_sum_bits(
        input + begin, residual != nullptr ? residual + begin : nullptr, parts.end(i) - begin);
    raise_to(largest, bits);
  });
  return largest.load();
}

void ResidualEncoder::check_length(std::size_t elems) const {
  if (elems == elems_) return;
  fail(ErrorCode::kInvalidArgument, "the encoder was made for {} values and got {}", elems_, elems);
}

Encoded ResidualEncoder::append_raw(std::span<const float> input, bool not_finite,
                                    Bytes& out) const {
  if (not_finite && reject_not_finite_) {
    fail(ErrorCode::kInvalidArgument,
         "the tensor holds a NaN or an infinity, or its sum with the residual, or what that "
         "leaves, overflows; correct the input or use non-finite=send");
  }
  append(out, input.data(), input.size_bytes());
  return {CodecId::kFp32, not_finite};
}

std::optional<OnePass> ResidualEncoder::encode_at_once(const EncodeCall&, Bytes&) { return {}; }

template <typename Change>
bool ResidualEncoder::keeps_finite(float largest, const Change& change) {
  if (largest < kNeverOverflows) {
    change();
    return true;
  }
  const std::vector<float> before = residual_;
  change();
  if (std::ranges::all_of(residual_, [](float value) { return std::isfinite(value); })) return true;
  std::ranges::copy(before, residual_.begin());
  return false;
}

Encoded ResidualEncoder::encode_call(EncodeCall call, std::span<const float> as_given, Bytes& out) {
  const std::size_t start = out.size();
  if (residual_.empty()) {
    if (const auto made = encode_at_once(call, out)) {
      if (made->largest < kernels::kNotFinite) return {made->codec, false};
      out.resize(start);
      return append_raw(as_given, true, out);
    }
  }
  const std::uint32_t largest = survey(call.input, call.residual, call.pool);
  if (largest >= kernels::kNotFinite) return append_raw(as_given, true, out);
  call.largest = std::bit_cast<float>(largest);
  CodecId codec{};
  const bool finite = keeps_finite(call.largest, [&] {
    codec = encode_finite(call, out);
    // What was sent grows here by what a receiver decodes, in the same way.
    if (differences_) decode_add(codec, ByteView(out).subspan(start), -1, residual_, call.pool);
    if (lead_ != 1 && !counts_lead()) take_lead_back(as_given, call.pool);
  });
  if (finite) return {codec, false};
  out.resize(start);
  return append_raw(as_given, true, out);
}

// The input times the lead, in memory that lasts until this thread's next call.
const float* ResidualEncoder::with_lead(std::span<const float> input, ThreadPool* pool) const {
  thread_local std::vector<float> scaled;
  scaled.resize(elems_);
  float* const target = scaled.data();
  const auto parts = Partition::of(elems_, kMinMovedElems, pool);
  run_parts(pool, parts.count(), [&](std::size_t i) {
    const std::size_t begin = parts.begin(i);
    kernels::scale(target + begin, input.data() + begin, lead_, parts.end(i) - begin);
  });
  return target;
}

// What the input counted more than once was only a claim on what is sent.
void ResidualEncoder::take_lead_back(std::span<const float> input, ThreadPool* pool) {
  const auto parts = Partition::of(elems_, kMinMovedElems, pool);
  run_parts(pool, parts.count(), [&](std::size_t i) {
    const std::size_t begin = parts.begin(i);
    kernels::add_scaled(residual_.data() + begin, input.data() + begin, 1 - lead_,
                        parts.end(i) - begin);
  });
}

const float* ResidualEncoder::difference_to(std::span<const float> input) const {
  thread_local std::vector<float> difference;
  difference.resize(elems_);
  std::ranges::transform(input, residual_, difference.begin(), std::plus<>());
  return difference.data();
}

Encoded ResidualEncoder::encode(std::span<const float> input, std::uint64_t step, Bytes& out,
                                ThreadPool* pool) {
  const DefaultFloatMode mode;
  check_length(input.size());
  step_ = step;
  const std::size_t start = out.size();
  const bool leads = lead_ != 1 && !counts_lead();
  try {
    const EncodeCall call{.input = differences_ ? difference_to(input)
                                   : leads      ? with_lead(input, pool)
                                                : input.data(),
                          .residual = differences_ ? nullptr : residual_data(),
                          .elems = elems_,
                          .largest = 0,
                          .step = step,
                          .pool = pool};
    return encode_call(call, input, out);
  } catch (...) {
    out.resize(start);
    throw;
  }
}

}  // namespace tersewire
