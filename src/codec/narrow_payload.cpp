#include "narrow_payload.h"

#include <algorithm>
#include <atomic>
#include <memory>

#include "byte_io.h"
#include "dense_output.h"
#include "errors.h"
#include "kernels.h"

namespace tersewire {
namespace {

static_assert(kMinMovedElems % 8 == 0, "every part begins with a byte");

class NarrowEncoder final : public ResidualEncoder {
 public:
  NarrowEncoder(std::size_t elems, const EncoderContext& context, const NarrowCoding& coding,
                const EncoderOptions& options)
      : ResidualEncoder(elems, context, options), coding_(coding) {}

 private:
  CodecId encode_finite(const EncodeCall& call, Bytes& out) override {
    append_values(call, out);
    return coding_.codec;
  }
  // The bits of a value depend on no other.
  std::optional<OnePass> encode_at_once(const EncodeCall& call, Bytes& out) override {
    return OnePass{coding_.codec, append_values(call, out)};
  }

  std::uint32_t append_values(const EncodeCall& call, Bytes& out) const;

  NarrowCoding coding_;
};

// Returns the largest magnitude as its bit pattern.
std::uint32_t NarrowEncoder::append_values(const EncodeCall& call, Bytes& out) const {
  const std::size_t start = out.size();
  out.resize(start + narrow_payload_bytes(coding_, call.elems));
  auto* values = reinterpret_cast<std::uint8_t*>(out.data() + start);
  if (coding_.head) *values++ = *coding_.head;
  const auto parts = Partition::of(call.elems, kMinMovedElems, call.pool);
  std::atomic<std::uint32_t> largest{0};
  run_parts(call.pool, parts.count(), [&](std::size_t i) {
    const std::size_t begin = parts.begin(i);
    const std::uint32_t bits = kernels::encode_narrow(
        coding_.format, call.input + begin,
        call.residual != nullptr ? call.residual + begin : nullptr, parts.end(i) - begin,
        values + kernels::narrow_bytes(coding_.format, begin));
    raise_to(largest, bits);
  });
  return largest.load();
}

const std::uint8_t* values_of(const NarrowCoding& coding, ByteView payload) {
  return as_u8(payload) + (coding.head ? 1 : 0);
}

}  // namespace

std::unique_ptr<Encoder> make_narrow_encoder(std::size_t elems, const EncoderContext& context,
                                             const NarrowCoding& coding,
                                             const EncoderOptions& options) {
  return std::make_unique<NarrowEncoder>(elems, context, coding, options);
}

void check_narrow(const NarrowCoding& coding, ByteView payload, std::size_t elems) {
  const std::size_t expected = narrow_payload_bytes(coding, elems);
  const unsigned bits = kernels::narrow_bits(coding.format);
  if (payload.size() != expected) {
    fail(ErrorCode::kDataLoss, "a payload of {} has {} bytes; {} values of {} bits take {}",
         coding.name, payload.size(), elems, bits, expected);
  }
  const auto used = static_cast<unsigned>(elems % 8 * bits % 8);
  if (used != 0 && std::to_integer<unsigned>(payload.back()) >> used != 0) {
    fail(ErrorCode::kDataLoss,
         "a payload of {} ends with the byte {}; its upper {} bits hold no value and must be 0",
         coding.name, std::to_integer<unsigned>(payload.back()), 8 - used);
  }
}

void decode_narrow(const NarrowCoding& coding, ByteView payload, std::span<float> out,
                   ThreadPool* pool) {
  check_narrow(coding, payload, out.size());
  const std::uint8_t* values = values_of(coding, payload);
  fill_blocks(out, kOutputBlockElems, pool, [&](std::size_t begin, std::size_t n, float* to) {
    kernels::decode_narrow(coding.format, values + kernels::narrow_bytes(coding.format, begin), n,
                           to);
  });
}

void decode_add_narrow(const NarrowCoding& coding, ByteView payload, float weight,
                       std::span<float> out, ThreadPool* pool) {
  check_narrow(coding, payload, out.size());
  const std::uint8_t* values = values_of(coding, payload);
  visit_blocks(out.size(), kOutputBlockElems, pool, [&](std::size_t begin, std::size_t n) {
    kernels::decode_add_narrow(coding.format, values + kernels::narrow_bytes(coding.format, begin),
                               weight, n, out.data() + begin);
  });
}

}  // namespace tersewire
