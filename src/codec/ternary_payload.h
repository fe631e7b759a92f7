// The ternary payload of codecs terngrad and stoch3 (spec/wire-format.md, "Codecs 3 and 4"): digits
// of -1, 0 and 1 under one scaler, or under one a bucket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "encoder_options.h"
#include "tersewire/codec.h"

namespace tersewire {

// How digits are packed; the number that the layout byte gives it.
enum class TernaryPacking : std::uint8_t { kTwoBits = 0, kGroups = 1, kZeroRuns = 2 };

// What the head says, and what follows from it.
struct TernaryFormat {
  TernaryPacking packing = TernaryPacking::kGroups;
  std::uint64_t bucket_elems = 0;  // 0: the whole tensor

  [[nodiscard]] std::size_t head_bytes() const;
  void append_head(Bytes& out) const;
  [[nodiscard]] std::size_t scalers(std::size_t elems) const;
  // Bodies are not longer; those without zero runs are as long.
  [[nodiscard]] std::size_t max_body_bytes(std::size_t elems) const;
  // No payload is longer.
  [[nodiscard]] std::size_t max_bytes(std::size_t elems) const {
    return head_bytes() + scalers(elems) * sizeof(float) + max_body_bytes(elems);
  }
};

// A codec with this payload.
struct TernaryCodec {
  CodecId id;
  TernaryFormat format;
  std::optional<double> clip;  // in standard deviations
  EncoderOptions options;
};

// Their parameter clip, TernGrad's (section 3.4): 2.5 where the text does not say, none for off.
std::optional<double> take_ternary_clip(SettingText& text);
std::string ternary_clip_text(std::optional<double> clip);
CodecParameter ternary_clip_parameter(std::string published = {});

// Codec::adaptive_rate_gain(): how much larger noise becomes. A normal value x of one standard
// deviation becomes 0 or the clip c, at random, with E|x| / c, so its mean square c E|x|. At most
// 2, what was measured, and 1 with a residual, with which it was not.
double ternary_rate_gain(const TernaryCodec& codec);

std::unique_ptr<Encoder> make_ternary_encoder(std::size_t elems, const EncoderContext& context,
                                              const TernaryCodec& codec);

// As in tersewire/codec.h, for payloads of terngrad or of stoch3.
template <CodecId kCodec>
struct TernaryReading {
  static void check(ByteView payload, std::size_t elems);
  static void decode(ByteView payload, std::span<float> out, ThreadPool* pool);
  static void decode_add(ByteView payload, float weight, std::span<float> out, ThreadPool* pool);
  static std::vector<CodecParameter> parameters(ByteView payload);
  static void decode_levels_add(ByteView payload, std::span<std::int32_t> levels);
  static PayloadScalers scalers(ByteView payload, std::size_t elems);
};

extern template struct TernaryReading<CodecId::kTernGrad>;
extern template struct TernaryReading<CodecId::kStoch3>;

}  // namespace tersewire
