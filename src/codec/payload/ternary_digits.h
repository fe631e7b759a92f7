// Digits of -1, 0 and 1 on their way out of a payload, however it packs them: what codecs 3lc,
// terngrad and stoch3 share in decoding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "ternary_pack.h"
#include "ternary_values.h"
#include "tersewire/bytes.h"
#include "tersewire/thread_pool.h"

namespace tersewire {

// A digit that is not 0, where most are.
struct FewDigit {
  std::uint16_t bits;  // 2 * its place in its run, one more for -1

  [[nodiscard]] std::size_t at() const { return bits >> 1; }
  [[nodiscard]] bool negative() const { return (bits & 1) != 0; }
};

// The digits of elements [first, first + n): all of them as bits or, where few are not 0, those.
struct DigitRun {
  std::size_t first;
  std::size_t n;
  bool few;
  kernels::TernaryDigits bits;
  std::span<const FewDigit> list;  // ascending
};

// Digits that are read at once, at most: their bits stay in the first cache.
inline constexpr std::size_t kMaxReadElems = 4 * kernels::kBlockElems;

using DigitSink = std::function<void(const DigitRun&)>;

// A payload's digits. The payload has been checked; it outlives this.
class DigitSource {
 public:
  virtual ~DigitSource() = default;

  // How many parts of it can be read at once, by several threads.
  [[nodiscard]] virtual std::size_t parts() const = 0;
  // Calls `sink` for runs of up to `block_elems` elements, a multiple of kernels::kBlockElems up to
  // kMaxReadElems, that make up the part.
  virtual void read(std::size_t part, std::size_t block_elems, const DigitSink& sink) const = 0;
};

// The scalers of a payload: one, or one for each bucket of elements. Where they lie is not aligned.
class Scalers {
 public:
  explicit Scalers(float scaler) : only_(scaler) {}
  Scalers(ByteView scalers, std::size_t bucket) : scalers_(scalers), bucket_(bucket) {}

  [[nodiscard]] float of(std::size_t elem) const {
    return bucket_ == 0 ? only_ : of_bucket(elem / bucket_);
  }
  // Whether elements [first, first + n) have one in common.
  [[nodiscard]] bool is_shared(std::size_t first, std::size_t n) const {
    return bucket_ == 0 || n <= bucket_ - first % bucket_;
  }
  // Calls visit(first, n, scaler) for the pieces of elements [first, first + n) that have a scaler
  // in common.
  template <typename Visit>
  void split(std::size_t first, std::size_t n, const Visit& visit) const;

 private:
  [[nodiscard]] float of_bucket(std::size_t i) const;

  float only_ = 0;
  ByteView scalers_;
  std::size_t bucket_ = 0;  // 0: the whole tensor
};

// out = x, out += weight * x, and levels += digits, for all elements.
void decode_digits(const DigitSource& source, const Scalers& scalers, std::span<float> out,
                   ThreadPool* pool);
void add_digits(const DigitSource& source, const Scalers& scalers, float weight,
                std::span<float> out, ThreadPool* pool);
void add_digit_levels(const DigitSource& source, std::span<std::int32_t> levels);

}  // namespace tersewire
