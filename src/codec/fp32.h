// Codec fp32: the values as they are.
#pragma once

#include "residual_encoder.h"
#include "tersewire/codec.h"

namespace tersewire {

class Fp32Codec final : public Codec {
 public:
  static const CodecDescription& description();
  explicit Fp32Codec(CodecText& text);

  [[nodiscard]] CodecId id() const noexcept override { return CodecId::kFp32; }
  [[nodiscard]] std::string text() const override;
  [[nodiscard]] std::size_t max_encoded_bytes(std::size_t elems) const override;
  [[nodiscard]] std::unique_ptr<Encoder> make_encoder(std::size_t elems) const override;

  static void check(ByteView payload, std::size_t elems);
  static void decode(ByteView payload, std::span<float> out);
  static void decode_add(ByteView payload, float weight, std::span<float> out);

 private:
  EncoderOptions options_;
};

}  // namespace tersewire
