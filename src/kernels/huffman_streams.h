// Symbols as Huffman codes in four interleaved bit streams (spec/wire-format.md, "Codec 15"):
// symbol e is in stream e mod 4, so that a processor works on four at once where one would have it
// wait. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tersewire::kernels {

inline constexpr std::size_t kStreams = 4;
inline constexpr unsigned kMaxCodeBits = 16;

// Adds the symbols to four tables of `symbols` counters, symbol e to table e mod 4. Counters must
// not overflow: n of all calls together is below 2^34.
void count_symbols(const std::uint16_t* indices, std::size_t n, std::size_t symbols,
                   std::uint32_t* counts);

// A symbol's code, its first bit lowest.
struct HuffmanCode {
  std::uint16_t bits;
  std::uint16_t length;
};

// Where a stream goes on. Whole bytes are stored, none at or past `end`, though bytes before it may
// be written more than once; `pending` holds the last bits, fewer than 8 between calls.
struct StreamWriter {
  std::uint8_t* at;
  const std::uint8_t* end;
  std::uint64_t pending;
  unsigned pending_bits;
};

// Appends the codes of n symbols, of which the first belongs to stream 0. No code is longer than
// `longest`.
void write_codes(const HuffmanCode* codes, unsigned longest, const std::uint16_t* indices,
                 std::size_t n, std::array<StreamWriter, kStreams>& streams);

// Where reading a stream goes on.
struct StreamReader {
  const std::uint8_t* bytes;
  std::size_t size;        // in bytes
  std::uint64_t position;  // in bits
};

// What the next bits, `width` of them, say: a symbol, and the next where its code is there as well.
struct DecodingEntry {
  std::array<std::uint16_t, 2> symbols;
  std::uint8_t codes;         // 1 or 2
  std::uint8_t length;        // of them all
  std::uint8_t first_length;  // of the first
};
// The same for going on without looking: how many whole codes, one or more, and their length.
struct SkippingEntry {
  std::uint8_t codes;
  std::uint8_t length;
};

// Both tables have 2^width entries, and every entry stands for a code.
struct CodeTables {
  unsigned width;  // of the longest code
  const DecodingEntry* decoding;
  const SkippingEntry* skipping;
};

// Skips as many codes of each stream as it has in n symbols, of which the first belongs to stream
// 0. Returns false where a stream is too short for that.
bool skip_codes(const CodeTables& tables, std::array<StreamReader, kStreams>& streams,
                std::size_t n);

// Reads n symbols, of which the first belongs to stream 0. skip_codes() has found that they are all
// there.
void read_codes(const CodeTables& tables, std::array<StreamReader, kStreams>& streams,
                std::size_t n, std::uint16_t* indices);

}  // namespace tersewire::kernels
