// Writing symbols as Huffman codes in four interleaved bit streams (spec/wire-format.md, "Codec
// 15"), with several threads if need be: the symbols come in parts, each counted and later written
// by one thread. The bytes do not depend on how they are cut.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "huffman.h"
#include "huffman_streams.h"
#include "tersewire/bytes.h"

namespace tersewire {

// Keeps its working memory for the next symbols: about 100 bytes for each that there may be, and 16
// for each part after the first.
class HuffmanWriter {
 public:
  // So many parts will come, of symbols below `symbols`, at least two of which differ. A part holds
  // a multiple of four symbols, except the last, and fewer than 2^34.
  void start(std::size_t parts, std::size_t symbols);
  // Counts symbols of a part, which are its next ones; each call but a part's last takes a multiple
  // of four. Different parts may be counted by different threads.
  void count(std::size_t part, const std::uint16_t* indices, std::size_t n);

  // Finds the codes once all are counted; none will be longer than `limit` bits.
  void find_codes(unsigned limit);
  // What the rest will append.
  [[nodiscard]] std::size_t bytes() const;

  // Appends the codes' lengths and room for the streams.
  void append_streams(Bytes& out);
  // Writes symbols of a part; the same calls as for counting.
  void write(std::size_t part, const std::uint16_t* indices, std::size_t n);
  // Ends the streams; `out` must not have grown since append_streams().
  void finish();

 private:
  struct Part {
    std::array<std::uint64_t, kernels::kStreams> bits;  // that it adds to each stream
    std::array<std::uint8_t*, kernels::kStreams> begins;
    std::array<kernels::StreamWriter, kernels::kStreams> writers;
  };

  [[nodiscard]] std::size_t stream_bytes(std::size_t stream) const;
  void place_writers(std::uint8_t* at);

  std::size_t symbols_ = 0;
  std::vector<Part> parts_;
  std::vector<std::uint32_t> part_counts_;  // of each part, of each stream, of each symbol
  std::vector<std::uint64_t> counts_;
  std::vector<std::uint8_t> lengths_;
  std::vector<kernels::HuffmanCode> codes_;
  unsigned longest_ = 0;
  Bytes packed_lengths_;
  PackageMerge package_merge_;
};

}  // namespace tersewire
