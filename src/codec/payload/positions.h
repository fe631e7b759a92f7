// The elements that a sparse payload names (spec/wire-format.md, "Positions"): Rice codes of the
// gaps between them, each with a sign bit behind it where a codec wants one, or a bitmap.
//
// Writers and readers are for one thread at a time and allocate nothing.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "byte_io.h"
#include "selection.h"
#include "tersewire/bytes.h"

namespace tersewire {

// The largest parameter of a Rice code: positions have 40 bits.
inline constexpr unsigned kMaxRiceParameter = 39;

// Reads the parameter of a stream off a payload's head; `codec` names the payload in errors.
unsigned read_rice_parameter(ByteReader& reader, std::string_view codec);

// Which elements a writer names, as kernels/selection.h leaves them: bits of words. `negative` says
// which of them get the sign bit 1; empty: there are no sign bits.
struct NamedElements {
  std::span<const std::uint64_t> words;
  std::span<const std::uint64_t> negative;
};

std::uint64_t count_named(std::span<const std::uint64_t> words);

// Lists the elements named in words [begin, end): calls use(first, places) for stretches of them,
// where `first` plus each of `places` is an element.
template <typename Use>
void list_named(std::span<const std::uint64_t> words, std::size_t begin, std::size_t end,
                const Use& use) {
  constexpr std::size_t kListedWords = 64;
  std::array<std::uint32_t, kListedWords * kernels::kWordElems + kernels::kListSlack> places;
  for (std::size_t i = begin; i < end; i += kListedWords) {
    const std::size_t listed =
        kernels::list_selected(words.data() + i, std::min(kListedWords, end - i), places.data());
    use(i * kernels::kWordElems, std::span<const std::uint32_t>(places.data(), listed));
  }
}

// What a writer knows before it writes a bit.
struct PositionPlan {
  std::uint64_t count = 0;
  std::uint64_t stream_bits = 0;
  std::uint8_t k = 0;

  // The k that makes the shortest stream, and the smallest such k; 0 where nothing is named.
  static PositionPlan of(const NamedElements& named);
  [[nodiscard]] std::size_t stream_bytes() const {
    return static_cast<std::size_t>((stream_bits + 7) / 8);
  }
};

// Writes the stream at `out`, exactly plan.stream_bytes().
void write_positions(const NamedElements& named, const PositionPlan& plan, std::uint8_t* out);

// The tail of a payload whose elements are named by gaps with signs: count, k, stream. At most so
// many bytes; appended; read, and the stream not looked at yet.
std::size_t signed_gaps_max_bytes(std::size_t elems);
void append_signed_gaps(const NamedElements& named, Bytes& out);

struct SignedGaps {
  std::uint64_t count;
  unsigned k;
  ByteView stream;

  // All that is left in `reader`; `codec` names the payload in errors.
  static SignedGaps read(ByteReader& reader, std::uint64_t max_count, std::string_view codec);
};

// An element that a reader finds.
class FoundElement {
 public:
  FoundElement() = default;
  FoundElement(std::uint64_t elem, std::uint64_t sign) : packed_(elem << 1 | sign) {}

  [[nodiscard]] std::size_t elem() const { return static_cast<std::size_t>(packed_ >> 1); }
  [[nodiscard]] bool negative() const { return (packed_ & 1) != 0; }

 private:
  std::uint64_t packed_;
};

// As many are found at once, at most.
inline constexpr std::size_t kFoundBatch = 256;

// Reads a stream of gaps: `count` elements below `elems`, exactly. All that may be wrong with it is
// found by reading to the end, which a decoder does once before it writes anything.
class GapReader {
 public:
  // k is at most kMaxRiceParameter; `codec` names the payload in errors.
  GapReader(ByteView stream, unsigned k, bool signs, std::uint64_t count, std::size_t elems,
            std::string_view codec);
  GapReader(const SignedGaps& gaps, std::size_t elems, std::string_view codec)
      : GapReader(gaps.stream, gaps.k, true, gaps.count, elems, codec) {}

  // The next elements, ascending; none at the end. They stay until the next call. Throws kDataLoss
  // for a position at or past `elems`, for a stream that ends early, and, at the end, for one that
  // goes on.
  std::span<const FoundElement> next();

 private:
  // The stream's bits in order.
  struct Cursor {
    const std::uint8_t* at;
    const std::uint8_t* end;
    std::uint64_t bits = 0;  // the first `available` come next; behind them are those of `at`, or 0
    unsigned available = 0;  // 63 or fewer

    void refill();  // to 56 or more, where the stream has them
    // How many come before the next one; `available` or more where there is none. The last bit,
    // which never counts, keeps the compiler from a branch for 0.
    [[nodiscard]] unsigned zeros() const {
      return static_cast<unsigned>(std::countr_zero(bits | std::uint64_t{1} << 63));
    }
    void skip(unsigned n) {
      bits >>= n;
      available -= n;
    }
  };

  // Reads one code however long it is.
  FoundElement read_long();
  std::uint64_t take_zeros();
  std::uint64_t take_bits(unsigned n);
  void check_end() const;

  Cursor cursor_;
  unsigned k_;
  bool signs_;
  std::uint64_t left_;
  std::uint64_t lowest_ = 0;  // the element that a gap of 0 would name
  std::uint64_t elems_;
  std::string_view codec_;
  std::array<FoundElement, kFoundBatch> found_;
};

// Reads a bitmap in the same way.
class BitmapReader {
 public:
  // Throws kDataLoss unless the bitmap has `count` of its first `elems` bits set and no other, and
  // exactly the bytes that elems bits need.
  BitmapReader(ByteView bitmap, std::uint64_t count, std::size_t elems, std::string_view codec);

  std::span<const FoundElement> next();

 private:
  // Eight bytes, or what is left of them.
  [[nodiscard]] std::uint64_t word(std::size_t index) const;

  ByteView bitmap_;
  std::size_t next_word_ = 0;
  std::uint64_t bits_ = 0;  // of the word before next_word_, not found yet
  std::array<FoundElement, kFoundBatch> found_;
};

// Reads to the end.
template <typename Reader>
void check_elements(Reader reader) {
  while (!reader.next().empty()) {
  }
}

}  // namespace tersewire
