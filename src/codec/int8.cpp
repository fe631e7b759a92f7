#include "int8.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "byte_io.h"
#include "dense_output.h"
#include "errors.h"
#include "residual_encoder.h"
#include "scaled_bytes.h"
#include "scaling.h"

namespace tersewire {
namespace {

constexpr float kMost = 127;  // on either side of 0: -128 stands for nothing
constexpr std::size_t kHeadBytes = sizeof(float);

std::size_t payload_bytes(std::size_t elems) { return kHeadBytes + elems; }

kernels::ByteScale scale_of(float m) {
  if (m == 0) return {.factor = 0, .quotient = 0, .step = 0};
  const float factor = kernels::scaling_factor(m);
  // |T| factor * quotient stays within a few roundings of 127: no byte is out of range.
  return {.factor = factor, .quotient = kMost / (m * factor), .step = m / kMost};
}

class Int8Encoder final : public ResidualEncoder {
 public:
  using ResidualEncoder::ResidualEncoder;

 private:
  CodecId encode_finite(const EncodeCall& call, Bytes& out) override {
    const float m = std::min(call.largest, kernels::kLargestDividedScale);
    const kernels::ByteScale scale = scale_of(m);
    append_value(out, m);
    const std::size_t start = out.size();
    out.resize(start + call.elems);
    auto* bytes = reinterpret_cast<std::int8_t*>(out.data() + start);
    const Partition parts = parts_of_blocks(call.elems, kOutputBlockElems, call.pool);
    run_parts(call.pool, parts.count(), [&](std::size_t i) {
      const std::size_t begin = parts.begin(i);
      kernels::quantize_bytes(call.input + begin,
                              call.residual != nullptr ? call.residual + begin : nullptr,
                              parts.end(i) - begin, scale, bytes + begin);
    });
    return CodecId::kInt8;
  }
};

class Int8Codec final : public Codec {
 public:
  explicit Int8Codec(SettingText& text) : options_(EncoderOptions::take(text, false)) {}

  [[nodiscard]] CodecId id() const noexcept override { return CodecId::kInt8; }
  [[nodiscard]] std::string text() const override {
    return fmt::format("int8:{}", options_.text());
  }
  [[nodiscard]] std::size_t max_encoded_bytes(std::size_t elems) const override {
    return std::max(payload_bytes(elems), elems * sizeof(float));
  }
  [[nodiscard]] std::unique_ptr<Encoder> make_encoder(
      std::size_t elems, const EncoderContext& context) const override {
    return std::make_unique<Int8Encoder>(elems, context, options_);
  }

 private:
  EncoderOptions options_;
};

float read_m(ByteView payload) {
  const auto m = ByteReader(payload).read<float>("int8 m");
  if (!std::isfinite(m) || std::signbit(m)) {
    fail(ErrorCode::kDataLoss, "an int8 payload has m = {}, which must be finite and not negative",
         m);
  }
  return m;
}

void check(ByteView payload, std::size_t elems) {
  if (payload.size() < kHeadBytes || payload.size() - kHeadBytes != elems) {
    fail(ErrorCode::kDataLoss, "an int8 payload has {} bytes; {} values take {}", payload.size(),
         elems, payload_bytes(elems));
  }
  read_m(payload);
  const std::byte* bytes = payload.data() + kHeadBytes;
  const void* found = elems > 0 ? std::memchr(bytes, 0x80, elems) : nullptr;
  if (found == nullptr) return;
  fail(ErrorCode::kDataLoss,
       "an int8 payload has the byte -128 for element {}; the minimum is -127",
       static_cast<const std::byte*>(found) - bytes);
}

const std::int8_t* bytes_of(ByteView payload) {
  return reinterpret_cast<const std::int8_t*>(payload.data() + kHeadBytes);
}

void decode(ByteView payload, std::span<float> out, ThreadPool* pool) {
  check(payload, out.size());
  const float step = read_m(payload) / kMost;
  fill_blocks(out, kOutputBlockElems, pool, [&](std::size_t begin, std::size_t n, float* values) {
    kernels::scale_bytes(bytes_of(payload) + begin, n, step, values);
  });
}

void decode_add(ByteView payload, float weight, std::span<float> out, ThreadPool* pool) {
  check(payload, out.size());
  const float step = read_m(payload) / kMost;
  visit_blocks(out.size(), kOutputBlockElems, pool, [&](std::size_t begin, std::size_t n) {
    kernels::add_scaled_bytes(bytes_of(payload) + begin, n, step, weight, out.data() + begin);
  });
}

std::vector<CodecParameter> parameters(ByteView payload) {
  return {{"m", fmt::format("{}", read_m(payload)), {}, {}}};
}

CodecDescription description() {
  return {CodecId::kInt8, "int8",
          "one byte per value, 255 steps over the range of the tensor (3LC's 8-bit int)",
          EncoderOptions::describe({}, false)};
}

}  // namespace

const CodecEntry& int8_codec() {
  static const CodecEntry entry{.description = description(),
                                .traits = {.error = CodecTraits::Error::kScaled,
                                           .fits_sums = true,
                                           .fits_weights = true,
                                           .splits = true},
                                .make = make_from_text<Int8Codec>,
                                .check = check,
                                .decode = decode,
                                .decode_add = decode_add,
                                .parameters = parameters};
  return entry;
}

}  // namespace tersewire
