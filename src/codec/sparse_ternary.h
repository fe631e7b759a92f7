// The payload of codecs adacomp, local-selection and dryden (spec/wire-format.md, "Codecs 8, 9 and
// 10"): which elements are sent, their signs, and one value or two.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "codec_entry.h"
#include "positions.h"
#include "tersewire/codec.h"

namespace tersewire {

// What the elements sent decode to; minus is -plus, except for dryden.
struct SentValues {
  float plus = 0;
  float minus = 0;
};

// No payload made here is longer.
std::size_t sparse_ternary_max_bytes(CodecId codec, std::size_t elems);

void append_sparse_ternary(CodecId codec, SentValues values, const NamedElements& named,
                           Bytes& out);

// As tersewire/codec.h says, for any of the three. One thread reads, as each position follows from
// the one before.
void check_sparse_ternary(CodecId codec, ByteView payload, std::size_t elems);
void decode_sparse_ternary(CodecId codec, ByteView payload, std::span<float> out);
void decode_add_sparse_ternary(CodecId codec, ByteView payload, float weight, std::span<float> out);
std::vector<CodecParameter> sparse_ternary_parameters(CodecId codec, ByteView payload);

// The entry of one of the three.
template <typename Codec, CodecId kId>
CodecEntry sparse_ternary_entry(CodecDescription&& description) {
  return {.description = std::move(description),
          .traits = {.error = CodecTraits::Error::kUnsent},
          .make = make_from_text<Codec>,
          .check = [](ByteView payload,
                      std::size_t elems) { check_sparse_ternary(kId, payload, elems); },
          .decode = [](ByteView payload, std::span<float> out,
                       ThreadPool*) { decode_sparse_ternary(kId, payload, out); },
          .decode_add = [](ByteView payload, float weight, std::span<float> out,
                           ThreadPool*) { decode_add_sparse_ternary(kId, payload, weight, out); },
          .parameters = [](ByteView payload) { return sparse_ternary_parameters(kId, payload); },
          .decode_f64 = nullptr};
}

}  // namespace tersewire
