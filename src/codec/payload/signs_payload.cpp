#include "signs_payload.h"

#include <cmath>

#include "byte_io.h"
#include "dense_output.h"
#include "errors.h"

namespace tersewire {
namespace {

constexpr std::size_t kByteBits = 8;

struct SignsPayload {
  kernels::SignValues values;
  const std::uint8_t* bits;
};

SignsPayload parse(std::string_view codec, SignsHead head, ByteView payload, std::size_t elems) {
  const kernels::SignValues values = read_signs_head(codec, head, payload);
  const ByteView bits = payload.subspan(signs_head_bytes(head));
  if (bits.size() != sign_bytes(elems)) {
    fail(ErrorCode::kDataLoss, "the payload of {} has {} bytes of signs; {} values take {}", codec,
         bits.size(), elems, sign_bytes(elems));
  }
  const auto last = elems % kByteBits != 0 ? std::to_integer<unsigned>(bits.back()) : 0U;
  if (last >> elems % kByteBits != 0) {
    fail(ErrorCode::kDataLoss, "the payload of {} ends in byte {:#04x}; its bits past {} must be 0",
         codec, last, elems % kByteBits);
  }
  return {.values = values, .bits = as_u8(bits)};
}

}  // namespace

kernels::SignValues read_signs_head(std::string_view codec, SignsHead head, ByteView payload) {
  if (payload.size() < signs_head_bytes(head)) {
    fail(ErrorCode::kDataLoss, "the payload of {} has {} bytes; its head alone takes {}", codec,
         payload.size(), signs_head_bytes(head));
  }
  ByteReader reader(payload);
  const auto plus = reader.read<float>("plus");
  const bool means = head == SignsHead::kMeans;
  const float minus = means ? reader.read<float>("minus") : -plus;
  if (!std::isfinite(plus) || !std::isfinite(minus) || (!means && std::signbit(plus))) {
    fail(ErrorCode::kDataLoss, "the payload of {} has plus = {} and minus = {}; {}", codec, plus,
         minus, means ? "both must be finite" : "plus must be finite and not negative");
  }
  return {.plus = plus, .minus = minus};
}

void check_signs(std::string_view codec, SignsHead head, ByteView payload, std::size_t elems) {
  parse(codec, head, payload, elems);
}

void decode_signs(std::string_view codec, SignsHead head, ByteView payload, std::span<float> out,
                  ThreadPool* pool) {
  const SignsPayload signs = parse(codec, head, payload, out.size());
  fill_blocks(out, kOutputBlockElems, pool, [&](std::size_t begin, std::size_t n, float* values) {
    kernels::unpack_signs(signs.bits + begin / kByteBits, n, signs.values, values);
  });
}

void decode_add_signs(std::string_view codec, SignsHead head, ByteView payload, float weight,
                      std::span<float> out, ThreadPool* pool) {
  const SignsPayload signs = parse(codec, head, payload, out.size());
  const kernels::SignValues weighted{.plus = weight * signs.values.plus,
                                     .minus = weight * signs.values.minus};
  visit_blocks(out.size(), kOutputBlockElems, pool, [&](std::size_t begin, std::size_t n) {
    kernels::add_signs(signs.bits + begin / kByteBits, n, weighted, out.data() + begin);
  });
}

void append_signs(SignsHead head, const kernels::SignValues& values, const EncodeCall& call,
                  Bytes& out) {
  append_value(out, values.plus);
  if (head == SignsHead::kMeans) append_value(out, values.minus);
  const std::size_t start = out.size();
  out.resize(start + sign_bytes(call.elems));
  auto* bits = reinterpret_cast<std::uint8_t*>(out.data() + start);
  const Partition parts = parts_of_blocks(call.elems, kOutputBlockElems, call.pool);
  run_parts(call.pool, parts.count(), [&](std::size_t i) {
    const std::size_t begin = parts.begin(i);
    kernels::pack_signs(call.input + begin,
                        call.residual != nullptr ? call.residual + begin : nullptr,
                        parts.end(i) - begin, values, bits + begin / kByteBits);
  });
}

}  // namespace tersewire
