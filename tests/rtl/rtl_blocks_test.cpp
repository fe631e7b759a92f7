// The compression and decompression blocks of rtl/ against the codec's burst_item() and
// burst_value(): every mode and bound, every exponent, ties and what is next to them.
#include <gtest/gtest.h>

#include "Vcompression_block.h"
#include "Vdecompression_block.h"
#include "burst.h"
#include "codec_test_support.h"

namespace tersewire {
namespace {

using namespace tersewire::test;
using kernels::BurstFormat;
using kernels::BurstItem;
using kernels::BurstTag;

// Calls visit(format) for both modes and every bound.
template <typename Visit>
void for_formats(const Visit& visit) {
  for (unsigned b = 1; b <= 15; ++b) {
    visit(BurstFormat{b, true});
    visit(BurstFormat{b, false});
  }
}

// Both signs of every exponent, with mantissas in which every bit starts or ends a run of ones
// (ties of every rounding, and their neighbours), and random ones.
std::vector<std::uint32_t> all_exponents() {
  std::mt19937 random(11);
  std::vector<std::uint32_t> values;
  for (std::uint32_t exponent = 0; exponent < 256; ++exponent) {
    std::vector<std::uint32_t> mantissas;
    for (unsigned bit = 0; bit <= 23; ++bit) {
      const std::uint32_t power = 1U << bit;
      for (const std::uint32_t m : {power, power - 1, power + 1, 0U - power, 0x7FFFFFU - power}) {
        mantissas.push_back(m & 0x7FFFFFU);
      }
    }
    for (int i = 0; i < 8; ++i) mantissas.push_back(static_cast<std::uint32_t>(random() >> 9));
    for (const std::uint32_t m : mantissas) {
      values.push_back(exponent << 23 | m);
      values.push_back(1U << 31 | exponent << 23 | m);
    }
  }
  return values;
}

template <typename Model>
void tick(Model& model) {
  model.clk = 0;
  model.eval();
  model.clk = 1;
  model.eval();
}

TEST(RtlBlocks, CompressesAsTheCodecDoes) {
  constexpr std::size_t kRegisters = 2;
  const std::vector<std::uint32_t> values = all_exponents();
  Vcompression_block block;
  block.enable = 1;
  for_formats([&](BurstFormat format) {
    block.bounded = format.bounded;
    block.bound_bits = static_cast<std::uint8_t>(format.bound_bits);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < values.size() + kRegisters - 1; ++i) {
      block.value = values[std::min(i, values.size() - 1)];
      tick(block);
      if (i + 1 < kRegisters) continue;
      const float value = from_bits(values[i + 1 - kRegisters]);
      // The codec sends what is not finite uncompressed; a card meets it, and so does tag 3.
      const BurstItem item = std::isnan(value)
                                 ? BurstItem{BurstTag::kFloat, values[i + 1 - kRegisters]}
                                 : kernels::burst_item(value, format);
      if (block.tag == static_cast<unsigned>(item.tag) && block.data == item.data) continue;
      ++wrong;
      ADD_FAILURE() << value << " at bound 2^-" << format.bound_bits << ", bounded "
                    << format.bounded << ": tag " << int{block.tag} << ", data " << block.data
                    << " for " << static_cast<unsigned>(item.tag) << ", " << item.data;
      if (wrong > 3) return;
    }
  });
}

TEST(RtlBlocks, KeepsItsStateWhereItIsNotEnabled) {
  Vcompression_block block;
  block.bounded = 1;
  block.bound_bits = 10;
  block.enable = 1;
  block.value = 0x3F000000;  // 0.5
  tick(block);
  block.value = 0x3F800000;  // 1
  block.enable = 0;
  for (int i = 0; i < 3; ++i) tick(block);
  block.enable = 1;
  tick(block);
  EXPECT_EQ(block.tag, 2);
  EXPECT_EQ(block.data, 0x4000U);
}

TEST(RtlBlocks, DecompressesAsTheCodecDoes) {
  Vdecompression_block block;
  const auto holds = [&](BurstItem item, BurstFormat format) {
    block.tag = static_cast<std::uint8_t>(item.tag);
    block.data = item.data;
    block.eval();
    return block.value == std::bit_cast<std::uint32_t>(kernels::burst_value(item, format));
  };
  for_formats([&](BurstFormat format) {
    block.bounded = format.bounded;
    block.bound_bits = static_cast<std::uint8_t>(format.bound_bits);
    std::size_t wrong = 0;
    for (std::uint32_t data = 0; data < 1U << 16; ++data) {
      if (data < 256) wrong += holds({BurstTag::kByte, data}, format) ? 0 : 1;
      wrong += holds({BurstTag::kTwoBytes, data}, format) ? 0 : 1;
      wrong += holds({BurstTag::kFloat, data * 0x10001U}, format) ? 0 : 1;
    }
    // What follows in the burst is not the tag's.
    wrong += holds({BurstTag::kNothing, 0xFFFFFFFFU}, format) ? 0 : 1;
    EXPECT_EQ(wrong, 0U) << "bound 2^-" << format.bound_bits << ", bounded " << format.bounded;
  });
}

TEST(RtlBlocks, BytesAboveATagsOwnAreIgnored) {
  Vdecompression_block block;
  block.bounded = 1;
  block.bound_bits = 10;
  for (std::uint32_t data = 0; data < 256; ++data) {
    block.tag = 1;
    block.data = data;
    block.eval();
    const std::uint32_t expected = block.value;
    block.data = 0xABCDEF00U | data;
    block.eval();
    EXPECT_EQ(block.value, expected);
    block.tag = 2;
    block.data = 0xABCD0000U | data;
    block.eval();
    EXPECT_EQ(block.value,
              std::bit_cast<std::uint32_t>(kernels::burst_value({BurstTag::kTwoBytes, data}, {})));
  }
}

}  // namespace
}  // namespace tersewire
