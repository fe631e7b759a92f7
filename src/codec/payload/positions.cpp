#include "positions.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "errors.h"
#include "shape.h"

namespace tersewire {
namespace {

constexpr std::size_t kWordBits = 64;
// Parameters whose streams are measured in one go.
constexpr unsigned kMeasuredParameters = 4;
// Codes that one refill is likely to do for.
constexpr std::size_t kCodesARefill = 4;

// One past the last element named.
std::uint64_t end_of(std::span<const std::uint64_t> words) {
  std::size_t size = words.size();
  while (size > 0 && words[size - 1] == 0) --size;
  return size * kWordBits - static_cast<unsigned>(size > 0 ? std::countl_zero(words[size - 1]) : 0);
}

// A parameter and the bits that all codes take with it.
struct Measured {
  unsigned k;
  std::uint64_t bits;
};

// The sum of gaps divided by 2^k, rounded down, for kMeasuredParameters values of k in a row.
using QuotientSums = std::array<std::uint64_t, kMeasuredParameters>;

QuotientSums sum_quotients(std::span<const std::uint64_t> words, unsigned lowest) {
  QuotientSums sums{};
  std::uint64_t expected = 0;
  list_named(words, 0, words.size(), [&](std::uint64_t first, auto places) {
    // In registers, and no inner loop: this is done for every element.
    auto [sum0, sum1, sum2, sum3] = sums;
    std::uint64_t next = expected - first;
    for (const std::uint64_t place : places) {
      const std::uint64_t quotient = (place - next) >> lowest;
      sum0 += quotient;
      sum1 += quotient >> 1;
      sum2 += quotient >> 2;
      sum3 += quotient >> 3;
      next = place + 1;
    }
    sums = {sum0, sum1, sum2, sum3};
    expected = first + next;
  });
  return sums;
}

// The best of parameters from `lowest` on; the smallest where several are.
Measured measure(std::span<const std::uint64_t> words, std::uint64_t count, unsigned lowest) {
  const QuotientSums zeros = sum_quotients(words, lowest);
  Measured best{.k = lowest, .bits = zeros[0] + count * (lowest + 1)};
  for (unsigned i = 1; i < kMeasuredParameters; ++i) {
    const std::uint64_t bits = zeros[i] + count * (lowest + i + 1);
    if (bits < best.bits) best = {.k = lowest + i, .bits = bits};
  }
  return best;
}

// The length is a convex function of k, and no shorter from the first k on for which 2^k reaches
// the mean gap: what the quotients save there is less than the one bit that each field grows by.
Measured best_parameter(std::span<const std::uint64_t> words, std::uint64_t count) {
  const std::uint64_t gaps = end_of(words) - count;
  unsigned highest = 0;
  while (highest < kMaxRiceParameter && count << highest < gaps) ++highest;
  for (;;) {
    const unsigned lowest = highest < kMeasuredParameters ? 0 : highest - kMeasuredParameters + 1;
    const Measured best = measure(words, count, lowest);
    if (best.k > lowest || lowest == 0) return best;
    highest = lowest;
  }
}

// Writes fields of 63 bits or fewer.
class BitWriter {
 public:
  explicit BitWriter(std::uint8_t* out) : out_(out) {}

  void write(std::uint64_t field, unsigned bits) {
    word_ |= field << used_;
    used_ += bits;
    if (used_ < kWordBits) return;
    std::memcpy(out_, &word_, sizeof(word_));
    out_ += sizeof(word_);
    used_ -= static_cast<unsigned>(kWordBits);
    word_ = used_ == 0 ? 0 : field >> (bits - used_);
  }
  void write_zeros(std::uint64_t n) {
    constexpr unsigned kAtOnce = 32;
    for (; n >= kAtOnce; n -= kAtOnce) write(0, kAtOnce);
    write(0, static_cast<unsigned>(n));
  }
  void finish() { std::memcpy(out_, &word_, (used_ + 7) / 8); }

 private:
  std::uint8_t* out_;
  std::uint64_t word_ = 0;
  unsigned used_ = 0;
};

// Writes codes one after the other.
template <bool kSigns>
class CodeWriter {
 public:
  CodeWriter(std::span<const std::uint64_t> negative, unsigned k, std::uint8_t* out)
      : negative_(negative), k_(k), bits_(out) {}

  void write(std::uint64_t first, std::span<const std::uint32_t> places) {
    const unsigned k = k_;
    const unsigned tail = 1 + k + (kSigns ? 1 : 0);
    const std::uint64_t field = (std::uint64_t{1} << k) - 1;
    // In registers: what `this` points to would be stored after each code.
    BitWriter bits = bits_;
    std::uint64_t expected = next_;
    for (const std::uint32_t place : places) {
      const std::uint64_t elem = first + place;
      const std::uint64_t gap = elem - expected;
      expected = elem + 1;
      // The stop bit, the field and the sign.
      std::uint64_t code = 1 | (gap & field) << 1;
      if constexpr (kSigns) {
        code |= (negative_[static_cast<std::size_t>(elem / kWordBits)] >> elem % kWordBits & 1)
                << (tail - 1);
      }
      std::uint64_t zeros = gap >> k;
      if (zeros + tail >= kWordBits) {
        bits.write_zeros(zeros);
        zeros = 0;
      }
      bits.write(code << zeros, static_cast<unsigned>(zeros) + tail);
    }
    bits_ = bits;
    next_ = expected;
  }
  void finish() { bits_.finish(); }

 private:
  std::span<const std::uint64_t> negative_;
  unsigned k_;
  std::uint64_t next_ = 0;  // the element that a gap of 0 names
  BitWriter bits_;
};

template <bool kSigns>
void write_codes(const NamedElements& named, unsigned k, std::uint8_t* out) {
  CodeWriter<kSigns> writer(named.negative, k, out);
  list_named(named.words, 0, named.words.size(),
             [&](std::uint64_t first, auto places) { writer.write(first, places); });
  writer.finish();
}

[[noreturn]] void fail_position(std::string_view codec, std::uint64_t elems) {
  fail(ErrorCode::kDataLoss, "a {} payload names an element past the {} that are expected", codec,
       elems);
}

[[noreturn]] void fail_short(std::string_view codec) {
  fail(ErrorCode::kDataLoss, "a {} payload ends before the last of its elements", codec);
}

}  // namespace

std::uint64_t count_named(std::span<const std::uint64_t> words) {
  return kernels::count_bits(reinterpret_cast<const std::uint8_t*>(words.data()),
                             words.size_bytes());
}

unsigned read_rice_parameter(ByteReader& reader, std::string_view codec) {
  const auto k = reader.read<std::uint8_t>("parameter of its gaps");
  if (k <= kMaxRiceParameter) return k;
  fail(ErrorCode::kDataLoss, "a {} payload has k = {}, which must be from 0 to {}", codec, k,
       kMaxRiceParameter);
}

PositionPlan PositionPlan::of(const NamedElements& named) {
  const std::uint64_t count = count_named(named.words);
  if (count == 0) return {};
  const Measured best = best_parameter(named.words, count);
  return {.count = count,
          .stream_bits = best.bits + (named.negative.empty() ? 0 : count),
          .k = static_cast<std::uint8_t>(best.k)};
}

void write_positions(const NamedElements& named, const PositionPlan& plan, std::uint8_t* out) {
  if (named.negative.empty()) return write_codes<false>(named, plan.k, out);
  write_codes<true>(named, plan.k, out);
}

std::size_t signed_gaps_max_bytes(std::size_t elems) {
  // With k = 0 an element that is not named takes a bit, one that is named takes two.
  return varint_bytes(elems) + 1 + divide_up(elems, 4);
}

void append_signed_gaps(const NamedElements& named, Bytes& out) {
  const PositionPlan plan = PositionPlan::of(named);
  append_varint(out, plan.count);
  append_value(out, plan.k);
  const std::size_t head = out.size();
  out.resize(head + plan.stream_bytes());
  write_positions(named, plan, reinterpret_cast<std::uint8_t*>(out.data() + head));
}

SignedGaps SignedGaps::read(ByteReader& reader, std::uint64_t max_count, std::string_view codec) {
  SignedGaps gaps{};
  gaps.count = reader.varint(max_count, "count of elements sent");
  gaps.k = read_rice_parameter(reader, codec);
  gaps.stream = reader.take(reader.left(), "stream");
  return gaps;
}

inline void GapReader::Cursor::refill() {
  if (end - at >= 8) {
    std::uint64_t word;
    std::memcpy(&word, at, sizeof(word));
    bits |= word << available;
    at += (63 - available) / 8;
    available |= 56;
    return;
  }
  for (; available < 56 && at != end; available += 8) bits |= std::uint64_t{*at++} << available;
}

GapReader::GapReader(ByteView stream, unsigned k, bool signs, std::uint64_t count,
                     std::size_t elems, std::string_view codec)
    : cursor_{.at = as_u8(stream), .end = as_u8(stream) + stream.size()},
      k_(k),
      signs_(signs),
      left_(count),
      elems_(elems),
      codec_(codec) {}

std::span<const FoundElement> GapReader::next() {
  if (left_ == 0) {
    check_end();
    return {};
  }
  const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(left_, kFoundBatch));
  const unsigned k = k_;
  const unsigned tail = 1 + k + (signs_ ? 1 : 0);
  const std::uint64_t field = (std::uint64_t{1} << k) - 1;
  const std::uint64_t sign = signs_ ? 1 : 0;
  // In registers: what `this` points to would be stored after each code.
  Cursor cursor = cursor_;
  std::uint64_t lowest = lowest_;
  const std::uint64_t elems = elems_;
  for (std::size_t i = 0; i < wanted; ++i) {
    // Not before each code, nor when bits run short: the one takes longer, the other cannot be
    // foretold by a branch.
    if (i % kCodesARefill == 0) cursor.refill();
    auto zeros = cursor.zeros();
    if (zeros + tail > cursor.available) {
      cursor.refill();
      zeros = cursor.zeros();
    }
    FoundElement found{};
    if (zeros + tail > cursor.available) {
      cursor_ = cursor;
      lowest_ = lowest;
      found = read_long();
      cursor = cursor_;
    } else {
      const std::uint64_t gap = std::uint64_t{zeros} << k | (cursor.bits >> (zeros + 1) & field);
      found = {lowest + gap, cursor.bits >> (zeros + tail - 1) & sign};
      cursor.skip(zeros + tail);
    }
    if (found.elem() >= elems) fail_position(codec_, elems);
    lowest = found.elem() + 1;
    found_[i] = found;
  }
  cursor_ = cursor;
  lowest_ = lowest;
  left_ -= wanted;
  return {found_.data(), wanted};
}

FoundElement GapReader::read_long() {
  const std::uint64_t zeros = take_zeros();
  if (zeros > elems_ >> k_) fail_position(codec_, elems_);
  const std::uint64_t rest = take_bits(k_);
  const std::uint64_t sign = signs_ ? take_bits(1) : 0;
  return {lowest_ + (zeros << k_ | rest), sign};
}

// The one bit behind them is taken as well.
std::uint64_t GapReader::take_zeros() {
  for (std::uint64_t zeros = 0;;) {
    cursor_.refill();
    if (cursor_.available == 0) fail_short(codec_);
    const auto here = static_cast<unsigned>(std::countr_zero(cursor_.bits));
    if (here < cursor_.available) {
      cursor_.skip(here + 1);
      return zeros + here;
    }
    zeros += cursor_.available;
    cursor_.skip(cursor_.available);
  }
}

std::uint64_t GapReader::take_bits(unsigned n) {
  cursor_.refill();
  if (cursor_.available < n) fail_short(codec_);
  const std::uint64_t taken = cursor_.bits & ((std::uint64_t{1} << n) - 1);
  cursor_.skip(n);
  return taken;
}

void GapReader::check_end() const {
  const auto bytes = static_cast<std::size_t>(cursor_.end - cursor_.at);
  if (bytes + cursor_.available / 8 > 0) {
    fail(ErrorCode::kDataLoss, "a {} payload continues past the last of its elements, by {} bytes",
         codec_, bytes + cursor_.available / 8);
  }
  if (cursor_.bits != 0) {
    fail(ErrorCode::kDataLoss, "a {} payload has a bit set after the last of its elements", codec_);
  }
}

BitmapReader::BitmapReader(ByteView bitmap, std::uint64_t count, std::size_t elems,
                           std::string_view codec)
    : bitmap_(bitmap) {
  const std::size_t bytes = divide_up(elems, 8);
  if (bitmap.size() != bytes) {
    fail(ErrorCode::kDataLoss, "a {} payload has a bitmap of {} bytes where {} are expected", codec,
         bitmap.size(), bytes);
  }
  if (elems % 8 != 0 && std::to_integer<unsigned>(bitmap.back()) >> elems % 8 != 0) {
    fail_position(codec, elems);
  }
  const std::uint64_t found = kernels::count_bits(as_u8(bitmap), bytes);
  if (found != count) {
    fail(ErrorCode::kDataLoss, "a {} payload names {} elements in its bitmap where {} are expected",
         codec, found, count);
  }
}

std::uint64_t BitmapReader::word(std::size_t index) const {
  std::uint64_t word = 0;
  const std::size_t at = index * sizeof(word);
  std::memcpy(&word, bitmap_.data() + at, std::min(sizeof(word), bitmap_.size() - at));
  return word;
}

std::span<const FoundElement> BitmapReader::next() {
  std::size_t found = 0;
  for (;;) {
    for (; bits_ != 0 && found < kFoundBatch; bits_ &= bits_ - 1) {
      const auto bit = static_cast<unsigned>(std::countr_zero(bits_));
      found_[found++] = {(next_word_ - 1) * kWordBits + bit, 0};
    }
    if (found == kFoundBatch || next_word_ * sizeof(bits_) >= bitmap_.size()) break;
    bits_ = word(next_word_++);
  }
  return {found_.data(), found};
}

}  // namespace tersewire
