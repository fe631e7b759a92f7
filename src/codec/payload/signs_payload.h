// The signs payload (spec/wire-format.md, "Codecs 13 and 14"): a head of one or two f32s, and a bit
// an element that says which of two values it is.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>

#include "encode_call.h"
#include "shape.h"
#include "sign_bits.h"
#include "tersewire/codec.h"

namespace tersewire {

// What the head says: one magnitude for both signs, or a mean for each.
enum class SignsHead { kMagnitude, kMeans };

constexpr std::size_t signs_head_bytes(SignsHead head) {
  return (head == SignsHead::kMeans ? 2 : 1) * sizeof(float);
}

constexpr std::size_t sign_bytes(std::size_t elems) { return divide_up(elems, 8); }

// No payload is longer, raw ones included.
constexpr std::size_t signs_max_bytes(SignsHead head, std::size_t elems) {
  return std::max(signs_head_bytes(head) + sign_bytes(elems), elems * sizeof(float));
}

// Throws kDataLoss, naming the codec, where the head breaks the format.
kernels::SignValues read_signs_head(std::string_view codec, SignsHead head, ByteView payload);

void check_signs(std::string_view codec, SignsHead head, ByteView payload, std::size_t elems);
void decode_signs(std::string_view codec, SignsHead head, ByteView payload, std::span<float> out,
                  ThreadPool* pool);
void decode_add_signs(std::string_view codec, SignsHead head, ByteView payload, float weight,
                      std::span<float> out, ThreadPool* pool);

// Appends the payload for a tensor whose elements become `values` by their signs, and updates its
// residual.
void append_signs(SignsHead head, const kernels::SignValues& values, const EncodeCall& call,
                  Bytes& out);

}  // namespace tersewire
