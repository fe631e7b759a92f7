// The inception blocks of GoogLeNet (Szegedy et al. 2014, table 1), without a word of libtorch: the
// model and the bench's list of its tensors are made of the same rows.
#pragma once

#include <array>
#include <cstdint>

namespace tersewire::trainer {

// A block and the channels of its convolutions, each of which reads the block's `in` channels or
// what its branch was reduced to.
struct InceptionBlock {
  const char* name;
  std::int64_t in;
  std::int64_t ones;
  std::int64_t reduced3, threes;
  std::int64_t reduced5, fives;
  std::int64_t pooled;
};

// A pool comes before those whose names end with 'a'.
inline constexpr std::array<InceptionBlock, 9> kInceptionBlocks = {
    {{"3a", 192, 64, 96, 128, 16, 32, 32},
     {"3b", 256, 128, 128, 192, 32, 96, 64},
     {"4a", 480, 192, 96, 208, 16, 48, 64},
     {"4b", 512, 160, 112, 224, 24, 64, 64},
     {"4c", 512, 128, 128, 256, 24, 64, 64},
     {"4d", 512, 112, 144, 288, 32, 64, 64},
     {"4e", 528, 256, 160, 320, 32, 128, 128},
     {"5a", 832, 256, 160, 320, 32, 128, 128},
     {"5b", 832, 384, 192, 384, 48, 128, 128}}};

}  // namespace tersewire::trainer
