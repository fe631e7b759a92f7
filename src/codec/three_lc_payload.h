// The payload of codec 3lc: its layout and head, writing it and reading it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "encoder_options.h"
#include "ternary_groups.h"
#include "tersewire/codec.h"

namespace tersewire {

// A payload's ninth byte (spec/wire-format.md, "Codec 2").
std::uint8_t three_lc_layout_byte(GroupLayout layout);
// And back; throws kDataLoss for bits that mean nothing.
GroupLayout three_lc_layout(std::uint8_t byte);
// That of a payload in blocks (three_lc_blocks.h).
inline constexpr std::uint8_t kThreeLcBlocksLayout = 8;

inline constexpr std::size_t kThreeLcHeadBytes = 9;

// A payload's head, checked, and its body, not yet.
struct ThreeLcPayload {
  float m = 0;
  float sparsity_multiplier = 1;
  bool blocks = false;
  GroupLayout layout;  // where it is not in blocks
  ByteView body;
};

// Throws kDataLoss where the head breaks the format.
ThreeLcPayload parse_three_lc(ByteView payload);

// No payload made here is longer.
constexpr std::size_t three_lc_max_bytes(std::size_t elems) {
  return kThreeLcHeadBytes + group_count(elems);
}

std::unique_ptr<Encoder> make_three_lc_encoder(std::size_t elems, const EncoderContext& context,
                                               float sparsity_multiplier, GroupLayout layout,
                                               const EncoderOptions& options);

// As in tersewire/codec.h, for payloads of this codec.
void check_three_lc(ByteView payload, std::size_t elems);
void decode_three_lc(ByteView payload, std::span<float> out, ThreadPool* pool);
void decode_add_three_lc(ByteView payload, float weight, std::span<float> out, ThreadPool* pool);

}  // namespace tersewire
