#include "fp32.h"

#include <algorithm>
#include <cstring>

#include "byte_io.h"
#include "errors.h"
#include "kernels.h"
#include "residual_encoder.h"

namespace tersewire {
namespace {

class Fp32Encoder final : public ResidualEncoder {
 public:
  using ResidualEncoder::ResidualEncoder;

 private:
  CodecId encode_finite(const EncodeCall& call, Bytes& out) override {
    append(out, call.input, call.elems * sizeof(float));
    return CodecId::kFp32;
  }
};

class Fp32Codec final : public Codec {
 public:
  explicit Fp32Codec(SettingText& text)
      // Nothing is lost, so there is no residual to keep.
      : options_{.error_feedback = false,
                 .reject_not_finite = text.take_choice("non-finite", {"send", "reject"}) == 1} {}

  [[nodiscard]] CodecId id() const noexcept override { return CodecId::kFp32; }
  [[nodiscard]] std::string text() const override {
    return fmt::format("fp32:non-finite={}", options_.reject_not_finite ? "reject" : "send");
  }
  [[nodiscard]] std::size_t max_encoded_bytes(std::size_t elems) const override {
    return elems * sizeof(float);
  }
  [[nodiscard]] std::unique_ptr<Encoder> make_encoder(
      std::size_t elems, const EncoderContext& context) const override {
    return std::make_unique<Fp32Encoder>(elems, context, options_);
  }

 private:
  EncoderOptions options_;
};

void check_fp32(ByteView payload, std::size_t elems) {
  if (payload.size() % sizeof(float) != 0 || payload.size() / sizeof(float) != elems) {
    fail(ErrorCode::kDataLoss, "an fp32 payload of {} bytes cannot hold {} values of 4 bytes",
         payload.size(), elems);
  }
}

void decode_fp32(ByteView payload, std::span<float> out, ThreadPool*) {
  check_fp32(payload, out.size());
  if (!out.empty()) std::memcpy(out.data(), payload.data(), payload.size());
}

void decode_add_fp32(ByteView payload, float weight, std::span<float> out, ThreadPool*) {
  check_fp32(payload, out.size());
  // A payload lies where its message puts it: copied to aligned memory piece by piece.
  constexpr std::size_t kPieceElems = 2048;
  float piece[kPieceElems];
  for (std::size_t i = 0; i < out.size(); i += kPieceElems) {
    const std::size_t n = std::min(kPieceElems, out.size() - i);
    std::memcpy(piece, payload.data() + i * sizeof(float), n * sizeof(float));
    kernels::add_scaled(out.data() + i, piece, weight, n);
  }
}

}  // namespace

const CodecEntry& fp32_codec() {
  static const CodecEntry entry{.description = {CodecId::kFp32,
                                                "fp32",
                                                "32-bit floats, uncompressed: the baseline, and "
                                                "what small or non-finite tensors are sent in",
                                                {non_finite_parameter()}},
                                .traits = {.fits_sums = true, .fits_weights = true, .splits = true},
                                .make = make_from_text<Fp32Codec>,
                                .check = check_fp32,
                                .decode = decode_fp32,
                                .decode_add = decode_add_fp32};
  return entry;
}

}  // namespace tersewire
