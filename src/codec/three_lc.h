// Codec 3lc: 3-value quantization with sparsity multiplication, base-3^5 and zero-run encoding
// (3LC, section 3).
#pragma once

#include <cstdint>

#include "residual_encoder.h"
#include "tersewire/codec.h"

namespace tersewire {

// How groups are made and written; the payload's ninth byte (spec/wire-format.md, "Codec 2").
struct ThreeLcLayout {
  bool partitions = false;
  bool zero_runs = true;
  bool long_runs = false;

  [[nodiscard]] std::uint8_t byte() const;
  // Throws kDataLoss for bits that mean nothing.
  static ThreeLcLayout from_byte(std::uint8_t byte);
};

class ThreeLcCodec final : public Codec {
 public:
  static const CodecDescription& description();
  explicit ThreeLcCodec(CodecText& text);

  [[nodiscard]] CodecId id() const noexcept override { return CodecId::kThreeLc; }
  [[nodiscard]] std::string text() const override;
  [[nodiscard]] std::size_t max_encoded_bytes(std::size_t elems) const override;
  [[nodiscard]] std::unique_ptr<Encoder> make_encoder(std::size_t elems) const override;

  static void check(ByteView payload, std::size_t elems);
  static void decode(ByteView payload, std::span<float> out, ThreadPool* pool);
  static void decode_add(ByteView payload, float weight, std::span<float> out, ThreadPool* pool);
  static std::vector<CodecParameter> parameters(ByteView payload);

 private:
  float sparsity_multiplier_;
  ThreeLcLayout layout_;
  EncoderOptions options_;
};

}  // namespace tersewire
