// The payload of codec 3lc: its head, its encoder and the shared pieces of reading it.
#pragma once

#include <cstdint>
#include <memory>

#include "three_lc.h"

namespace tersewire {

inline constexpr std::size_t kThreeLcHeadBytes = 9;

// A payload's head, checked, and its body, not yet.
struct ThreeLcPayload {
  float m = 0;
  float sparsity_multiplier = 1;
  ThreeLcLayout layout;
  ByteView body;
};

// Throws kDataLoss where the head breaks the format.
ThreeLcPayload parse_three_lc(ByteView payload);

// Groups of five values.
constexpr std::size_t three_lc_groups(std::size_t elems) {
  return elems / 5 + (elems % 5 != 0 ? 1 : 0);
}

// No payload made here is longer.
constexpr std::size_t three_lc_max_bytes(std::size_t elems) {
  return kThreeLcHeadBytes + three_lc_groups(elems);
}

std::unique_ptr<Encoder> make_three_lc_encoder(std::size_t elems, float sparsity_multiplier,
                                               ThreeLcLayout layout, const EncoderOptions& options);

}  // namespace tersewire
