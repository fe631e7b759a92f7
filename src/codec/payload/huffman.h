// Canonical Huffman codes of limited length: finding them, writing their lengths, reading them back
// (spec/wire-format.md, "Codec 15").
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "byte_io.h"
#include "huffman_streams.h"
#include "tersewire/bytes.h"

namespace tersewire {

// Finds the best code lengths under a limit by package-merge (Larmore and Hirschberg, 1990). Keeps
// its working memory for the next call.
class PackageMerge {
 public:
  // Writes to `lengths` each symbol's, 0 where its count is 0. Two counts or more are not 0, no
  // more than 2^limit; limit is at most kernels::kMaxCodeBits. Cost: limit passes over the used
  // symbols.
  void find_lengths(std::span<const std::uint64_t> counts, unsigned limit,
                    std::span<std::uint8_t> lengths);

 private:
  struct Symbol {
    std::uint64_t count;
    std::size_t number;
  };

  void reserve(std::size_t symbols, unsigned limit);
  void sort_symbols(std::span<const std::uint64_t> counts);
  void merge_packages(std::size_t wanted, std::uint8_t* is_symbol);

  std::vector<Symbol> symbols_;      // that are used, the rarest first
  std::vector<std::uint64_t> list_;  // weights, the lightest first
  std::vector<std::uint64_t> merged_;
  std::vector<std::uint8_t> is_symbol_;  // a row a level: which of its list are symbols
};

// The canonical codes of these lengths, for all symbols; those of length 0 have none.
void assign_codes(std::span<const std::uint8_t> lengths, std::span<kernels::HuffmanCode> codes);

// Lengths in runs, as payloads hold them.
void append_lengths(Bytes& out, std::span<const std::uint8_t> lengths);
// Reads exactly `symbols` of them. Throws kDataLoss where they break the format, or are not those
// of a complete code.
std::vector<std::uint8_t> read_lengths(ByteReader& reader, std::size_t symbols);

// What reading codes takes; the lengths must be those of a complete code.
class HuffmanTables {
 public:
  // `elems` is how many symbols will be read: it decides what is worth preparing.
  HuffmanTables(std::span<const std::uint8_t> lengths, std::size_t elems);

  [[nodiscard]] kernels::CodeTables view() const {
    return {.width = width_, .decoding = decoding_.data(), .skipping = skipping_.data()};
  }

 private:
  [[nodiscard]] kernels::SkippingEntry skipping_entry(std::size_t bits) const;
  void add_second(std::size_t bits);

  unsigned width_;
  std::vector<kernels::DecodingEntry> decoding_;
  std::vector<kernels::SkippingEntry> skipping_;
};

}  // namespace tersewire
