// INCEPTIONN's bursts, many at once: the same bytes as burst.h gives one at a time. Pointers need
// no alignment. Any thread; allocates nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "burst.h"
#include "shape.h"

namespace tersewire::kernels {

// No more bytes than these hold n values.
constexpr std::size_t max_burst_bytes(std::size_t n) {
  return divide_up(n, kBurstElems) * kBurstTagBytes + n * sizeof(float);
}

// Encodes t = input + residual (input where residual is null), all finite, as bursts; the last may
// be short. The residual becomes t less what the bursts say. Returns the end of the bursts; up to
// max_burst_bytes(n) bytes from `out` on are touched.
std::uint8_t* encode_bursts(const float* input, float* residual, std::size_t n, BurstFormat format,
                            std::uint8_t* out);

// The end of `count` bursts that begin at `in`; null where they do not lie whole before `end`.
const std::uint8_t* skip_bursts(const std::uint8_t* in, const std::uint8_t* end, std::size_t count);

// Stretches of bursts that are decoded side by side: along a single one a processor waits for its
// tags longer than it works. In the order in which they lie in memory.
inline constexpr std::size_t kBurstStreams = 4;
using BurstStreams = std::array<const std::uint8_t*, kBurstStreams>;

// Decodes the next n values of each stream, a multiple of kBurstElems, into its own array, and
// moves the streams on. All bursts lie whole before `end`.
void decode_bursts(BurstStreams& in, const std::uint8_t* end, BurstFormat format,
                   const std::array<float*, kBurstStreams>& out, std::size_t n);
// The same, adding weight times each value, the product rounded first. What has no data is left.
void decode_add_bursts(BurstStreams& in, const std::uint8_t* end, BurstFormat format, float weight,
                       const std::array<float*, kBurstStreams>& out, std::size_t n);

}  // namespace tersewire::kernels
