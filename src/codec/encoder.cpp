// What an Encoder does where its codec has no form of its own for it, and what a Codec says of its
// encoders.
#include <algorithm>
#include <cmath>
#include <limits>

#include "errors.h"
#include "float_mode.h"
#include "tersewire/codec.h"

namespace tersewire {

Encoded Encoder::encode_f64(std::span<const double> input, std::uint64_t step, Bytes& out,
                            ThreadPool* pool) {
  const DefaultFloatMode mode;
  Floats values(input.size());
  for (std::size_t i = 0; i < input.size(); ++i) {
    values[i] = static_cast<float>(input[i]);
    if (std::isinf(values[i]) && std::isfinite(input[i])) {
      fail(ErrorCode::kInvalidArgument,
           "value {} is {}, beyond the {} that a 32-bit float holds; scale the array", i, input[i],
           std::numeric_limits<float>::max());
    }
  }
  return encode(values, step, out, pool);
}

std::vector<float> Encoder::local_scalers(std::span<const float>, ThreadPool*) { return {}; }

Encoded Encoder::encode_under(std::span<const float>, std::span<const float>, std::uint64_t, Bytes&,
                              ThreadPool*) {
  fail(ErrorCode::kInvalidArgument,
       "this codec has no scalers that senders could share; encode each tensor by itself");
}

void Encoder::observe_gradient(std::span<const float>) {}

void Encoder::give_back(CodecId codec, ByteView payload) {
  const std::span<float> kept = residual();
  if (codec == CodecId::kFp32 || kept.empty()) return;
  decode_add(codec, payload, 1.0F, kept);
  constexpr float kLargest = std::numeric_limits<float>::max();
  for (float& value : kept) value = std::clamp(value, -kLargest, kLargest);
}

bool Codec::keeps_residual() const { return !make_encoder(1)->residual().empty(); }

bool Codec::sends_differences() const { return make_encoder(1)->sends_differences(); }

}  // namespace tersewire
