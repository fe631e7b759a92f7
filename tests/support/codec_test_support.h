// What tests of codecs share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tersewire/codec.h"
#include "tersewire/error.h"
#include "tersewire/simd.h"

namespace tersewire::test {

inline constexpr float kLargest = std::numeric_limits<float>::max();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kDenormal = std::numeric_limits<float>::denorm_min();

// The codec as published, where what is worked by hand is: a new value counts once.
inline std::string without_lead(const std::string& codec) {
  return codec + (codec.find(':') == std::string::npos ? ":" : ",") + "lead=1";
}

inline Bytes bytes_of(const std::vector<int>& values) {
  Bytes bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

inline float from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

// Bit patterns: -0 is not 0, and NaN is NaN.
inline std::vector<std::uint32_t> bits_of(std::span<const float> values) {
  std::vector<std::uint32_t> bits(values.size());
  if (!values.empty()) std::memcpy(bits.data(), values.data(), values.size_bytes());
  return bits;
}

// As gradients are: most near zero, few large.
inline Floats heavy_tailed(std::size_t n, unsigned seed, float scale = 1e-3F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Floats values(n);
  for (float& value : values) {
    const float v = normal(random);
    value = v * v * v * scale;
  }
  return values;
}

// n finite values of all exponents and both signs, with zeros, denormals and the largest float.
inline Floats odd_values(std::size_t n, unsigned seed) {
  const std::array<float, 10> edges{0.0F,      -0.0F, kDenormal, -kDenormal, 1.1754942e-38F,
                                    1.17e-38F, 1.0F,  -1.0F,     kLargest,   -kLargest};
  std::mt19937 random(seed);
  Floats values(n);
  for (float& value : values) {
    do {
      value = from_bits(static_cast<std::uint32_t>(random()));
    } while (!std::isfinite(value));
    if (random() % 4 == 0) value = edges[random() % edges.size()];
  }
  return values;
}

// What a new encoder makes of an input.
inline Bytes encoded(const std::string& text, const Floats& input,
                     const EncoderContext& context = {}, std::uint64_t step = 0) {
  const auto codec = make_codec(text);
  Bytes out;
  EXPECT_EQ(codec->make_encoder(input.size(), context)->encode(input, step, out).codec,
            codec->id());
  return out;
}

inline Floats decoded(CodecId codec, ByteView payload, std::size_t elems) {
  Floats out(elems, 42.0F);
  decode(codec, payload, out);
  return out;
}

// Uses one SIMD target as long as it lives.
class ForcedTarget {
 public:
  explicit ForcedTarget(const std::string& target) {
    force_simd_target(target);
    EXPECT_EQ(simd_target(), target);
  }
  ~ForcedTarget() { force_simd_target("best"); }
  ForcedTarget(const ForcedTarget&) = delete;
  ForcedTarget& operator=(const ForcedTarget&) = delete;
};

inline bool fails_with(ErrorCode code, const std::function<void()>& task) {
  try {
    task();
  } catch (const Error& error) {
    return error.code() == code;
  }
  return false;
}

// No function takes the payload, and none changes its output.
inline void expect_rejected(CodecId codec, const Bytes& payload, std::size_t elems) {
  const Floats before = heavy_tailed(elems, 3);
  Floats out = before;
  const auto rejects = [](const std::function<void()>& task) {
    return fails_with(ErrorCode::kDataLoss, task);
  };
  EXPECT_TRUE(rejects([&] { decode(codec, payload, out); }));
  EXPECT_TRUE(rejects([&] { decode_add(codec, payload, 1, out); }));
  EXPECT_TRUE(rejects([&] { check_payload(codec, payload, elems); }));
  EXPECT_EQ(bits_of(out), bits_of(before));
}

struct KnownAnswer {
  const char* codec;
  Floats input;
  std::vector<int> payload;
  Floats residual;
};

// Without the codec's lead.
inline void expect_known_answers(const std::vector<KnownAnswer>& answers) {
  for (const KnownAnswer& answer : answers) {
    SCOPED_TRACE(testing::Message() << answer.codec << ", " << answer.input.size() << " values");
    const auto codec = make_codec(without_lead(answer.codec));
    const auto encoder = codec->make_encoder(answer.input.size());
    Bytes out;
    EXPECT_EQ(encoder->encode(answer.input, 0, out).codec, codec->id());
    EXPECT_EQ(out, bytes_of(answer.payload));
    EXPECT_EQ(Floats(encoder->residual().begin(), encoder->residual().end()), answer.residual);
  }
}

// How many times a codec counts a new value ("Lead" in spec/wire-format.md), by its text.
inline float lead_of(const Codec& codec) {
  const std::string text = codec.text();
  const std::size_t at = text.find("lead=");
  return at == std::string::npos ? 1.0F : std::stof(text.substr(at + 5));
}

// What an encoder's residual becomes where it was `before`.
inline float kept_of(float before, float input, float sent, float lead) {
  const float counted = lead * input;
  const float rest = (before + counted) - sent;
  if (lead == 1) return rest;
  const float again = (1 - lead) * input;
  return rest + again;
}

// What an encoder makes of an input, step by step, and what its payloads decode to.
struct CodecRun {
  std::vector<Bytes> payloads;
  std::vector<std::uint32_t> residual;
  std::vector<std::uint32_t> decoded;
  std::vector<std::uint32_t> added;

  friend bool operator==(const CodecRun&, const CodecRun&) = default;
};

// Two steps with the same input at an address that is `offset` floats past an aligned one. Checks
// that no payload is too long and that what is sent and what is kept make up T, in f32, less what a
// lead counted more than once.
inline CodecRun run_codec(const std::string& text, const Floats& input, ThreadPool* pool,
                          std::size_t offset) {
  const auto codec = make_codec(text);
  const std::size_t n = input.size();
  const float lead = lead_of(*codec);
  const auto encoder = codec->make_encoder(n);
  Floats memory(n + offset);
  std::ranges::copy(input, memory.begin() + static_cast<std::ptrdiff_t>(offset));
  const std::span<const float> values = std::span(memory).subspan(offset);
  CodecRun run;
  for (std::uint64_t step = 0; step < 2; ++step) {
    const Floats before(encoder->residual().begin(), encoder->residual().end());
    Bytes out(offset, std::byte{1});  // encode() appends
    const Encoded encoded = encoder->encode(values, step, out, pool);
    const ByteView payload = ByteView(out).subspan(offset);
    EXPECT_EQ(encoded.codec, codec->id());
    EXPECT_LE(payload.size(), codec->max_encoded_bytes(n));
    run.payloads.emplace_back(payload.begin(), payload.end());

    Floats decoded(n + offset, 42.0F);
    decode(codec->id(), payload, std::span(decoded).subspan(offset), pool);
    decoded.erase(decoded.begin(), decoded.begin() + static_cast<std::ptrdiff_t>(offset));
    Floats added(memory);
    decode_add(codec->id(), payload, 0.3F, std::span(added).subspan(offset), pool);
    run.decoded = bits_of(decoded);
    run.added = bits_of(std::span(added).subspan(offset));
    std::size_t wrong = 0;
    for (std::size_t e = 0; e < n; ++e) {
      const bool is_kept = before.empty() ||
                           encoder->residual()[e] == kept_of(before[e], input[e], decoded[e], lead);
      const float product = 0.3F * decoded[e];
      wrong += is_kept && added[e + offset] == input[e] + product ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0U) << text << ", " << n << " values, step " << step;
  }
  run.residual = bits_of(encoder->residual());
  return run;
}

// run_codec() gives the same bits on every SIMD target, with 1, 2 and 3 threads, at any alignment.
inline void expect_same_everywhere(const std::string& text, const Floats& input) {
  SCOPED_TRACE(testing::Message() << text << ", " << input.size() << " values");
  const CodecRun expected = run_codec(text, input, nullptr, 0);
  for (const std::string& target : simd_targets()) {
    const ForcedTarget forced(target);
    for (const std::size_t offset : {0U, 1U, 3U}) {
      EXPECT_TRUE(run_codec(text, input, nullptr, offset) == expected) << target << " +" << offset;
    }
  }
  if (input.size() < 100'000) return;
  for (const std::size_t threads : {1U, 2U, 3U}) {
    ThreadPool pool(threads);
    EXPECT_TRUE(run_codec(text, input, &pool, 1) == expected) << threads << " threads";
  }
}

// A tensor with a NaN or an infinity travels as it is and costs no residual; with
// non-finite=reject it is an error that changes nothing.
inline void expect_raw_where_not_finite(const std::string& text) {
  const std::string more = text + (text.find(':') == std::string::npos ? ":" : ",");
  for (const float bad : {std::nanf(""), kInfinity, -kInfinity}) {
    for (const std::size_t at : {0U, 150U, 199U}) {
      Floats input = heavy_tailed(200, 2);
      input[at] = bad;
      const auto encoder = make_codec(text)->make_encoder(200);
      Bytes out;
      encoder->encode(heavy_tailed(200, 1), 0, out);
      const auto residual = bits_of(encoder->residual());
      out = bytes_of({7});
      const Encoded encoded = encoder->encode(input, 1, out);
      EXPECT_EQ(encoded.codec, CodecId::kFp32);
      EXPECT_TRUE(encoded.not_finite);
      ASSERT_EQ(out.size(), 801U);
      EXPECT_EQ(std::memcmp(out.data() + 1, input.data(), 800), 0);
      EXPECT_LE(out.size() - 1, make_codec(text)->max_encoded_bytes(200));
      EXPECT_EQ(bits_of(encoder->residual()), residual);

      const auto strict = make_codec(more + "non-finite=reject")->make_encoder(200);
      out = bytes_of({7});
      EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, [&] { strict->encode(input, 0, out); }));
      EXPECT_EQ(out, bytes_of({7}));
      EXPECT_TRUE(std::ranges::all_of(strict->residual(), [](float r) { return r == 0; }));
    }
  }
}

}  // namespace tersewire::test
