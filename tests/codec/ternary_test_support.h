// What the tests of codecs terngrad and stoch3 share: the specification, one value at a time.
#pragma once

#include <optional>

#include "../../src/kernels/random_words.h"
#include "codec_test_support.h"

namespace tersewire::test {

// Lengths around those of vectors, words, groups and blocks.
inline constexpr std::size_t kTernaryLengths[] = {
    0,  1,  2,  4,   5,   6,   7,   9,   15,   16,   17,   63,   64,   65,
    79, 80, 81, 127, 129, 320, 321, 500, 1279, 1280, 1281, 4095, 4097, 9000};

// S of spec/wire-format.md, "Sums".
inline double plain_sum(std::span<const double> values) {
  double sum = 0;
  for (std::size_t begin = 0; begin < values.size(); begin += 4096) {
    std::array<double, 16> lanes{};
    for (std::size_t i = begin; i < std::min(begin + 4096, values.size()); ++i) {
      lanes[i % 16] += values[i];
    }
    for (std::size_t h = 8; h > 0; h /= 2) {
      for (std::size_t j = 0; j < h; ++j) lanes[j] += lanes[j + h];
    }
    sum += lanes[0];
  }
  return sum;
}

inline float plain_limit(std::span<const float> t, std::optional<double> clip) {
  if (!clip || t.empty()) return kInfinity;
  std::vector<double> d(t.size());
  std::vector<double> squares(t.size());
  for (std::size_t i = 0; i < t.size(); ++i) {
    d[i] = double{t[i]} - double{t[0]};
    squares[i] = d[i] * d[i];
  }
  const auto n = static_cast<double>(t.size());
  const double mean = plain_sum(d) / n;
  const double variance = plain_sum(squares) / n - mean * mean;
  const auto limit = static_cast<float>(*clip * std::sqrt(std::max(variance, 0.0)));
  return limit == 0 ? kInfinity : limit;
}

struct PlainTernary {
  std::vector<float> scalers;
  std::vector<float> limits;
  std::vector<int> digits;
};

// A bucket of 0 is the whole tensor.
inline PlainTernary plain_ternary(std::span<const float> t, std::optional<double> clip,
                                  std::size_t bucket, const kernels::RandomStream& stream) {
  PlainTernary plain;
  std::vector<std::uint32_t> words(t.size());
  kernels::random_words(stream, 0, t.size(), words.data());
  const std::size_t step = bucket != 0 ? bucket : std::max<std::size_t>(t.size(), 1);
  for (std::size_t begin = 0; begin < t.size() || (bucket == 0 && begin == 0); begin += step) {
    const auto values = t.subspan(begin, std::min(step, t.size() - begin));
    const float limit = plain_limit(values, clip);
    float largest = 0;
    for (const float value : values) largest = std::max(largest, std::fabs(value));
    const float s = std::min(largest, limit);
    plain.limits.push_back(limit);
    plain.scalers.push_back(s);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float c = std::min(std::fabs(values[i]), limit);
      const float factor = s > 0 ? std::ldexp(1.0F, std::clamp(-std::ilogb(s), -126, 127)) : 0;
      const float u = static_cast<float>(words[begin + i] >> 8) * 0x1p-24F;
      const float bar = u * (s * factor);
      const bool is_sent = s > 0 && bar < c * factor;
      plain.digits.push_back(!is_sent ? 0 : values[i] > 0 ? 1 : -1);
    }
  }
  return plain;
}

template <typename T>
void append_raw(Bytes& out, T value) {
  const auto raw = std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
  out.insert(out.end(), raw.begin(), raw.end());
}

// Packing 0 two bits, 1 groups, 2 groups with zero-run encoding.
inline void append_plain_body(const std::vector<int>& digits, int packing, Bytes& out) {
  const auto digit = [&](std::size_t i) { return i < digits.size() ? digits[i] : 0; };
  if (packing == 0) {
    for (std::size_t i = 0; i < digits.size(); i += 4) {
      int byte = 0;
      for (std::size_t k = 0; k < 4; ++k) byte |= (digit(i + k) & 3) << 2 * k;
      out.push_back(static_cast<std::byte>(byte));
    }
    return;
  }
  int run = 0;
  const auto end_run = [&] {
    for (; run >= 14; run -= 14) out.push_back(std::byte{255});
    if (run > 0) out.push_back(static_cast<std::byte>(run == 1 ? 121 : run + 241));
    run = 0;
  };
  for (std::size_t i = 0; i < digits.size(); i += 5) {
    int group = 0;
    for (std::size_t k = 0; k < 5; ++k) group = 3 * group + digit(i + k) + 1;
    if (packing == 2 && group == 121) {
      ++run;
      continue;
    }
    end_run();
    out.push_back(static_cast<std::byte>(group));
  }
  end_run();
}

inline Bytes plain_payload(const PlainTernary& plain, int packing, std::size_t bucket) {
  Bytes out{static_cast<std::byte>(packing | (bucket != 0 ? 4 : 0))};
  for (std::size_t left = bucket; left != 0; left >>= 7) {
    out.push_back(static_cast<std::byte>(left & 127) | std::byte(left > 127 ? 128 : 0));
  }
  for (const float scaler : plain.scalers) append_raw(out, scaler);
  append_plain_body(plain.digits, packing, out);
  return out;
}

// Holds two steps of an encoder against the specification: payloads and residuals.
inline void expect_as_plain(const std::string& text, const Floats& input,
                            std::optional<double> clip, int packing, std::size_t bucket) {
  const EncoderContext context{.seed = 0x0123456789ABCDEF, .sender = 77, .tensor = 5};
  const auto encoder = make_codec(text)->make_encoder(input.size(), context);
  for (const std::uint64_t step : {std::uint64_t{3}, (std::uint64_t{1} << 32) + 4}) {
    Floats t = input;
    for (std::size_t e = 0; e < encoder->residual().size(); ++e) {
      t[e] = encoder->residual()[e] + input[e];
    }
    const PlainTernary plain = plain_ternary(
        t, clip, bucket, {.seed = context.seed, .sender = 77, .tensor = 5, .step = step});
    Bytes out;
    encoder->encode(input, step, out);
    ASSERT_EQ(out, plain_payload(plain, packing, bucket)) << text << ", " << input.size();
    const std::size_t size = bucket != 0 ? bucket : input.size();
    for (std::size_t e = 0; e < t.size(); ++e) {
      t[e] -= static_cast<float>(plain.digits[e]) * plain.scalers[e / size];
    }
    if (encoder->residual().empty()) continue;
    ASSERT_EQ(bits_of(encoder->residual()), bits_of(t)) << text << ", " << input.size();
  }
}

// That the mean of what is decoded is what was clipped, for every element, and that its spread is a
// Bernoulli variable's. A draw of C under s has the variance C (s - C). Of the means over 2000
// steps each has to lie within 5 standard errors, and their chi-square within 5 of its own; a right
// encoder fails for about one seed in 10,000.
inline void expect_unbiased(const std::string& text, std::optional<double> clip,
                            std::size_t bucket) {
  constexpr std::size_t kElems = 300;
  constexpr std::size_t kSteps = 2000;
  const unsigned seed = 20170522;
  SCOPED_TRACE(testing::Message() << text << ", seed " << seed);
  std::mt19937 random(seed);
  // No magnitude so small that its draws are not nearly normal.
  std::uniform_real_distribution<float> magnitude(0.05F, 1.0F);
  Floats input(kElems);
  for (float& value : input) value = magnitude(random) * (random() % 2 == 0 ? 1.0F : -1.0F);
  const PlainTernary plain = plain_ternary(input, clip, bucket, {});
  const auto codec = make_codec(text);
  const auto encoder = codec->make_encoder(kElems, {.seed = seed});
  std::vector<float> sums(kElems);
  std::vector<std::int32_t> counts(kElems);
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    Bytes out;
    encoder->encode(input, step, out);
    decode_levels_add(codec->id(), out, counts);
  }
  double chi_square = 0;
  double degrees = 0;
  for (std::size_t e = 0; e < kElems; ++e) {
    const std::size_t b = bucket != 0 ? e / bucket : 0;
    const double s = plain.scalers[b];
    const double c = std::min(std::fabs(input[e]), plain.limits[b]);
    const double mean = s * counts[e] / double{kSteps};
    const double error = std::fabs(mean - std::copysign(c, double{input[e]}));
    const double deviation = std::sqrt(c * (s - c) / double{kSteps});
    ASSERT_LE(error, 5 * deviation) << "element " << e << " of " << input[e] << ", mean " << mean;
    if (deviation == 0) continue;
    chi_square += error * error / (deviation * deviation);
    ++degrees;
  }
  EXPECT_NEAR(chi_square, degrees, 5 * std::sqrt(2 * degrees));
}

// N workers under scalers that they agree on: their digits add up to what their values add up to.
inline void expect_exact_sums(const std::string& text, std::size_t elems, std::size_t bucket) {
  constexpr std::size_t kWorkers = 5;
  SCOPED_TRACE(testing::Message() << text << ", " << elems << " values");
  const auto codec = make_codec(text);
  std::vector<std::unique_ptr<Encoder>> encoders;
  std::vector<Floats> inputs;
  std::vector<float> agreed;
  for (unsigned worker = 0; worker < kWorkers; ++worker) {
    inputs.push_back(heavy_tailed(elems, worker, 1.0F + static_cast<float>(worker)));
    encoders.push_back(codec->make_encoder(elems, {.seed = 9, .sender = worker}));
    const auto own = encoders.back()->local_scalers(inputs.back());
    agreed.resize(own.size());
    std::ranges::transform(own, agreed, agreed.begin(),
                           [](float a, float b) { return std::max(a, b); });
  }
  std::vector<std::int32_t> levels(elems);
  std::vector<double> sums(elems);
  for (std::size_t worker = 0; worker < kWorkers; ++worker) {
    Bytes out;
    EXPECT_EQ(encoders[worker]->encode_under(agreed, inputs[worker], 1, out).codec, codec->id());
    EXPECT_EQ(payload_scalers(codec->id(), out, elems), (PayloadScalers{bucket, agreed}));
    decode_levels_add(codec->id(), out, levels);
    Floats values(elems);
    decode(codec->id(), out, values);
    // Doubles hold five times a float.
    for (std::size_t e = 0; e < elems; ++e) sums[e] += double{values[e]};
  }
  std::size_t wrong = 0;
  for (std::size_t e = 0; e < elems; ++e) {
    const float scaler = agreed[bucket != 0 ? e / bucket : 0];
    wrong += double{scaler} * levels[e] != sums[e] || std::abs(levels[e]) > 5 ? 1 : 0;
  }
  EXPECT_EQ(wrong, 0U);
}

}  // namespace tersewire::test
