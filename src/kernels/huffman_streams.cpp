#include "huffman_streams.h"

// Plain loops, but compiled for each target: newer ones shift by a register in one instruction.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "huffman_streams.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <utility>

HWY_BEFORE_NAMESPACE();
namespace tersewire::kernels::HWY_NAMESPACE {
namespace {

constexpr std::size_t kWordBytes = sizeof(std::uint64_t);
constexpr std::size_t kWordBits = 64;
// A word that begins somewhere in a byte holds 57 bits or more: four codes of 14, or three of 16.
constexpr unsigned kShortCodeBits = 14;
constexpr std::size_t kShortRun = 4;
constexpr std::size_t kLongRun = 3;

// Calls use.operator()<k>() for each stream: what they keep in arrays stays in registers then.
template <std::size_t... k, class Use>
HWY_INLINE void for_streams(std::index_sequence<k...>, const Use& use) {
  (use.template operator()<k>(), ...);
}
constexpr std::make_index_sequence<kStreams> kAllStreams;

// --- Writing

HWY_INLINE void put(StreamWriter& stream, HuffmanCode code) {
  stream.pending |= std::uint64_t{code.bits} << stream.pending_bits;
  stream.pending_bits += code.length;
}

// Whole words: up to seven bytes behind what is meant are written, and then again.
template <std::size_t kRun>
HWY_INLINE std::size_t write_words(const HuffmanCode* codes, const std::uint16_t* indices,
                                   std::size_t n, std::array<StreamWriter, kStreams>& streams) {
  constexpr std::size_t kStep = kRun * kStreams;
  std::array<StreamWriter, kStreams> local = streams;
  std::size_t e = 0;
  for (;;) {
    // Steps for which each stream has room: no more than a word each.
    std::size_t steps = (n - e) / kStep;
    for (const StreamWriter& stream : local) {
      steps = std::min(steps, static_cast<std::size_t>(stream.end - stream.at) / kWordBytes);
    }
    if (steps == 0) break;
    for (const std::size_t end = e + steps * kStep; e < end; e += kStep) {
      for_streams(kAllStreams, [&]<std::size_t k>() HWY_ATTR {
        StreamWriter& stream = local[k];
        HWY_UNROLL(4)
        for (std::size_t i = 0; i < kRun; ++i) put(stream, codes[indices[e + i * kStreams + k]]);
        std::memcpy(stream.at, &stream.pending, kWordBytes);
        stream.at += stream.pending_bits / 8;
        stream.pending >>= stream.pending_bits / 8 * 8;
        stream.pending_bits %= 8;
      });
    }
  }
  streams = local;
  return e;
}

// --- Reading

HWY_INLINE std::uint64_t read_word(const StreamReader& stream) {
  std::uint64_t word;
  std::memcpy(&word, stream.bytes + stream.position / 8, kWordBytes);
  return word >> stream.position % 8;
}

HWY_INLINE bool holds_word(const StreamReader& stream) {
  return stream.position / 8 + kWordBytes <= stream.size;
}

// The stream's last bits, zeros behind them. The position is not behind its end.
HWY_INLINE std::uint64_t read_end(const StreamReader& stream) {
  const auto at = static_cast<std::size_t>(stream.position / 8);
  std::uint64_t word = 0;
  std::memcpy(&word, stream.bytes + at, std::min(kWordBytes, stream.size - at));
  return word >> stream.position % 8;
}

HWY_INLINE std::uint64_t mask_of(const CodeTables& tables) {
  return (std::uint64_t{1} << tables.width) - 1;
}

// In how many steps each of the streams holds the word that it begins with, where none takes more
// than `bits`. A word begins in the byte of its position, so the last may be 7 bits further on.
HWY_INLINE std::size_t steps_of(const std::array<StreamReader, kStreams>& streams,
                                std::size_t bits) {
  std::size_t steps = ~std::size_t{0};
  for (const StreamReader& stream : streams) {
    const std::size_t left = stream.size * 8 - static_cast<std::size_t>(stream.position);
    steps = std::min(steps, holds_word(stream) ? (left + 7 - kWordBits) / bits + 1 : 0);
  }
  return steps;
}

// Skips what a word holds, in kRun steps; the stream must hold the word, and the codes.
template <std::size_t kRun>
HWY_INLINE void skip_word(const CodeTables& tables, std::uint64_t mask, StreamReader& stream,
                          std::size_t& left) {
  std::uint64_t word = read_word(stream);
  HWY_UNROLL(4)
  for (std::size_t i = 0; i < kRun; ++i) {
    const SkippingEntry entry = tables.skipping[word & mask];
    word >>= entry.length;
    stream.position += entry.length;
    left -= entry.codes;
  }
}

// One stream's last codes.
HWY_INLINE bool skip_end(const CodeTables& tables, StreamReader& stream, std::size_t left) {
  const std::uint64_t mask = mask_of(tables);
  while (left >= tables.width && holds_word(stream)) skip_word<1>(tables, mask, stream, left);
  for (; left > 0; --left) {
    stream.position += tables.decoding[read_end(stream) & mask].first_length;
    if (stream.position > stream.size * 8) return false;
  }
  return true;
}

template <std::size_t kRun>
HWY_INLINE void skip_words(const CodeTables& tables, std::array<StreamReader, kStreams>& streams,
                           std::array<std::size_t, kStreams>& left) {
  const std::uint64_t mask = mask_of(tables);
  std::array<StreamReader, kStreams> local = streams;
  std::array<std::size_t, kStreams> local_left = left;
  // No entry stands for more codes than it has bits.
  const std::size_t enough = kRun * tables.width;
  for (;;) {
    std::size_t steps =
        std::min(steps_of(local, enough), *std::ranges::min_element(local_left) / enough);
    if (steps == 0) break;
    for (; steps > 0; --steps) {
      for (std::size_t k = 0; k < kStreams; ++k) {
        skip_word<kRun>(tables, mask, local[k], local_left[k]);
      }
    }
  }
  streams = local;
  left = local_left;
}

// Where a stream's symbols go, every kStreams-th from `at` on.
struct Symbols {
  std::uint16_t* at;
  std::size_t left;
};

// Reads what a word holds, in kRun steps; the stream must hold the word, and two codes a step.
template <std::size_t kRun>
HWY_INLINE void read_from_word(const CodeTables& tables, std::uint64_t mask, StreamReader& stream,
                               Symbols& symbols) {
  std::uint64_t word = read_word(stream);
  HWY_UNROLL(4)
  for (std::size_t i = 0; i < kRun; ++i) {
    const DecodingEntry entry = tables.decoding[word & mask];
    // Where there is one code, what the second says is overwritten.
    symbols.at[0] = entry.symbols[0];
    symbols.at[kStreams] = entry.symbols[1];
    symbols.at += entry.codes * kStreams;
    symbols.left -= entry.codes;
    word >>= entry.length;
    stream.position += entry.length;
  }
}

// One stream's last codes.
HWY_INLINE void read_end_of(const CodeTables& tables, StreamReader& stream, Symbols symbols) {
  const std::uint64_t mask = mask_of(tables);
  while (symbols.left >= 2 && holds_word(stream)) {
    read_from_word<1>(tables, mask, stream, symbols);
  }
  for (; symbols.left > 0; --symbols.left, symbols.at += kStreams) {
    const DecodingEntry entry = tables.decoding[read_end(stream) & mask];
    *symbols.at = entry.symbols[0];
    stream.position += entry.first_length;
  }
}

template <std::size_t kRun>
HWY_INLINE void read_words(const CodeTables& tables, std::array<StreamReader, kStreams>& streams,
                           std::array<Symbols, kStreams>& symbols) {
  const std::uint64_t mask = mask_of(tables);
  std::array<StreamReader, kStreams> local = streams;
  std::array<Symbols, kStreams> local_symbols = symbols;
  for (;;) {
    std::size_t steps = steps_of(local, kRun * tables.width);
    for (const Symbols& each : local_symbols) steps = std::min(steps, each.left / (2 * kRun));
    if (steps == 0) break;
    for (; steps > 0; --steps) {
      for (std::size_t k = 0; k < kStreams; ++k) {
        read_from_word<kRun>(tables, mask, local[k], local_symbols[k]);
      }
    }
  }
  streams = local;
  symbols = local_symbols;
}

}  // namespace

void count_symbols(const std::uint16_t* indices, std::size_t n, std::size_t symbols,
                   std::uint32_t* counts) {
  std::size_t e = 0;
  for (; e + kStreams <= n; e += kStreams) {
    for_streams(kAllStreams,
                [&]<std::size_t k>() HWY_ATTR { ++counts[k * symbols + indices[e + k]]; });
  }
  for (; e < n; ++e) ++counts[e % kStreams * symbols + indices[e]];
}

void write_codes(const HuffmanCode* codes, unsigned longest, const std::uint16_t* indices,
                 std::size_t n, std::array<StreamWriter, kStreams>& streams) {
  std::size_t e = longest <= kShortCodeBits ? write_words<kShortRun>(codes, indices, n, streams)
                                            : write_words<kLongRun>(codes, indices, n, streams);
  for (; e < n; ++e) {
    StreamWriter& stream = streams[e % kStreams];
    put(stream, codes[indices[e]]);
    for (; stream.pending_bits >= 8; stream.pending_bits -= 8) {
      *stream.at++ = static_cast<std::uint8_t>(stream.pending);
      stream.pending >>= 8;
    }
  }
}

bool skip_codes(const CodeTables& tables, std::array<StreamReader, kStreams>& streams,
                std::size_t n) {
  std::array<std::size_t, kStreams> left;
  for (std::size_t k = 0; k < kStreams; ++k) left[k] = (n + kStreams - 1 - k) / kStreams;
  if (tables.width <= kShortCodeBits) {
    skip_words<kShortRun>(tables, streams, left);
  } else {
    skip_words<kLongRun>(tables, streams, left);
  }
  for (std::size_t k = 0; k < kStreams; ++k) {
    if (!skip_end(tables, streams[k], left[k])) return false;
  }
  return true;
}

void read_codes(const CodeTables& tables, std::array<StreamReader, kStreams>& streams,
                std::size_t n, std::uint16_t* indices) {
  std::array<Symbols, kStreams> symbols;
  for (std::size_t k = 0; k < kStreams; ++k) {
    symbols[k] = {.at = indices + k, .left = (n + kStreams - 1 - k) / kStreams};
  }
  if (tables.width <= kShortCodeBits) {
    read_words<kShortRun>(tables, streams, symbols);
  } else {
    read_words<kLongRun>(tables, streams, symbols);
  }
  for (std::size_t k = 0; k < kStreams; ++k) read_end_of(tables, streams[k], symbols[k]);
}

}  // namespace tersewire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tersewire::kernels {

HWY_EXPORT(count_symbols);
HWY_EXPORT(write_codes);
HWY_EXPORT(skip_codes);
HWY_EXPORT(read_codes);

void count_symbols(const std::uint16_t* indices, std::size_t n, std::size_t symbols,
                   std::uint32_t* counts) {
  HWY_DYNAMIC_DISPATCH(count_symbols)(indices, n, symbols, counts);
}
void write_codes(const HuffmanCode* codes, unsigned longest, const std::uint16_t* indices,
                 std::size_t n, std::array<StreamWriter, kStreams>& streams) {
  HWY_DYNAMIC_DISPATCH(write_codes)(codes, longest, indices, n, streams);
}
bool skip_codes(const CodeTables& tables, std::array<StreamReader, kStreams>& streams,
                std::size_t n) {
  return HWY_DYNAMIC_DISPATCH(skip_codes)(tables, streams, n);
}
void read_codes(const CodeTables& tables, std::array<StreamReader, kStreams>& streams,
                std::size_t n, std::uint16_t* indices) {
  HWY_DYNAMIC_DISPATCH(read_codes)(tables, streams, n, indices);
}

}  // namespace tersewire::kernels
#endif  // HWY_ONCE
