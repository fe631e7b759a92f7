// The levels payload (spec/wire-format.md, "Codecs 5 and 6"): levels from -N to N of one scaler, or
// of one a bucket.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "dense_output.h"
#include "level_words.h"
#include "tersewire/codec.h"

namespace tersewire {

inline constexpr std::uint32_t kMaxLevels = 65535;

// What a payload says before its scalers, and how its body lies. Codes are levels plus N.
class LevelsFormat {
 public:
  // levels is N, 1 to kMaxLevels; a bucket_elems of 0 says that there are no buckets.
  LevelsFormat(std::uint32_t levels, std::uint64_t bucket_elems, bool dense);

  [[nodiscard]] std::uint32_t levels() const { return levels_; }
  [[nodiscard]] std::uint64_t bucket_elems() const { return bucket_elems_; }
  [[nodiscard]] bool dense() const { return dense_; }

  [[nodiscard]] std::size_t head_bytes() const;
  void append_head(Bytes& out) const;
  [[nodiscard]] std::size_t scalers(std::size_t elems) const;
  [[nodiscard]] std::size_t body_bytes(std::size_t elems) const;
  // All of a payload.
  [[nodiscard]] std::size_t bytes(std::size_t elems) const {
    return head_bytes() + scalers(elems) * sizeof(float) + body_bytes(elems);
  }

  // Bodies are written and read in blocks of so many elements, a multiple of 4 and at most
  // kOutputBlockElems; the last may be shorter.
  [[nodiscard]] std::size_t block_elems() const;
  // Writes the codes of the block that begins with element `begin`. There is room for
  // kOutputBlockElems codes: what pads them is put behind them.
  void pack_block(std::uint32_t* codes, std::size_t begin, std::size_t n, std::uint8_t* body) const;
  // Whether the block holds n levels and the padding that belongs behind them.
  [[nodiscard]] bool is_valid_block(const std::uint8_t* body, std::size_t begin,
                                    std::size_t n) const;
  // Reads the codes of a valid block, and those that pad them.
  void unpack_block(const std::uint8_t* body, std::size_t begin, std::size_t n,
                    std::uint32_t* codes) const;

  // Calls visit(bucket, begin, n) for the stretches of elements [begin, begin + n) that lie in one
  // bucket each.
  template <typename Visit>
  void visit_buckets(std::size_t begin, std::size_t n, const Visit& visit) const {
    const std::size_t end = begin + n;
    while (begin < end) {
      const std::size_t bucket = bucket_elems_ != 0 ? begin / bucket_elems_ : 0;
      const std::size_t last = bucket_elems_ != 0 ? (bucket + 1) * bucket_elems_ : end;
      const std::size_t count = std::min(last, end) - begin;
      visit(bucket, begin, count);
      begin += count;
    }
  }

 private:
  std::uint32_t levels_;
  std::uint64_t bucket_elems_;
  bool dense_;
  unsigned code_bits_;
  kernels::LevelWords words_;
};

// The format whose body is the shorter one for `elems` values; not dense where both are equal.
LevelsFormat shorter_format(std::uint32_t levels, std::uint64_t bucket_elems, std::size_t elems);

// Room for the codes of a block.
using LevelCodes = std::array<std::uint32_t, kOutputBlockElems>;

// Appends a body; make(begin, n, codes) writes the codes of each block, on any thread. Nothing
// throws once it is called.
template <typename Make>
void append_levels_body(const LevelsFormat& format, std::size_t elems, ThreadPool* pool,
                        const Make& make, Bytes& out) {
  const std::size_t start = out.size();
  out.resize(start + format.body_bytes(elems));
  auto* body = reinterpret_cast<std::uint8_t*>(out.data() + start);
  visit_blocks(elems, format.block_elems(), pool, [&](std::size_t begin, std::size_t n) {
    LevelCodes codes;
    make(begin, n, codes.data());
    format.pack_block(codes.data(), begin, n, body);
  });
}

// All of them throw kDataLoss, naming the codec, where the payload breaks the format.
void check_levels(std::string_view codec, ByteView payload, std::size_t elems);
void decode_levels(std::string_view codec, ByteView payload, std::span<float> out,
                   ThreadPool* pool);
void decode_add_levels(std::string_view codec, ByteView payload, float weight, std::span<float> out,
                       ThreadPool* pool);
std::vector<CodecParameter> levels_parameters(std::string_view codec, ByteView payload);

}  // namespace tersewire
