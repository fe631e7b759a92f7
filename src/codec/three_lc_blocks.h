// Codec 3lc in blocks (spec/wire-format.md, "Codec 2"): each block of a tensor has a magnitude and
// a threshold of its own, and what is sent is named by its place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "encoder_options.h"
#include "positions.h"
#include "tersewire/codec.h"

namespace tersewire {

// Values of a block: whole words of 64, and no more than are summed at once.
inline constexpr std::uint64_t kMinBlockElems = 64;
inline constexpr std::uint64_t kMaxBlockElems = 4096;

// Sparsity multipliers are from 1 to below this.
inline constexpr float kMaxBlocksMultiplier = 16;

// No payload made here is longer.
std::size_t three_lc_blocks_max_bytes(std::size_t elems, std::size_t block_elems);

std::unique_ptr<Encoder> make_three_lc_blocks_encoder(std::size_t elems,
                                                      const EncoderContext& context,
                                                      float sparsity_multiplier,
                                                      std::size_t block_elems,
                                                      const EncoderOptions& options);

// A body in blocks, its head checked, its stream not yet.
struct ThreeLcBlocks {
  std::size_t block_elems;
  ByteView scales;  // a byte a block
  SignedGaps sent;
};

// Throws kDataLoss where the head breaks the format or does not fit `elems` values.
ThreeLcBlocks parse_three_lc_blocks(ByteView body, std::size_t elems);

// As in tersewire/codec.h; `m` is the payload's.
void check_three_lc_blocks(ByteView body, std::size_t elems);
void decode_three_lc_blocks(float m, ByteView body, std::span<float> out);
void decode_add_three_lc_blocks(float m, ByteView body, float weight, std::span<float> out);

}  // namespace tersewire
