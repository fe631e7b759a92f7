// The inner loops, as ordinary functions. Each is written once and compiled for every SIMD target
// that Highway knows; the best one that the machine can run is called. None allocates, throws or
// decides anything. Every target gives the same bits: no fused multiply-add, no reordered sums.
//
// Pointers need no alignment. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tersewire::kernels {

// The largest |a[i] + b[i]| (or |a[i]| where b is null) as its bit pattern, 0 for n = 0. Patterns
// of absolute values compare like the values, and above 0x7F800000 (infinity) lies NaN: a result
// of kNotFinite or more says that some sum is not finite.
inline constexpr std::uint32_t kNotFinite = 0x7F800000;
std::uint32_t max_abs_sum_bits(const float* a, const float* b, std::size_t n);

// The two passes over memory that error accumulation cannot avoid, with nothing packed: what
// encoding is measured against. target[i] += source[i], and the largest |target[i]| as above ...
std::uint32_t accumulate_max_abs_bits(float* target, const float* source, std::size_t n);
// ... then target[i] -= limit where |target[i]| reaches it.
void subtract_where_above(float* target, float limit, std::size_t n);

// 3-value quantization (3LC section 3.1) of t = input[i] + residual[i] (input[i] where residual is
// null): digit sign(t) where 2|t| >= m, else 0. Bit i (LSB first) of `sent` is set where the digit
// is not 0, of `negative` where t < 0; both have room for (n + 63) / 64 words, unused bits become
// 0. The residual becomes t - m * digit. m > 0. Returns whether any digit is not 0.
bool quantize_ternary(const float* input, float* residual, std::size_t n, float m,
                      std::uint64_t* sent, std::uint64_t* negative);

// Base-3^5 encoding (3LC section 3.2) of eight groups in each word: the low 40 bits of sent[i] and
// negative[i] are the digits of groups 8 i to 8 i + 7, five each, and byte j of out[i] becomes
// group 8 i + j. All three arrays need room for `words` rounded up to kMaxWordLanes.
inline constexpr std::size_t kMaxWordLanes = 8;
void pack_fives(const std::uint64_t* sent, const std::uint64_t* negative, std::size_t words,
                std::uint64_t* out);

// Bit i of `bits` (LSB first) says whether bytes[i] != value, for 64 * words bytes.
void not_equal_bits(const std::uint8_t* bytes, std::size_t words, std::uint8_t value,
                    std::uint64_t* bits);

// The number of base-3^5 groups that zero-run encoded bytes stand for (3LC section 3.3): b - 241
// for bytes from 243 on, else 1.
std::uint64_t count_groups(const std::uint8_t* bytes, std::size_t n);

// target[i] = weight * source[i].
void scale(float* target, const float* source, float weight, std::size_t n);

// target[i] += weight * source[i], the product rounded first.
void add_scaled(float* target, const float* source, float weight, std::size_t n);

// target[i] += source[i].
void add(float* target, const float* source, std::size_t n);

// Outputs from this size on leave the caches before anyone reads them: they are written past them.
inline constexpr std::size_t kStreamingElems = std::size_t{1} << 21;

// memcpy that goes past the caches, for targets too large to stay in them. Other threads may see
// what it wrote only after end_streaming() in the thread that copied.
void copy_streaming(float* target, const float* source, std::size_t n);
void end_streaming();

}  // namespace tersewire::kernels
