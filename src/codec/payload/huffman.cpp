#include "huffman.h"

#include <algorithm>
#include <array>

#include "errors.h"

namespace tersewire {
namespace {

using kernels::kMaxCodeBits;

constexpr unsigned kLengthBits = 5;
constexpr unsigned kLengthMask = (1U << kLengthBits) - 1;
constexpr std::size_t kLongRun = 8;  // from here on a run's length is a varint
constexpr std::uint8_t kLongRunCode = 7;
constexpr std::uint64_t kMaxLongRun = std::uint64_t{1} << 16;

std::uint16_t reversed(std::uint32_t code, unsigned length) {
  std::uint32_t bits = 0;
  for (unsigned i = 0; i < length; ++i) bits |= (code >> i & 1) << (length - 1 - i);
  return static_cast<std::uint16_t>(bits);
}

void check_complete(std::span<const std::uint8_t> lengths) {
  // Of 2^16 codes of 16 bits, those that begin with a used symbol's code.
  std::uint64_t taken = 0;
  for (const std::uint8_t length : lengths) taken += length > 0 ? 1U << (kMaxCodeBits - length) : 0;
  if (taken != 1U << kMaxCodeBits) {
    fail(ErrorCode::kDataLoss,
         "code lengths fill {} of 65536 parts of the code space, where all are expected", taken);
  }
}

}  // namespace

// For all symbols in use, so that it need not be done again.
void PackageMerge::reserve(std::size_t symbols, unsigned limit) {
  symbols_.reserve(symbols);
  list_.reserve(2 * symbols);
  merged_.reserve(2 * symbols);
  is_symbol_.reserve(symbols * 2 * limit);
}

void PackageMerge::sort_symbols(std::span<const std::uint64_t> counts) {
  symbols_.clear();
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) symbols_.push_back({.count = counts[i], .number = i});
  }
  std::ranges::sort(symbols_, [](const Symbol& a, const Symbol& b) {
    return a.count != b.count ? a.count < b.count : a.number < b.number;
  });
}

// Pairs of the list become packages, and these with all symbols the next list: its first `wanted`.
void PackageMerge::merge_packages(std::size_t wanted, std::uint8_t* is_symbol) {
  const std::size_t packages = list_.size() / 2;
  merged_.clear();
  std::size_t package = 0;
  std::size_t symbol = 0;
  while (merged_.size() < wanted && (package < packages || symbol < symbols_.size())) {
    const std::uint64_t weight =
        package < packages ? list_[2 * package] + list_[2 * package + 1] : 0;
    const bool take_symbol =
        package == packages || (symbol < symbols_.size() && symbols_[symbol].count <= weight);
    merged_.push_back(take_symbol ? symbols_[symbol].count : weight);
    *is_symbol++ = take_symbol ? 1 : 0;
    ++(take_symbol ? symbol : package);
  }
  list_.swap(merged_);
}

void PackageMerge::find_lengths(std::span<const std::uint64_t> counts, unsigned limit,
                                std::span<std::uint8_t> lengths) {
  reserve(counts.size(), limit);
  sort_symbols(counts);
  const std::size_t wanted = 2 * symbols_.size() - 2;
  list_.clear();
  is_symbol_.assign(limit * wanted, 0);
  for (unsigned level = 0; level < limit; ++level) {
    merge_packages(wanted, is_symbol_.data() + level * wanted);
  }
  std::ranges::fill(lengths, std::uint8_t{0});
  // A package that is taken takes its pair one level below; each taking of a symbol is a bit.
  std::size_t taken = wanted;
  for (unsigned level = limit; level-- > 0;) {
    const std::uint8_t* row = is_symbol_.data() + level * wanted;
    const auto symbols = static_cast<std::size_t>(std::count(row, row + taken, 1));
    for (std::size_t i = 0; i < symbols; ++i) ++lengths[symbols_[i].number];
    taken = 2 * (taken - symbols);
  }
}

void assign_codes(std::span<const std::uint8_t> lengths, std::span<kernels::HuffmanCode> codes) {
  std::array<std::uint32_t, kMaxCodeBits + 1> next{};
  for (const std::uint8_t length : lengths) ++next[length];
  std::uint32_t first = 0;
  next[0] = 0;
  for (std::uint32_t& count : next) {
    const std::uint32_t end = first + count;
    count = std::exchange(first, 2 * end);
  }
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const unsigned length = lengths[i];
    codes[i] = {.bits = length > 0 ? reversed(next[length]++, length) : std::uint16_t{0},
                .length = static_cast<std::uint16_t>(length)};
  }
}

void append_lengths(Bytes& out, std::span<const std::uint8_t> lengths) {
  for (std::size_t i = 0; i < lengths.size();) {
    std::size_t run = 1;
    while (i + run < lengths.size() && lengths[i + run] == lengths[i]) ++run;
    const auto code = run < kLongRun ? static_cast<std::uint8_t>(run - 1) : kLongRunCode;
    append_value(out, static_cast<std::uint8_t>(lengths[i] | code << kLengthBits));
    if (code == kLongRunCode) append_varint(out, run - kLongRun);
    i += run;
  }
}

std::vector<std::uint8_t> read_lengths(ByteReader& reader, std::size_t symbols) {
  std::vector<std::uint8_t> lengths;
  lengths.reserve(symbols);
  while (lengths.size() < symbols) {
    const auto byte = reader.read<std::uint8_t>("code length");
    const auto length = static_cast<std::uint8_t>(byte & kLengthMask);
    if (length > kMaxCodeBits) {
      fail(ErrorCode::kDataLoss, "a code length is {}, where at most {} are allowed", length,
           kMaxCodeBits);
    }
    std::uint64_t run = (byte >> kLengthBits) + 1U;
    if (run == kLongRun) run += reader.varint(kMaxLongRun, "run of code lengths");
    if (run > symbols - lengths.size()) {
      fail(ErrorCode::kDataLoss, "a run of {} code lengths goes past the {} that are expected", run,
           symbols);
    }
    lengths.insert(lengths.end(), static_cast<std::size_t>(run), length);
  }
  check_complete(lengths);
  return lengths;
}

HuffmanTables::HuffmanTables(std::span<const std::uint8_t> lengths, std::size_t elems)
    : width_(*std::ranges::max_element(lengths)), decoding_(std::size_t{1} << width_) {
  std::vector<kernels::HuffmanCode> codes(lengths.size());
  assign_codes(lengths, codes);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const kernels::HuffmanCode code = codes[i];
    if (code.length == 0) continue;
    // Whatever follows the code.
    for (std::size_t bits = code.bits; bits < decoding_.size();
         bits += std::size_t{1} << code.length) {
      const auto length = static_cast<std::uint8_t>(code.length);
      decoding_[bits] = {.symbols = {static_cast<std::uint16_t>(i), 0},
                         .codes = 1,
                         .length = length,
                         .first_length = length};
    }
  }
  skipping_.resize(decoding_.size());
  // Preparing to take several codes at once costs as much as taking many one by one.
  const bool several = elems / 8 >= decoding_.size();
  for (std::size_t bits = 0; bits < skipping_.size(); ++bits) {
    skipping_[bits] =
        several ? skipping_entry(bits) : kernels::SkippingEntry{1, decoding_[bits].first_length};
    if (several) add_second(bits);
  }
}

// Looks at what entries say of their first codes alone.
void HuffmanTables::add_second(std::size_t bits) {
  kernels::DecodingEntry& entry = decoding_[bits];
  const kernels::DecodingEntry& next = decoding_[bits >> entry.first_length];
  const unsigned length = entry.first_length + next.first_length;
  if (length > width_) return;
  entry.symbols[1] = next.symbols[0];
  entry.codes = 2;
  entry.length = static_cast<std::uint8_t>(length);
}

kernels::SkippingEntry HuffmanTables::skipping_entry(std::size_t bits) const {
  kernels::SkippingEntry entry{0, 0};
  for (;;) {
    const unsigned length = entry.length + decoding_[bits >> entry.length].first_length;
    if (length > width_) return entry;
    entry = {.codes = static_cast<std::uint8_t>(entry.codes + 1),
             .length = static_cast<std::uint8_t>(length)};
    if (length == width_) return entry;
  }
}

}  // namespace tersewire
