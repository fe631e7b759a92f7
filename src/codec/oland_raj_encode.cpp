#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <mutex>
#include <optional>

#include "bit_fields.h"
#include "block_sums.h"
#include "errors.h"
#include "float_mode.h"
#include "huffman_writer.h"
#include "kernels.h"
#include "oland_raj_payload.h"
#include "random_words.h"
#include "residual_encoder.h"
#include "surveys.h"

namespace tersewire {
namespace {

using kernels::Extremes;
using kernels::Grid;

// Values that are quantized at once: their indices stay in the first cache.
constexpr std::size_t kBlockElems = 2048;
// A part shorter than this costs more to hand to a thread than it saves; one that is longer would
// overflow a counter.
constexpr std::size_t kMinPartElems = std::size_t{1} << 17;
constexpr std::size_t kMaxPartElems = std::size_t{1} << 32;

// The entropy's sample and its bins (the paper's F and M).
constexpr std::size_t kMinSample = 4096;
constexpr std::size_t kSamplePercent = 3;
constexpr unsigned kSampleBits = 4;
constexpr std::size_t kDrawsAtOnce = 1024;
// Far more than rounding adds to an entropy that is a whole number, and far less than matters.
constexpr double kBitsSlack = 0x1p-20;

// Narrower than this a range of doubles has no scale: 2^N / range might overflow.
constexpr double kMinRange = 0x1p-1000;
constexpr unsigned kMinCodeLimit = 12;

// T, which is encoded.
template <typename T>
struct Values {
  const T* input;
  float* residual;  // null: none is kept

  [[nodiscard]] double at(std::size_t i) const {
    // In float where the input is.
    return residual != nullptr ? input[i] + residual[i] : input[i];
  }
  // The values from `begin` on.
  [[nodiscard]] Values from(std::size_t begin) const {
    return {input + begin, residual != nullptr ? residual + begin : nullptr};
  }
};

class OlandRajEncoder final : public ResidualEncoder {
 public:
  OlandRajEncoder(std::size_t elems, const EncoderContext& context,
                  const OlandRajSettings& settings, const EncoderOptions& options)
      : ResidualEncoder(elems, context, options), settings_(settings) {}

  Encoded encode_f64(std::span<const double> input, std::uint64_t step, Bytes& out,
                     ThreadPool* pool) override;
  void observe_gradient(std::span<const float> gradient) override;

 private:
  std::uint32_t survey(const float* input, const float* residual, ThreadPool* pool) override;
  CodecId encode_finite(const EncodeCall& call, Bytes& out) override;

  template <typename T>
  Extremes find_extremes(const Values<T>& values, ThreadPool* pool) const;
  [[nodiscard]] OlandRajHead head_of(bool f64) const;
  template <typename T>
  void encode_values(const Values<T>& values, std::uint64_t step, Bytes& out, ThreadPool* pool);
  template <typename T>
  void encode_constant(const Values<T>& values, const OlandRajHead& head, Bytes& out) const;
  template <typename T>
  void encode_fixed(const Values<T>& values, const OlandRajHead& head, Bytes& out,
                    ThreadPool* pool) const;
  template <typename T>
  void encode_huffman(const Values<T>& values, const OlandRajHead& head, Bytes& out,
                      ThreadPool* pool);

  template <typename T>
  [[nodiscard]] unsigned choose_bits(const Values<T>& values, const OlandRajHead& head,
                                     std::uint64_t step) const;
  template <typename T>
  [[nodiscard]] double sample_entropy(const Values<T>& values, const Grid& grid,
                                      std::uint64_t step) const;
  [[nodiscard]] Partition cut(const ThreadPool* pool) const;
  // Calls use(part, begin, n, indices) for the blocks of all parts, in order within a part.
  template <typename T, typename Use>
  void quantize(const Values<T>& values, const Grid& grid, ThreadPool* pool, const Use& use) const;
  // The same with write(part, begin, n, indices), and keeps in the residual what is not sent.
  template <typename T, typename Write>
  void send(const Values<T>& values, const Grid& grid, ThreadPool* pool, const Write& write) const;

  OlandRajSettings settings_;
  std::optional<double> gradient_rms_;
  Extremes extremes_{};  // of the tensor that is being encoded
  HuffmanWriter writer_;
};

unsigned limited_bits(double bits) {
  return static_cast<unsigned>(
      std::clamp(std::ceil(bits - kBitsSlack), 1.0, double{kMaxIndexBits}));
}

Partition OlandRajEncoder::cut(const ThreadPool* pool) const {
  Partition parts = Partition::of(elems(), kMinPartElems, pool);
  parts.part = std::min(parts.part, kMaxPartElems);
  return parts;
}

template <typename T>
Extremes OlandRajEncoder::find_extremes(const Values<T>& values, ThreadPool* pool) const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Extremes all{.least = kInfinity, .greatest = -kInfinity, .finite = true};
  std::mutex mutex;
  const Partition parts = cut(pool);
  run_parts(pool, parts.count(), [&](std::size_t i) {
    const Values<T> part = values.from(parts.begin(i));
    const Extremes found =
        kernels::find_extremes(part.input, part.residual, parts.end(i) - parts.begin(i));
    const std::lock_guard lock(mutex);
    all.least = std::min(all.least, found.least);
    all.greatest = std::max(all.greatest, found.greatest);
    all.finite &= found.finite;
  });
  return all;
}

std::uint32_t OlandRajEncoder::survey(const float* input, const float*, ThreadPool* pool) {
  extremes_ = find_extremes(Values<float>{input, residual_data()}, pool);
  if (!extremes_.finite) return kernels::kNotFinite;
  if (elems() == 0) return 0;
  const double largest = std::max(std::fabs(extremes_.least), std::fabs(extremes_.greatest));
  return std::bit_cast<std::uint32_t>(static_cast<float>(largest));
}

CodecId OlandRajEncoder::encode_finite(const EncodeCall& call, Bytes& out) {
  encode_values(Values<float>{call.input, call.residual}, call.step, out, call.pool);
  return CodecId::kOlandRaj;
}

Encoded OlandRajEncoder::encode_f64(std::span<const double> input, std::uint64_t step, Bytes& out,
                                    ThreadPool* pool) {
  const DefaultFloatMode mode;
  check_length(input.size());
  const Values<double> values{input.data(), residual_data()};
  extremes_ = find_extremes(values, pool);
  if (!extremes_.finite) return ResidualEncoder::encode_f64(input, step, out, pool);
  const std::size_t start = out.size();
  try {
    encode_values(values, step, out, pool);
  } catch (...) {
    out.resize(start);
    throw;
  }
  return {.codec = CodecId::kOlandRaj};
}

void OlandRajEncoder::observe_gradient(std::span<const float> gradient) {
  const DefaultFloatMode mode;
  check_length(gradient.size());
  const Survey survey = survey_range(0, gradient.size(), [&](std::size_t begin, std::size_t n) {
    return kernels::survey_squares(gradient.data() + begin, nullptr, n);
  });
  if (survey.largest_bits >= kernels::kNotFinite) {
    fail(ErrorCode::kInvalidArgument,
         "the observed gradient holds a NaN or an infinity; observe one that is finite");
  }
  const auto elems = static_cast<double>(gradient.size());
  gradient_rms_ = gradient.empty() ? 0 : std::sqrt(survey.first / elems);
}

template <typename T>
double OlandRajEncoder::sample_entropy(const Values<T>& values, const Grid& grid,
                                       std::uint64_t step) const {
  std::array<std::uint64_t, std::size_t{1} << kSampleBits> counts{};
  const auto count = [&](std::size_t i) { ++counts[kernels::grid_index(grid, values.at(i))]; };
  std::size_t sample = elems();
  if (elems() <= kMinSample) {
    for (std::size_t i = 0; i < elems(); ++i) count(i);
  } else {
    sample = std::max(elems() * kSamplePercent / 100, kMinSample);
    std::array<std::uint32_t, kDrawsAtOnce> words;
    for (std::size_t i = 0; i < sample; i += kDrawsAtOnce) {
      const std::size_t n = std::min(kDrawsAtOnce, sample - i);
      random_words(step, i, n, words.data());
      for (std::size_t k = 0; k < n; ++k) count(kernels::drawn_elem(words[k], elems()));
    }
  }
  double entropy = 0;
  for (const std::uint64_t found : counts) {
    const double share = static_cast<double>(found) / static_cast<double>(sample);
    if (found > 0) entropy -= share * std::log2(share);
  }
  return entropy;
}

template <typename T>
unsigned OlandRajEncoder::choose_bits(const Values<T>& values, const OlandRajHead& head,
                                      std::uint64_t step) const {
  if (settings_.from == BitsFrom::kGiven) return settings_.given;
  if (settings_.from == BitsFrom::kGradient) {
    return limited_bits(std::log2(*gradient_rms_ + 1) + settings_.floor);
  }
  OlandRajHead coarse = head;
  coarse.bits = kSampleBits;
  return limited_bits(sample_entropy(values, coarse.grid(), step) + settings_.floor);
}

// Which zero an extreme is depends on the instruction set: +0 it is.
OlandRajHead OlandRajEncoder::head_of(bool f64) const {
  OlandRajHead head;
  head.f64 = f64;
  head.min = elems() > 0 ? extremes_.least + 0.0 : 0;
  head.max = elems() > 0 ? extremes_.greatest + 0.0 : 0;
  if (std::isinf(head.max - head.min)) {
    fail(ErrorCode::kInvalidArgument,
         "the values run from {} to {}, a range beyond what a double holds; scale the array",
         head.min, head.max);
  }
  return head;
}

// Before the residual is touched: what it will keep must fit.
void check_rest(const OlandRajHead& head) {
  if (head.grid().range / head.grid().bins <= std::numeric_limits<float>::max()) return;
  fail(ErrorCode::kInvalidArgument,
       "the values run from {} to {}, and the error of {} bits is beyond what a float of the "
       "residual holds; scale the array or use ef=off",
       head.min, head.max, head.bits);
}

template <typename T>
void OlandRajEncoder::encode_values(const Values<T>& values, std::uint64_t step, Bytes& out,
                                    ThreadPool* pool) {
  if (settings_.from == BitsFrom::kGradient && !gradient_rms_) {
    fail(ErrorCode::kFailedPrecondition,
         "codec oland-raj takes the bits from the gradient and has seen none; call "
         "observe_gradient() first");
  }
  OlandRajHead head = head_of(sizeof(T) == sizeof(double));
  if (head.max - head.min < kMinRange) return encode_constant(values, head, out);
  head.bits = choose_bits(values, head, step);
  if (values.residual != nullptr) check_rest(head);
  writer_.start(cut(pool).count(), std::size_t{1} << head.bits);
  quantize(values, head.grid(), pool,
           [&](std::size_t part, std::size_t, std::size_t n, const std::uint16_t* indices) {
             writer_.count(part, indices, n);
           });
  writer_.find_codes(std::min(kMaxIndexBits, std::max(kMinCodeLimit, head.bits + 1)));
  const bool huffman = writer_.bytes() < fixed_body_bytes(elems(), head.bits);
  head.body = huffman ? OlandRajBody::kHuffman : OlandRajBody::kFixed;
  append_oland_raj_head(out, head);
  huffman ? encode_huffman(values, head, out, pool) : encode_fixed(values, head, out, pool);
}

template <typename T>
void OlandRajEncoder::encode_constant(const Values<T>& values, const OlandRajHead& head,
                                      Bytes& out) const {
  append_oland_raj_head(out, head);
  if (values.residual == nullptr) return;
  // One bin of no width.
  const Grid grid{.min = head.min, .range = 0, .bins = 2};
  const std::array<std::uint16_t, kBlockElems> indices{};
  for (std::size_t i = 0; i < elems(); i += kBlockElems) {
    const Values<T> block = values.from(i);
    kernels::keep_grid_rest(block.input, block.residual, std::min(kBlockElems, elems() - i), grid,
                            indices.data());
  }
}

template <typename T, typename Use>
void OlandRajEncoder::quantize(const Values<T>& values, const Grid& grid, ThreadPool* pool,
                               const Use& use) const {
  const Partition parts = cut(pool);
  run_parts(pool, parts.count(), [&](std::size_t part) {
    std::array<std::uint16_t, kBlockElems> indices;
    for (std::size_t i = parts.begin(part); i < parts.end(part); i += kBlockElems) {
      const std::size_t n = std::min(kBlockElems, parts.end(part) - i);
      const Values<T> block = values.from(i);
      kernels::quantize_to_grid(block.input, block.residual, n, grid, indices.data());
      use(part, i, n, indices.data());
    }
  });
}

// What goes into the payload leaves the residual.
template <typename T, typename Write>
void OlandRajEncoder::send(const Values<T>& values, const Grid& grid, ThreadPool* pool,
                           const Write& write) const {
  quantize(values, grid, pool,
           [&](std::size_t part, std::size_t begin, std::size_t n, const std::uint16_t* indices) {
             write(part, begin, n, indices);
             if (values.residual == nullptr) return;
             const Values<T> block = values.from(begin);
             kernels::keep_grid_rest(block.input, block.residual, n, grid, indices);
           });
}

template <typename T>
void OlandRajEncoder::encode_huffman(const Values<T>& values, const OlandRajHead& head, Bytes& out,
                                     ThreadPool* pool) {
  writer_.append_streams(out);
  send(values, head.grid(), pool,
       [&](std::size_t part, std::size_t, std::size_t n, const std::uint16_t* indices) {
         writer_.write(part, indices, n);
       });
  writer_.finish();
}

template <typename T>
void OlandRajEncoder::encode_fixed(const Values<T>& values, const OlandRajHead& head, Bytes& out,
                                   ThreadPool* pool) const {
  const std::size_t start = out.size();
  out.resize(start + fixed_body_bytes(elems(), head.bits));
  auto* body = reinterpret_cast<std::uint8_t*>(out.data() + start);
  send(values, head.grid(), pool,
       [&](std::size_t, std::size_t begin, std::size_t n, const std::uint16_t* indices) {
         // Blocks begin at multiples of eight values: at a byte.
         kernels::write_fields(indices, n, head.bits, body + begin / 8 * head.bits);
       });
}

}  // namespace

std::unique_ptr<Encoder> make_oland_raj_encoder(std::size_t elems, const EncoderContext& context,
                                                const OlandRajSettings& settings,
                                                const EncoderOptions& options) {
  return std::make_unique<OlandRajEncoder>(elems, context, settings, options);
}

}  // namespace tersewire
