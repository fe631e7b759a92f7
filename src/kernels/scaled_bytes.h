// Values as signed bytes that a scale is multiplied with. Any alignment, any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tersewire::kernels {

// T = input + residual (input alone where residual is null) becomes the byte nearest to
// (T * factor) * quotient, ties to even, and decodes to the byte times `step`.
struct ByteScale {
  float factor;
  float quotient;
  float step;
};

// No product may be beyond -128 and 127. The residual becomes T less what its byte decodes to.
void quantize_bytes(const float* input, float* residual, std::size_t n, const ByteScale& scale,
                    std::int8_t* out);

// out[i] becomes bytes[i] * step ...
void scale_bytes(const std::int8_t* bytes, std::size_t n, float step, float* out);
// ... or has weight * (bytes[i] * step) added.
void add_scaled_bytes(const std::int8_t* bytes, std::size_t n, float step, float weight,
                      float* out);

}  // namespace tersewire::kernels
