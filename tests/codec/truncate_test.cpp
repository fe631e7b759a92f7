// Codec truncate: bytes worked by hand, and every float's upper bits on every SIMD target.
#include <gtest/gtest.h>

#include <tuple>

#include "codec_test_support.h"

namespace tersewire {
namespace {

using namespace tersewire::test;

constexpr CodecId kCodec = CodecId::kTruncate;
constexpr std::array<unsigned, 3> kDropped{16, 22, 24};

std::string text_of(unsigned dropped) { return "truncate:bits=" + std::to_string(dropped); }

// The specification, a bit at a time.
Bytes encoded_plainly(unsigned dropped, const Floats& input) {
  const std::size_t width = 32 - dropped;
  Bytes out(1 + (input.size() * width + 7) / 8, std::byte{0});
  out[0] = static_cast<std::byte>(dropped);
  std::size_t at = 0;
  for (const std::uint32_t bits : bits_of(input)) {
    for (std::size_t k = 0; k < width; ++k, ++at) {
      out[1 + at / 8] |= static_cast<std::byte>((bits >> (dropped + k) & 1) << at % 8);
    }
  }
  return out;
}

TEST(Truncate, KnownAnswers) {
  const Floats values{1, -2, .5F};  // 3F800000, C0000000, 3F000000
  EXPECT_EQ(encoded(text_of(16), values), bytes_of({16, 0x80, 0x3F, 0, 0xC0, 0, 0x3F}));
  // Ten bits: 0FE, 300, 0FC; together 0FCC00FE.
  EXPECT_EQ(encoded(text_of(22), values), bytes_of({22, 0xFE, 0, 0xCC, 0x0F}));
  EXPECT_EQ(encoded(text_of(24), values), bytes_of({24, 0x3F, 0xC0, 0x3F}));
  for (const unsigned dropped : kDropped) {
    EXPECT_EQ(encoded(text_of(dropped), {}), bytes_of({static_cast<int>(dropped)}));
    Floats found(3);
    decode(kCodec, encoded(text_of(dropped), values), found);
    // Sign and seven exponent bits do not tell 1 from 0.5.
    EXPECT_EQ(found, dropped == 24 ? (Floats{.5F, -2, .5F}) : values);
  }
}

TEST(Truncate, EveryTargetKeepsTheUpperBits) {
  const Floats all = odd_values(5000, 1);
  for (const std::string& target : simd_targets()) {
    const ForcedTarget forced(target);
    for (const unsigned dropped : kDropped) {
      for (std::size_t n = 0; n < 5000; n += n < 70 ? 1 : 379) {
        const Floats input(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n));
        const Bytes payload = encoded(text_of(dropped), input);
        ASSERT_TRUE(payload == encoded_plainly(dropped, input)) << target << " " << n;
        Floats found(n);
        decode(kCodec, payload, found);
        std::vector<std::uint32_t> expected = bits_of(input);
        for (std::uint32_t& bits : expected) bits = bits >> dropped << dropped;
        ASSERT_EQ(bits_of(found), expected) << target << " " << n;
      }
    }
  }
}

TEST(Truncate, TheSameEverywhere) {
  for (const unsigned dropped : kDropped) {
    for (std::size_t n = 0; n < 140; ++n) {
      expect_same_everywhere(text_of(dropped), odd_values(n, static_cast<unsigned>(n)));
      expect_same_everywhere(text_of(dropped) + ",ef=on", heavy_tailed(n, 2));
    }
    expect_same_everywhere(text_of(dropped), odd_values(200'003, 3));
    expect_same_everywhere(text_of(dropped) + ",ef=on", heavy_tailed(200'003, 4));
  }
}

// Past the caches, where they cannot hold the output.
TEST(Truncate, LargeOutputs) {
  const std::size_t n = (std::size_t{1} << 21) + 77;
  for (const unsigned dropped : kDropped) {
    const Bytes payload = encoded(text_of(dropped), heavy_tailed(n, 5));
    ThreadPool pool(3);
    Floats found(n);
    decode(kCodec, payload, found, &pool);
    Floats sum(n, 0.0F);
    decode_add(kCodec, payload, 1, sum);
    EXPECT_TRUE(found == sum);
  }
}

// Bit patterns that no encoder of finite values makes are values all the same.
TEST(Truncate, AnyBitsAreAValue) {
  const Bytes payload = bytes_of({16, 0x80, 0x7F, 0x80, 0xFF, 0xC0, 0x7F});
  Floats found(3);
  decode(kCodec, payload, found);
  EXPECT_EQ(bits_of(found), (std::vector<std::uint32_t>{0x7F800000, 0xFF800000, 0x7FC00000}));
}

TEST(Truncate, WhatIsNotFiniteTravelsAsItIs) {
  for (const unsigned dropped : kDropped) {
    expect_raw_where_not_finite(text_of(dropped));
    expect_raw_where_not_finite(text_of(dropped) + ",ef=on");
  }
}

TEST(Truncate, MaxEncodedBytes) {
  for (const unsigned dropped : kDropped) {
    const auto codec = make_codec(text_of(dropped));
    EXPECT_EQ(codec->max_encoded_bytes(0), 1U);
    EXPECT_EQ(codec->max_encoded_bytes(1000), 4000U);  // where they are not finite
  }
}

TEST(Truncate, TruncatedAndLengthenedPayloads) {
  for (const unsigned dropped : kDropped) {
    Bytes payload = encoded(text_of(dropped), heavy_tailed(67, 5));
    for (std::size_t n = 0; n < payload.size(); ++n) {
      expect_rejected(kCodec,
                      Bytes(payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(n)), 67);
    }
    expect_rejected(kCodec, payload, 66);
    expect_rejected(kCodec, payload, 68);
    payload.push_back(std::byte{0});
    expect_rejected(kCodec, payload, 67);
    EXPECT_TRUE(fails_with(ErrorCode::kDataLoss,
                           [&] { check_payload(kCodec, payload, std::size_t{1} << 40); }));
  }
}

TEST(Truncate, AlteredPayloads) {
  for (int head = 0; head < 256; ++head) {
    if (head == 16 || head == 22 || head == 24) continue;
    expect_rejected(kCodec, bytes_of({head, 0, 0}), 1);
  }
  // Six bits are left over after one value of ten, four after two, two after three.
  for (const auto& [elems, bytes, bit] : {std::tuple{1U, 2U, 2}, {2U, 3U, 4}, {3U, 4U, 6}}) {
    for (int k = 0; k < 8; ++k) {
      Bytes payload(1 + bytes, std::byte{0});
      payload.front() = std::byte{22};
      payload.back() = static_cast<std::byte>(1 << k);
      if (k < bit) {
        EXPECT_NO_THROW(check_payload(kCodec, payload, elems));
      } else {
        expect_rejected(kCodec, payload, elems);
      }
    }
  }
}

TEST(Truncate, Texts) {
  EXPECT_EQ(make_codec("truncate")->text(), "truncate:bits=16,ef=off,non-finite=send");
  EXPECT_EQ(make_codec("truncate:bits=22,ef=on")->text(), "truncate:bits=22,ef=on,non-finite=send");
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, [] { make_codec("truncate:bits=8"); }));
  const auto parameters = payload_parameters(kCodec, bytes_of({24, 1}));
  ASSERT_EQ(parameters.size(), 1U);
  EXPECT_EQ(parameters[0].value, "24");
}

}  // namespace
}  // namespace tersewire
