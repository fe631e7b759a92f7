#include "ternary_digits.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "kernels.h"
#include "partition.h"

namespace tersewire {
namespace {

// Elements that are read at once to be stored: few enough that the processor reads on while it
// stores. What is added is better asked for in larger blocks.
constexpr std::size_t kStoredElems = kernels::kBlockElems;

// No branch: a sign cannot be foretold.
float signed_value(FewDigit digit, float value) {
  const std::uint32_t sign = std::uint32_t{digit.negative()} << 31;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ sign);
}

// Writes runs of values.
class ValueWriter {
 public:
  ValueWriter(const Scalers& scalers, bool streaming, std::span<float> out)
      : scalers_(scalers), streaming_(streaming), out_(out) {}

  void operator()(const DigitRun& run) {
    if (run.few) return copy_few(run);
    float* out = out_.data() + run.first;
    if (streaming_ && scalers_.is_shared(run.first, run.n)) {
      return kernels::stream_ternary(run.bits, run.n, scalers_.of(run.first), out);
    }
    float* values = streaming_ ? values_.data() : out;
    scalers_.split(run.first, run.n, [&](std::size_t first, std::size_t n, float scaler) {
      const std::size_t at = first - run.first;
      kernels::fill_ternary(run.bits.from(at), n, scaler, values + at);
    });
    if (streaming_) kernels::copy_streaming(out, values, run.n);
  }

 private:
  // Zeros with few others between are quicker to copy than to make of their digits.
  void copy_few(const DigitRun& run) {
    for (const FewDigit digit : run.list) {
      zeros_[digit.at()] = signed_value(digit, scalers_.of(run.first + digit.at()));
    }
    float* out = out_.data() + run.first;
    if (streaming_) {
      kernels::copy_streaming(out, zeros_.data(), run.n);
    } else {
      std::copy_n(zeros_.data(), run.n, out);
    }
    for (const FewDigit digit : run.list) zeros_[digit.at()] = 0;
  }

  const Scalers& scalers_;
  bool streaming_;
  std::span<float> out_;
  alignas(64) std::array<float, kStoredElems> zeros_{};  // but while they are copied
  alignas(64) std::array<float, kStoredElems> values_;
};

void add_few(const DigitRun& run, const Scalers& scalers, float weight, float* out) {
  // All of them are asked for before the first is waited for.
  for (const FewDigit digit : run.list) __builtin_prefetch(out + run.first + digit.at(), 1);
  for (const FewDigit digit : run.list) {
    const std::size_t elem = run.first + digit.at();
    out[elem] += signed_value(digit, weight * scalers.of(elem));
  }
}

}  // namespace

float Scalers::of_bucket(std::size_t i) const {
  float scaler;
  std::memcpy(&scaler, scalers_.data() + i * sizeof(scaler), sizeof(scaler));
  return scaler;
}

template <typename Visit>
void Scalers::split(std::size_t first, std::size_t n, const Visit& visit) const {
  if (bucket_ == 0) return visit(first, n, only_);
  for (const std::size_t end = first + n; first < end;) {
    const std::size_t piece = std::min(end - first, bucket_ - first % bucket_);
    visit(first, piece, of_bucket(first / bucket_));
    first += piece;
  }
}

void decode_digits(const DigitSource& source, const Scalers& scalers, std::span<float> out,
                   ThreadPool* pool) {
  const bool streaming = out.size() >= kernels::kStreamingElems;
  run_parts(pool, source.parts(), [&](std::size_t part) {
    ValueWriter writer(scalers, streaming, out);
    source.read(part, kStoredElems, std::ref(writer));
    if (streaming) kernels::end_streaming();
  });
}

void add_digits(const DigitSource& source, const Scalers& scalers, float weight,
                std::span<float> out, ThreadPool* pool) {
  const auto add = [&](const DigitRun& run) {
    if (run.few) return add_few(run, scalers, weight, out.data());
    scalers.split(run.first, run.n, [&](std::size_t first, std::size_t n, float scaler) {
      kernels::add_ternary(run.bits.from(first - run.first), n, weight * scaler,
                           out.data() + first);
    });
  };
  run_parts(pool, source.parts(),
            [&](std::size_t part) { source.read(part, kMaxReadElems, std::ref(add)); });
}

void add_digit_levels(const DigitSource& source, std::span<std::int32_t> levels) {
  const auto add = [&](const DigitRun& run) {
    std::int32_t* out = levels.data() + run.first;
    if (!run.few) return kernels::add_ternary_levels(run.bits, run.n, out);
    for (const FewDigit digit : run.list) out[digit.at()] += digit.negative() ? -1 : 1;
  };
  for (std::size_t part = 0; part < source.parts(); ++part) {
    source.read(part, kMaxReadElems, std::ref(add));
  }
}

}  // namespace tersewire
