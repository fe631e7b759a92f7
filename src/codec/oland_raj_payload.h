// The payload of codec oland-raj: its head, writing it and reading it.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <span>

#include "byte_io.h"
#include "encoder_options.h"
#include "grid_quantize.h"
#include "tersewire/codec.h"

namespace tersewire {

inline constexpr unsigned kMaxIndexBits = 16;

// What the number of bits comes from.
enum class BitsFrom { kEntropy, kGradient, kGiven };

struct OlandRajSettings {
  BitsFrom from = BitsFrom::kEntropy;
  double floor = 6;    // the paper's c; where the bits are not given
  unsigned given = 0;  // bits; where they are
};

enum class OlandRajBody : std::uint8_t { kConstant = 0, kFixed = 1, kHuffman = 2 };

// A payload's head; a constant's is its layout and `min`.
struct OlandRajHead {
  OlandRajBody body = OlandRajBody::kConstant;
  bool f64 = false;
  double min = 0;
  double max = 0;
  unsigned bits = 0;  // of an index

  [[nodiscard]] kernels::Grid grid() const {
    return {.min = min, .range = max - min, .bins = std::ldexp(1.0, static_cast<int>(bits))};
  }
};

void append_oland_raj_head(Bytes& out, const OlandRajHead& head);
// Throws kDataLoss where the head breaks the format.
OlandRajHead read_oland_raj_head(ByteReader& reader);

// Bytes of n fixed indices.
constexpr std::size_t fixed_body_bytes(std::size_t elems, unsigned bits) {
  return elems / 8 * bits + (elems % 8 * bits + 7) / 8;
}

std::unique_ptr<Encoder> make_oland_raj_encoder(std::size_t elems, const EncoderContext& context,
                                                const OlandRajSettings& settings,
                                                const EncoderOptions& options);

// As in tersewire/codec.h, for payloads of this codec.
void check_oland_raj(ByteView payload, std::size_t elems);
void decode_oland_raj(ByteView payload, std::span<float> out, ThreadPool* pool);
void decode_f64_oland_raj(ByteView payload, std::span<double> out, ThreadPool* pool);
void decode_add_oland_raj(ByteView payload, float weight, std::span<float> out, ThreadPool* pool);

}  // namespace tersewire
