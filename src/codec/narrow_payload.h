// What the codecs truncate, fp16 and bf16 share: the same number of bits for every value, in order.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "narrow.h"
#include "residual_encoder.h"
#include "tersewire/codec.h"

namespace tersewire {

// One way of making such payloads.
struct NarrowCoding {
  CodecId codec;
  std::string_view name;
  kernels::NarrowFormat format;
  std::optional<std::uint8_t> head = {};  // a byte before the values
};

constexpr std::size_t narrow_payload_bytes(const NarrowCoding& coding, std::size_t elems) {
  return (coding.head ? 1 : 0) + kernels::narrow_bytes(coding.format, elems);
}

std::unique_ptr<Encoder> make_narrow_encoder(std::size_t elems, const EncoderContext& context,
                                             const NarrowCoding& coding,
                                             const EncoderOptions& options);

// As in tersewire/codec.h; the head, where there is one, has been checked.
void check_narrow(const NarrowCoding& coding, ByteView payload, std::size_t elems);
void decode_narrow(const NarrowCoding& coding, ByteView payload, std::span<float> out,
                   ThreadPool* pool);
void decode_add_narrow(const NarrowCoding& coding, ByteView payload, float weight,
                       std::span<float> out, ThreadPool* pool);

}  // namespace tersewire
