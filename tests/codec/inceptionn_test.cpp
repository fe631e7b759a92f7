// Codec inceptionn: bytes worked by hand, the paper's algorithms as they are printed, and the
// bound.
#include <gtest/gtest.h>

#include <tuple>
#include <utility>

#include "../../src/kernels/burst.h"
#include "codec_test_support.h"

namespace tersewire {
namespace {

using namespace tersewire::test;
using kernels::BurstFormat;

constexpr CodecId kCodec = CodecId::kInceptionn;

std::string text_of(BurstFormat format) {
  return std::string("inceptionn:mode=") + (format.bounded ? "bounded" : "paper") + ",bound=2^-" +
         std::to_string(format.bound_bits);
}

std::vector<BurstFormat> all_formats() {
  std::vector<BurstFormat> formats;
  for (unsigned b = 1; b <= 15; ++b) {
    formats.push_back({b, true});
    formats.push_back({b, false});
  }
  return formats;
}

// --- Known answers

struct KnownAnswer {
  const char* codec;
  Floats input;
  std::vector<int> payload;
  Floats decoded;
};

TEST(Inceptionn, KnownAnswers) {
  const Floats values{1, -2, .5F, 0x1p-10F, 0x1p-9F, -0x3p-9F, 0x7Fp-9F, -.25F};
  const std::vector<KnownAnswer> answers{
      // Multiples of 2^-9: 1 -> 3, -2 -> 3, 0.5 = 256 -> 2, half a step -> 0, 1 -> 1, -3 -> 1,
      // 127 -> 1, -128 -> 2. Tags 3+12+32+0+256+1024+4096+32768 = 0x952F.
      {"inceptionn",
       values,
       {0x1A, 0x2F, 0x95, 0, 0, 0x80, 0x3F, 0, 0, 0, 0xC0, 0, 0x40, 1, 0x83, 0x7F, 0, 0xA0},
       {1, -2, .5F, 0, 0x1p-9F, -0x3p-9F, 0x7Fp-9F, -.25F}},
      // From 2^-5 on two bytes, from 2^-10 on one, of multiples of 2^-7: 0, 0 and -0.
      // Tags 3+12+32+64+256+1024+8192+32768 = 0xA56F.
      {"inceptionn:mode=paper",
       values,
       {0x0A, 0x6F, 0xA5, 0, 0, 0x80, 0x3F, 0,    0, 0,
        0xC0, 0,    0x40, 0, 0, 0x80, 0xC0, 0x1F, 0, 0xA0},
       {1, -2, .5F, 0, 0, 0, 0x7Fp-9F, -.25F}},
      // The largest float below 1 rounds to 32768, which 15 bits do not hold.
      {"inceptionn:bound=2^-15", {-0x1.FFFFFEp-1F}, {0x1F, 2, 0, 0xFF, 0xFF}, {-0x7FFFp-15F}},
      // With seven bits to 2^0 nothing needs two bytes: 1 (rounded up from below), 64/64.
      {"inceptionn:bound=2^-7", {0x1.FFFFFEp-1F}, {0x17, 1, 0, 64}, {1}},
      // 127.5 steps of 2^-7 are 128: two bytes.
      {"inceptionn:bound=2^-8", {0xFFp-8F}, {0x18, 2, 0, 0x80, 0x7F}, {0xFFp-8F}},
      {"inceptionn:bound=2^-1", {.5F, .75F, -.5F}, {0x11, 4, 0, 1}, {0, 1, 0}},
      {"inceptionn:mode=paper,bound=2^-1", {.5F, .25F}, {1, 1, 0, 64}, {.5F, 0}},
      {"inceptionn", {}, {0x1A}, {}},
      {"inceptionn", Floats(9, -0.0F), {0x1A, 0, 0, 0, 0}, Floats(9, 0.0F)},
      {"inceptionn", {kLargest}, {0x1A, 3, 0, 0xFF, 0xFF, 0x7F, 0x7F}, {kLargest}},
  };
  for (const KnownAnswer& answer : answers) {
    SCOPED_TRACE(testing::Message() << answer.codec << ", " << answer.input.size() << " values");
    const Bytes payload = encoded(answer.codec, answer.input);
    EXPECT_EQ(payload, bytes_of(answer.payload));
    EXPECT_EQ(bits_of(decoded(kCodec, payload, answer.input.size())), bits_of(answer.decoded));
  }
}

// --- The paper's algorithms, line by line

std::uint32_t slice(std::uint32_t bits, unsigned high, unsigned low) {
  return bits >> low & ((1U << (high - low + 1)) - 1);
}

struct Compressed {
  std::uint32_t v = 0;
  unsigned t = 0;
};

// Algorithm 2. `error_bound` is an exponent field, as the algorithm compares it with one.
Compressed algorithm_2(std::uint32_t f, unsigned error_bound) {
  const std::uint32_t s = slice(f, 31, 31);
  const std::uint32_t e = slice(f, 30, 23);
  const std::uint32_t m = slice(f, 22, 0);
  if (e >= 127) return {f, 0b11};
  if (e < error_bound) return {0, 0b00};
  const std::uint32_t n_shift = 127 - e;
  const std::uint32_t shifted_m = (1U << 23 | m) >> n_shift;
  const unsigned ceiling = (127 - error_bound + 1) / 2;
  if (e >= error_bound + ceiling) return {s << 15 | slice(shifted_m, 22, 8), 0b10};
  return {s << 7 | slice(shifted_m, 22, 16), 0b01};
}

// Algorithm 3; a field without a 1 is the value 0.
std::uint32_t algorithm_3(Compressed c) {
  if (c.t == 0b11) return c.v;
  if (c.t == 0b00) return 0;
  const unsigned width = c.t == 0b01 ? 7 : 15;
  const std::uint32_t field = slice(c.v, width - 1, 0);
  if (field == 0) return 0;
  unsigned n_shift = 1;  // the first position is 1
  while (slice(field, width - n_shift, width - n_shift) == 0) ++n_shift;
  const std::uint32_t kept = field << n_shift & ((1U << width) - 1);
  const std::uint32_t m = kept << (23 - width);
  return slice(c.v, width, width) << 31 | (127 - n_shift) << 23 | m;
}

// Every finite exponent and sign with corner mantissas and random ones.
Floats all_exponents(unsigned seed) {
  std::mt19937 random(seed);
  Floats values;
  for (std::uint32_t exponent = 0; exponent < 255; ++exponent) {
    std::vector<std::uint32_t> mantissas{0,        1,        0x3FFFFF, 0x400000,
                                         0x400001, 0x7FFFFF, 0x7F0000, 0x7E8000,
                                         0x7EFFFF, 0x7FFF00, 0x000100, 0x010000};
    for (int i = 0; i < 12; ++i) mantissas.push_back(static_cast<std::uint32_t>(random() >> 9));
    for (const std::uint32_t mantissa : mantissas) {
      for (const std::uint32_t sign : {0U, 1U}) {
        values.push_back(from_bits(sign << 31 | exponent << 23 | mantissa));
      }
    }
  }
  return values;
}

// Section VI-A: the tags of eight values, then their vectors.
Bytes literal_payload(const Floats& values, unsigned b) {
  Bytes out{static_cast<std::byte>(b)};
  for (std::size_t i = 0; i < values.size(); i += 8) {
    unsigned tags = 0;
    Bytes data;
    for (std::size_t k = 0; k < 8 && i + k < values.size(); ++k) {
      const Compressed c = algorithm_2(bits_of(std::span(values).subspan(i + k, 1))[0], 127 - b);
      tags |= c.t << 2 * k;
      for (unsigned byte = 0; byte < (c.t == 3 ? 4 : c.t); ++byte) {
        data.push_back(static_cast<std::byte>(c.v >> 8 * byte));
      }
    }
    out.push_back(static_cast<std::byte>(tags));
    out.push_back(static_cast<std::byte>(tags >> 8));
    out.insert(out.end(), data.begin(), data.end());
  }
  return out;
}

TEST(Inceptionn, PaperModeIsAlgorithms2And3) {
  const Floats values = all_exponents(1);
  for (const std::string& target : simd_targets()) {
    const ForcedTarget forced(target);
    for (unsigned b = 1; b <= 15; ++b) {
      const Bytes payload = literal_payload(values, b);
      ASSERT_TRUE(encoded(text_of({b, false}), values) == payload) << target << " 2^-" << b;
      std::vector<std::uint32_t> expected;
      for (const std::uint32_t f : bits_of(values)) {
        expected.push_back(algorithm_3(algorithm_2(f, 127 - b)));
      }
      ASSERT_TRUE(bits_of(decoded(kCodec, payload, values.size())) == expected)
          << target << " 2^-" << b;
    }
  }
}

// --- The bounded mode

TEST(Inceptionn, BoundedModeKeepsTheBound) {
  for (const std::string& target : simd_targets()) {
    const ForcedTarget forced(target);
    for (unsigned b = 1; b <= 15; ++b) {
      Floats values = all_exponents(b);
      // Around every multiple of half a step, as far as a byte goes.
      for (int i = 0; i <= 256; ++i) {
        const float half_steps = std::ldexp(static_cast<float>(i), -static_cast<int>(b));
        for (const float towards : {0.0F, half_steps, kLargest}) {
          values.push_back(std::nextafter(half_steps, towards));
        }
      }
      const Floats found = decoded(kCodec, encoded(text_of({b, true}), values), values.size());
      const double bound = std::ldexp(1.0, -static_cast<int>(b));
      std::size_t wrong = 0;
      for (std::size_t e = 0; e < values.size(); ++e) {
        const bool is_exact = found[e] == values[e];
        const bool is_close = std::fabs(double{found[e]} - double{values[e]}) <= bound;
        wrong += (std::fabs(values[e]) >= 1 ? is_exact : is_close) ? 0 : 1;
      }
      EXPECT_EQ(wrong, 0U) << target << " 2^-" << b;
    }
  }
}

TEST(Inceptionn, BoundedIsSmallerAndMoreExactThanPaper) {
  const Floats values = heavy_tailed(100'000, 5, 1e-2F);
  for (const unsigned b : {8U, 10U}) {
    const auto measure = [&](bool bounded) {
      const Bytes payload = encoded(text_of({b, bounded}), values);
      const Floats found = decoded(kCodec, payload, values.size());
      double squares = 0;
      double largest = 0;
      for (std::size_t e = 0; e < values.size(); ++e) {
        const double error = std::fabs(double{found[e]} - double{values[e]});
        squares += error * error;
        largest = std::max(largest, error);
      }
      return std::tuple(payload.size(), squares, largest);
    };
    const auto [bytes, squares, largest] = measure(true);
    const auto [paper_bytes, paper_squares, paper_largest] = measure(false);
    EXPECT_LT(bytes, paper_bytes);
    EXPECT_LT(squares, paper_squares);
    EXPECT_LT(largest, paper_largest);
    EXPECT_LE(largest, std::ldexp(1.0, -static_cast<int>(b)));
    EXPECT_GT(paper_largest, 0.9 / 128);  // what the errata say of it
  }
}

// --- Every target, every number of threads

TEST(Inceptionn, TheModelSaysTheBytes) {
  for (const BurstFormat format : all_formats()) {
    for (std::size_t n = 0; n < 200; n += n < 80 ? 1 : 17) {
      const Floats input = n % 2 == 0 ? heavy_tailed(n, 6, 0.1F) : odd_values(n, 7);
      const auto encoder = make_codec(text_of(format) + ",ef=on")->make_encoder(n);
      Floats residual(n, 0.0F);
      for (std::uint64_t step = 0; step < 3; ++step) {
        std::vector<std::uint8_t> model(1 + n / 8 * 34 + 34);
        model[0] = static_cast<std::uint8_t>(format.bound_bits | (format.bounded ? 16 : 0));
        std::uint8_t* end = model.data() + 1;
        for (std::size_t i = 0; i < n; i += 8) {
          end = kernels::encode_burst(input.data() + i, residual.data() + i,
                                      std::min<std::size_t>(8, n - i), format, end);
        }
        Bytes out;
        encoder->encode(input, step, out);
        ASSERT_EQ(out.size(), static_cast<std::size_t>(end - model.data()));
        ASSERT_EQ(std::memcmp(out.data(), model.data(), out.size()), 0) << n << " values";
        ASSERT_EQ(bits_of(encoder->residual()), bits_of(residual));
      }
    }
  }
}

TEST(Inceptionn, TheSameEverywhere) {
  for (std::size_t n = 0; n < 150; ++n) {
    expect_same_everywhere("inceptionn", odd_values(n, static_cast<unsigned>(n)));
    expect_same_everywhere("inceptionn:mode=paper,ef=on", heavy_tailed(n, 8, 0.05F));
  }
  for (const BurstFormat format : all_formats()) {
    expect_same_everywhere(text_of(format) + ",ef=on", heavy_tailed(1003, 9, 0.3F));
  }
  for (const char* text : {"inceptionn:ef=on", "inceptionn:bound=2^-14,mode=paper"}) {
    expect_same_everywhere(text, heavy_tailed(300'003, 10, 0.02F));
    expect_same_everywhere(text, Floats(200'000, 0.0F));
  }
}

TEST(Inceptionn, MaxEncodedBytesIsReached) {
  for (const std::size_t n : {0U, 1U, 7U, 8U, 9U, 1000U}) {
    const Floats input(n, -1.5F);
    EXPECT_EQ(encoded("inceptionn", input).size(), make_codec("inceptionn")->max_encoded_bytes(n));
  }
}

TEST(Inceptionn, WhatIsNotFiniteTravelsAsItIs) {
  expect_raw_where_not_finite("inceptionn");
  expect_raw_where_not_finite("inceptionn:mode=paper,ef=on");
}

// --- Adding

TEST(Inceptionn, AddingLeavesAloneWhatHasNoData) {
  // No data; one byte of 0 with either sign; a value. For a scalar burst and for a block of them.
  for (const std::size_t bursts : {1U, 20U}) {
    Bytes payload = bytes_of({10});
    for (std::size_t i = 0; i < bursts; ++i) {
      const Bytes burst = bytes_of({0b01010100, 0, 0, 0x80, 64});
      payload.insert(payload.end(), burst.begin(), burst.end());
    }
    for (const std::string& target : simd_targets()) {
      const ForcedTarget forced(target);
      Floats out(8 * bursts, -0.0F);
      decode_add(kCodec, payload, 2.0F, out);
      Floats once(8 * bursts, 1.0F);
      decode_add(kCodec, payload, kInfinity, once);
      for (std::size_t i = 0; i < out.size(); i += 8) {
        EXPECT_EQ(bits_of(std::span(out).subspan(i, 5)), bits_of(Floats{-0.0F, 0, 0, 1, -0.0F}));
        EXPECT_EQ(once[i], 1.0F);
        EXPECT_TRUE(std::isnan(once[i + 1]));  // infinity times 0
        EXPECT_EQ(once[i + 3], kInfinity);
      }
    }
  }
}

TEST(Inceptionn, GivingBackRestoresTheSum) {
  const auto encoder = make_codec("inceptionn:bound=2^-4,ef=on")->make_encoder(999);
  const Floats input = heavy_tailed(999, 12, 0.25F);
  Bytes out;
  const Encoded made = encoder->encode(input, 0, out);
  encoder->give_back(made.codec, out);
  EXPECT_EQ(Floats(encoder->residual().begin(), encoder->residual().end()), input);
}

// --- Payloads that break the format, and texts

// Any tags and any data are a payload, as long as its length is right.
TEST(Inceptionn, EveryBurstIsAValue) {
  std::mt19937 random(13);
  for (const BurstFormat format : all_formats()) {
    for (const std::size_t n : {8U, 61U, 800U}) {
      Bytes payload = encoded(text_of(format), Floats());
      Floats expected(n);
      Floats sum(n, 3.0F);
      for (std::size_t i = 0; i < n; i += 8) {
        const std::size_t count = std::min<std::size_t>(8, n - i);
        std::vector<std::uint8_t> burst(34);
        for (auto& byte : burst) byte = static_cast<std::uint8_t>(random());
        const unsigned tags = (burst[0] | 256U * burst[1]) & ((1U << 2 * count) - 1);
        burst[0] = static_cast<std::uint8_t>(tags);
        burst[1] = static_cast<std::uint8_t>(tags >> 8);
        const auto* end = kernels::decode_burst(burst.data(), format, expected.data() + i, count);
        kernels::decode_add_burst(burst.data(), format, 0.7F, sum.data() + i, count);
        for (const auto* at = burst.data(); at != end; ++at) payload.push_back(std::byte{*at});
      }
      for (const std::string& target : simd_targets()) {
        const ForcedTarget forced(target);
        ASSERT_EQ(bits_of(decoded(kCodec, payload, n)), bits_of(expected));
        Floats added(n, 3.0F);
        decode_add(kCodec, payload, 0.7F, added);
        for (std::size_t e = 0; e < n; ++e) {
          ASSERT_TRUE(added[e] == sum[e] || (std::isnan(added[e]) && std::isnan(sum[e])));
        }
      }
    }
  }
}

TEST(Inceptionn, TruncatedAndLengthenedPayloads) {
  Bytes payload = encoded("inceptionn", heavy_tailed(397, 14, 0.3F));
  for (std::size_t n = 0; n < payload.size(); ++n) {
    expect_rejected(kCodec,
                    Bytes(payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(n)), 397);
  }
  for (const std::size_t n : {0U, 1U, 389U, 392U, 401U, 408U}) expect_rejected(kCodec, payload, n);
  payload.push_back(std::byte{0});
  expect_rejected(kCodec, payload, 397);
  EXPECT_TRUE(fails_with(ErrorCode::kDataLoss,
                         [&] { check_payload(kCodec, payload, std::size_t{1} << 40); }));
}

TEST(Inceptionn, AlteredPayloads) {
  for (int layout = 0; layout < 256; ++layout) {
    const Bytes payload = bytes_of({layout, 1, 0, 5});
    if (layout < 32 && layout % 16 != 0) {
      EXPECT_NO_THROW(check_payload(kCodec, payload, 1)) << layout;
    } else {
      expect_rejected(kCodec, payload, 1);
    }
  }
  // A tag behind the last value, with data and without a place.
  for (std::size_t n = 1; n < 8; ++n) {
    EXPECT_NO_THROW(check_payload(kCodec, bytes_of({26, 1, 0, 5}), n));
    const unsigned tags = 1U << 2 * n;
    expect_rejected(
        kCodec, bytes_of({26, static_cast<int>(tags & 255), static_cast<int>(tags >> 8), 5}), n);
  }
}

TEST(Inceptionn, Texts) {
  EXPECT_EQ(make_codec("inceptionn")->text(),
            "inceptionn:mode=bounded,bound=2^-10,ef=off,non-finite=send");
  EXPECT_EQ(make_codec("inceptionn:bound=2^-1,mode=paper,ef=on")->text(),
            "inceptionn:mode=paper,bound=2^-1,ef=on,non-finite=send");
  for (const char* bound :
       {"2^-16", "2^-0", "2^-010", "2^10", "0.001", "2^-", "2^-1.5", "2^-10 "}) {
    EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, [&] {
      make_codec(std::string("inceptionn:bound=") + bound);
    })) << bound;
  }
  const auto parameters = payload_parameters(kCodec, bytes_of({0x1A}));
  ASSERT_EQ(parameters.size(), 2U);
  EXPECT_EQ(parameters[0].value, "bounded");
  EXPECT_EQ(parameters[1].value, "2^-10");
}

}  // namespace
}  // namespace tersewire
