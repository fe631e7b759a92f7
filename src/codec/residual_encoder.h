// What every encoder has in common: the residual and the contract for values that are not finite.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "codec_text.h"
#include "tersewire/codec.h"

namespace tersewire {

// Keeps the residual, finds the largest magnitude of residual + input, and lets the codec encode
// what is finite.
class ResidualEncoder : public Encoder {
 public:
  ResidualEncoder(std::size_t elems, const EncoderOptions& options);

  [[nodiscard]] std::size_t elems() const noexcept final { return elems_; }
  std::span<float> residual() noexcept final { return residual_; }
  Encoded encode(std::span<const float> input, Bytes& out, ThreadPool* pool) final;

 private:
  // Appends the payload for residual + input, whose largest magnitude is `largest` (finite), and
  // updates the residual (null where there is none).
  virtual CodecId encode_finite(const float* input, float* residual, float largest, Bytes& out,
                                ThreadPool* pool) = 0;

  std::uint32_t max_abs_bits(const float* input, ThreadPool* pool) const;

  std::size_t elems_;
  bool reject_not_finite_;
  std::vector<float> residual_;
};

// Splits n items into parts of equal size, a multiple of `unit` items but for the last. What runs
// in parallel is cut so.
struct Partition {
  std::size_t items;
  std::size_t part;

  static Partition of(std::size_t items, std::size_t unit, const ThreadPool* pool);
  [[nodiscard]] std::size_t count() const { return items == 0 ? 1 : (items + part - 1) / part; }
  [[nodiscard]] std::size_t begin(std::size_t i) const { return i * part; }
  [[nodiscard]] std::size_t end(std::size_t i) const {
    return begin(i) + part < items ? begin(i) + part : items;
  }
};

// Calls task(i) for i below count, on the pool where there is one. Allocates nothing.
template <typename Task>
void run_parts(ThreadPool* pool, std::size_t count, Task&& task) {
  if (pool != nullptr && count > 1) return pool->run(count, std::ref(task));
  for (std::size_t i = 0; i < count; ++i) task(i);
}

}  // namespace tersewire
