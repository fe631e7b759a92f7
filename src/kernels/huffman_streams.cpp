#include "huffman_streams.h"

#include <algorithm>
#include <cstring>

namespace tersewire::kernels {
namespace {

constexpr std::size_t kWordBytes = sizeof(std::uint64_t);
// A word that begins somewhere in a byte holds 57 bits or more: four codes of 14, or three of 16.
constexpr unsigned kShortCodeBits = 14;
constexpr std::size_t kShortRun = 4;
constexpr std::size_t kLongRun = 3;

// --- Writing

void put(StreamWriter& stream, HuffmanCode code) {
  stream.pending |= std::uint64_t{code.bits} << stream.pending_bits;
  stream.pending_bits += code.length;
}

// Whole words: up to seven bytes behind what is meant are written, and then again.
template <std::size_t kRun>
std::size_t write_words(const HuffmanCode* codes, const std::uint16_t* indices, std::size_t n,
                        std::array<StreamWriter, kStreams>& streams) {
  const auto has_room = [](const StreamWriter& stream) {
    return stream.end - stream.at >= static_cast<std::ptrdiff_t>(kWordBytes);
  };
  std::array<StreamWriter, kStreams> local = streams;
  std::size_t e = 0;
  for (; e + kRun * kStreams <= n && std::ranges::all_of(local, has_room); e += kRun * kStreams) {
    for (std::size_t k = 0; k < kStreams; ++k) {
      StreamWriter& stream = local[k];
      for (std::size_t i = 0; i < kRun; ++i) put(stream, codes[indices[e + i * kStreams + k]]);
      std::memcpy(stream.at, &stream.pending, kWordBytes);
      stream.at += stream.pending_bits / 8;
      stream.pending >>= stream.pending_bits / 8 * 8;
      stream.pending_bits %= 8;
    }
  }
  streams = local;
  return e;
}

// --- Reading

std::uint64_t read_word(const StreamReader& stream) {
  std::uint64_t word;
  std::memcpy(&word, stream.bytes + stream.position / 8, kWordBytes);
  return word >> stream.position % 8;
}

bool holds_word(const StreamReader& stream) {
  return stream.position / 8 + kWordBytes <= stream.size;
}

// The stream's last bits, zeros behind them. The position is not behind its end.
std::uint64_t read_end(const StreamReader& stream) {
  const auto at = static_cast<std::size_t>(stream.position / 8);
  std::uint64_t word = 0;
  std::memcpy(&word, stream.bytes + at, std::min(kWordBytes, stream.size - at));
  return word >> stream.position % 8;
}

std::uint64_t mask_of(const CodeTables& tables) { return (std::uint64_t{1} << tables.width) - 1; }

// Skips what a word holds, in kRun steps; the stream must hold the word, and the codes.
template <std::size_t kRun>
void skip_word(const CodeTables& tables, std::uint64_t mask, StreamReader& stream,
               std::size_t& left) {
  std::uint64_t word = read_word(stream);
  for (std::size_t i = 0; i < kRun; ++i) {
    const SkippingEntry entry = tables.skipping[word & mask];
    word >>= entry.length;
    stream.position += entry.length;
    left -= entry.codes;
  }
}

// One stream's last codes.
bool skip_end(const CodeTables& tables, StreamReader& stream, std::size_t left) {
  const std::uint64_t mask = mask_of(tables);
  while (left >= tables.width && holds_word(stream)) skip_word<1>(tables, mask, stream, left);
  for (; left > 0; --left) {
    stream.position += tables.decoding[read_end(stream) & mask].length;
    if (stream.position > stream.size * 8) return false;
  }
  return true;
}

template <std::size_t kRun>
void skip_words(const CodeTables& tables, std::array<StreamReader, kStreams>& streams,
                std::array<std::size_t, kStreams>& left) {
  const std::uint64_t mask = mask_of(tables);
  std::array<StreamReader, kStreams> local = streams;
  // No entry stands for more codes than it has bits.
  const std::size_t enough = kRun * tables.width;
  while (std::ranges::all_of(local, holds_word) &&
         std::ranges::all_of(left, [&](std::size_t codes) { return codes >= enough; })) {
    for (std::size_t k = 0; k < kStreams; ++k) skip_word<kRun>(tables, mask, local[k], left[k]);
  }
  streams = local;
}

template <std::size_t kRun>
std::size_t read_words(const CodeTables& tables, std::array<StreamReader, kStreams>& streams,
                       std::size_t n, std::uint16_t* indices) {
  const std::uint64_t mask = mask_of(tables);
  std::array<StreamReader, kStreams> local = streams;
  std::size_t e = 0;
  for (; e + kRun * kStreams <= n && std::ranges::all_of(local, holds_word); e += kRun * kStreams) {
    for (std::size_t k = 0; k < kStreams; ++k) {
      std::uint64_t word = read_word(local[k]);
      for (std::size_t i = 0; i < kRun; ++i) {
        const DecodingEntry entry = tables.decoding[word & mask];
        indices[e + i * kStreams + k] = entry.symbol;
        word >>= entry.length;
        local[k].position += entry.length;
      }
    }
  }
  streams = local;
  return e;
}

}  // namespace

void count_symbols(const std::uint16_t* indices, std::size_t n, std::size_t symbols,
                   std::uint32_t* counts) {
  std::size_t e = 0;
  for (; e + kStreams <= n; e += kStreams) {
    for (std::size_t k = 0; k < kStreams; ++k) ++counts[k * symbols + indices[e + k]];
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
  std::size_t e = tables.width <= kShortCodeBits
                      ? read_words<kShortRun>(tables, streams, n, indices)
                      : read_words<kLongRun>(tables, streams, n, indices);
  const std::uint64_t mask = mask_of(tables);
  for (; e < n; ++e) {
    StreamReader& stream = streams[e % kStreams];
    const DecodingEntry entry = tables.decoding[read_end(stream) & mask];
    indices[e] = entry.symbol;
    stream.position += entry.length;
  }
}

}  // namespace tersewire::kernels
