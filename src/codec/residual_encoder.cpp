#include "residual_encoder.h"

#include <algorithm>
#include <atomic>
#include <bit>

#include "byte_io.h"
#include "errors.h"
#include "kernels.h"

namespace tersewire {
namespace {

// A part shorter than this costs more to hand to a thread than it saves.
constexpr std::size_t kMinPartElems = 1 << 16;

}  // namespace

Partition Partition::of(std::size_t items, std::size_t unit, const ThreadPool* pool) {
  const std::size_t threads = pool != nullptr ? pool->threads() : 1;
  const std::size_t even = (items + threads - 1) / threads;
  const std::size_t part = (std::max<std::size_t>(even, 1) + unit - 1) / unit * unit;
  return {.items = items, .part = part};
}

ResidualEncoder::ResidualEncoder(std::size_t elems, const EncoderOptions& options)
    : elems_(elems), reject_not_finite_(options.reject_not_finite) {
  if (options.error_feedback) residual_.resize(elems);
}

std::uint32_t ResidualEncoder::max_abs_bits(const float* input, ThreadPool* pool) const {
  const float* residual = residual_.empty() ? nullptr : residual_.data();
  const auto parts = Partition::of(elems_, kMinPartElems, pool);
  std::atomic<std::uint32_t> largest{0};
  run_parts(pool, parts.count(), [&](std::size_t i) {
    const std::size_t begin = parts.begin(i);
    const std::uint32_t bits = kernels::max_abs_sum_bits(
        input + begin, residual != nullptr ? residual + begin : nullptr, parts.end(i) - begin);
    std::uint32_t seen = largest.load();
    while (seen < bits && !largest.compare_exchange_weak(seen, bits)) {
    }
  });
  return largest.load();
}

Encoded ResidualEncoder::encode(std::span<const float> input, Bytes& out, ThreadPool* pool) {
  if (input.size() != elems_) {
    fail(ErrorCode::kInvalidArgument, "the encoder was made for {} values and got {}", elems_,
         input.size());
  }
  const std::uint32_t largest = max_abs_bits(input.data(), pool);
  if (largest < kernels::kNotFinite) {
    float* residual = residual_.empty() ? nullptr : residual_.data();
    return {encode_finite(input.data(), residual, std::bit_cast<float>(largest), out, pool), false};
  }
  if (reject_not_finite_) {
    fail(ErrorCode::kInvalidArgument,
         "the tensor holds a NaN or an infinity, or its sum with the residual overflows; mend the "
         "input or use non-finite=send");
  }
  append(out, input.data(), input.size_bytes());
  return {CodecId::kFp32, true};
}

void Encoder::give_back(CodecId codec, ByteView payload) {
  if (codec == CodecId::kFp32 || residual().empty()) return;
  decode_add(codec, payload, 1.0F, residual());
}

}  // namespace tersewire
