#include "fp32.h"

#include <cstring>

#include "byte_io.h"
#include "errors.h"
#include "kernels.h"

namespace tersewire {
namespace {

class Fp32Encoder final : public ResidualEncoder {
 public:
  using ResidualEncoder::ResidualEncoder;

 private:
  CodecId encode_finite(const float* input, float*, float, Bytes& out, ThreadPool*) override {
    append(out, input, elems() * sizeof(float));
    return CodecId::kFp32;
  }
};

}  // namespace

const CodecDescription& Fp32Codec::description() {
  static const CodecDescription description{
      CodecId::kFp32,
      "fp32",
      "32-bit floats as they are: the baseline, and what small or non-finite tensors travel in",
      {{"non-finite", "send", "send, reject",
        "what to do with a tensor that holds NaN or infinity"}}};
  return description;
}

Fp32Codec::Fp32Codec(CodecText& text)
    // Nothing is lost, so there is no residual to keep.
    : options_{.error_feedback = false,
               .reject_not_finite = text.take_choice("non-finite", {"send", "reject"}) == 1} {
  text.finish("non-finite");
}

std::string Fp32Codec::text() const {
  return fmt::format("fp32:non-finite={}", options_.reject_not_finite ? "reject" : "send");
}

std::size_t Fp32Codec::max_encoded_bytes(std::size_t elems) const { return elems * sizeof(float); }

std::unique_ptr<Encoder> Fp32Codec::make_encoder(std::size_t elems) const {
  return std::make_unique<Fp32Encoder>(elems, options_);
}

void Fp32Codec::check(ByteView payload, std::size_t elems) {
  if (payload.size() % sizeof(float) != 0 || payload.size() / sizeof(float) != elems) {
    fail(ErrorCode::kDataLoss, "an fp32 payload of {} bytes cannot hold {} values of 4 bytes",
         payload.size(), elems);
  }
}

void Fp32Codec::decode(ByteView payload, std::span<float> out) {
  check(payload, out.size());
  if (!out.empty()) std::memcpy(out.data(), payload.data(), payload.size());
}

void Fp32Codec::decode_add(ByteView payload, float weight, std::span<float> out) {
  check(payload, out.size());
  // A payload lies where its message puts it: copied to aligned memory piece by piece.
  constexpr std::size_t kPieceElems = 2048;
  float piece[kPieceElems];
  for (std::size_t i = 0; i < out.size(); i += kPieceElems) {
    const std::size_t n = std::min(kPieceElems, out.size() - i);
    std::memcpy(piece, payload.data() + i * sizeof(float), n * sizeof(float));
    kernels::add_scaled(out.data() + i, piece, weight, n);
  }
}

}  // namespace tersewire
