#include "huffman_writer.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "byte_io.h"

namespace tersewire {
namespace {

using kernels::kStreams;

}  // namespace

void HuffmanWriter::start(std::size_t parts, std::size_t symbols) {
  symbols_ = symbols;
  parts_.resize(parts);
  part_counts_.assign(parts * kStreams * symbols, 0);
}

void HuffmanWriter::count(std::size_t part, const std::uint16_t* indices, std::size_t n) {
  kernels::count_symbols(indices, n, symbols_, part_counts_.data() + part * kStreams * symbols_);
}

void HuffmanWriter::find_codes(unsigned limit) {
  counts_.assign(symbols_, 0);
  for (std::size_t i = 0; i < part_counts_.size(); i += symbols_) {
    std::transform(counts_.begin(), counts_.end(), part_counts_.data() + i, counts_.begin(),
                   std::plus());
  }
  lengths_.resize(symbols_);
  codes_.resize(symbols_);
  package_merge_.find_lengths(counts_, limit, lengths_);
  assign_codes(lengths_, codes_);
  longest_ = *std::ranges::max_element(lengths_);
  packed_lengths_.clear();
  packed_lengths_.reserve(symbols_);
  append_lengths(packed_lengths_, lengths_);

  const std::uint32_t* counts = part_counts_.data();
  const auto product = [](std::uint64_t length, std::uint64_t count) { return length * count; };
  for (Part& part : parts_) {
    for (std::uint64_t& bits : part.bits) {
      bits = std::transform_reduce(lengths_.begin(), lengths_.end(), counts, std::uint64_t{0},
                                   std::plus(), product);
      counts += symbols_;
    }
  }
}

std::size_t HuffmanWriter::stream_bytes(std::size_t stream) const {
  std::uint64_t bits = 0;
  for (const Part& part : parts_) bits += part.bits[stream];
  return static_cast<std::size_t>((bits + 7) / 8);
}

std::size_t HuffmanWriter::bytes() const {
  std::size_t bytes = packed_lengths_.size();
  for (std::size_t k = 0; k < kStreams; ++k) {
    bytes += varint_bytes(stream_bytes(k)) + stream_bytes(k);
  }
  return bytes;
}

void HuffmanWriter::append_streams(Bytes& out) {
  const std::size_t end = out.size() + bytes();
  append(out, packed_lengths_.data(), packed_lengths_.size());
  for (std::size_t k = 0; k < kStreams; ++k) append_varint(out, stream_bytes(k));
  const std::size_t at = out.size();
  out.resize(end);
  place_writers(reinterpret_cast<std::uint8_t*>(out.data() + at));
}

// A part that begins within a byte leaves that byte's first bits to the part before it.
void HuffmanWriter::place_writers(std::uint8_t* at) {
  for (std::size_t k = 0; k < kStreams; ++k) {
    std::uint64_t bit = 0;
    for (Part& part : parts_) {
      const std::uint64_t end = bit + part.bits[k];
      part.begins[k] = at + bit / 8;
      part.writers[k] = {.at = at + bit / 8,
                         .end = at + end / 8,
                         .pending = 0,
                         .pending_bits = static_cast<unsigned>(bit % 8)};
      bit = end;
    }
    at += stream_bytes(k);
  }
}

void HuffmanWriter::write(std::size_t part, const std::uint16_t* indices, std::size_t n) {
  kernels::write_codes(codes_.data(), longest_, indices, n, parts_[part].writers);
}

// A part's last bits, where they fill no byte, are still pending: they go into the byte that the
// next part began with, or into the stream's last.
void HuffmanWriter::finish() {
  for (std::size_t k = 0; k < kStreams; ++k) {
    std::uint8_t last = 0;
    for (const Part& part : parts_) {
      const kernels::StreamWriter& writer = part.writers[k];
      const bool within_a_byte = writer.at == part.begins[k];
      if (!within_a_byte) *part.begins[k] |= std::exchange(last, std::uint8_t{0});
      last |= static_cast<std::uint8_t>(writer.pending);
    }
    const kernels::StreamWriter& end = parts_.back().writers[k];
    if (end.pending_bits > 0) *end.at = last;
  }
}

}  // namespace tersewire
