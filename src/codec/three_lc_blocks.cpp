#include "three_lc_blocks.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>

#include "block_selection.h"
#include "byte_io.h"
#include "errors.h"
#include "residual_encoder.h"
#include "shape.h"
#include "sparse_output.h"
#include "three_lc_payload.h"

namespace tersewire {
namespace {

constexpr float kSmallest = std::numeric_limits<float>::denorm_min();
// Elements that are worth a thread.
constexpr std::size_t kMinPartElems = 1 << 18;

// Scales are eighths of octaves below the largest: 2^(-i/8) as floats ...
constexpr std::array<float, 8> kEighths{1.0F,         0.917004043F, 0.840896415F, 0.771105413F,
                                        0.707106781F, 0.648419777F, 0.594603558F, 0.545253866F};
// ... and 2^((2 i + 1) / 16), halfway from one to the next.
constexpr std::array<double, 8> kHalfways{
    1.0442737824274138, 1.1387886347566916, 1.241857812073484,  1.3542555469368927,
    1.4768261459394993, 1.6104903319492543, 1.7562521603732995, 1.9152065613971474};
constexpr std::uint8_t kSmallestScale = 255;

std::size_t block_count(std::size_t elems, std::size_t block_elems) {
  return divide_up(elems, block_elems);
}

// `largest` times 2^(-scale / 8).
float scaled(float largest, std::uint8_t scale) {
  return largest * kEighths[scale % 8] * (1.0F / static_cast<float>(std::uint32_t{1} << scale / 8));
}

// The scale nearest to a magnitude, on a logarithmic line.
std::uint8_t scale_of(float largest, float magnitude) {
  if (magnitude == 0) return kSmallestScale;
  const double quotient = double{largest} / double{magnitude};
  const int octaves = std::ilogb(quotient);
  const double rest = std::ldexp(quotient, -octaves);
  const auto above = std::ranges::count_if(kHalfways, [=](double h) { return rest > h; });
  return static_cast<std::uint8_t>(std::min<std::int64_t>(8 * octaves + above, kSmallestScale));
}

class BlocksEncoder final : public ResidualEncoder {
 public:
  BlocksEncoder(std::size_t elems, const EncoderContext& context, float sparsity_multiplier,
                std::size_t block_elems, const EncoderOptions& options)
      : ResidualEncoder(elems, context, options),
        sparsity_multiplier_(sparsity_multiplier),
        block_elems_(block_elems),
        magnitudes_(block_count(elems, block_elems)),
        scales_(magnitudes_.size()),
        sent_(kernels::selection_words(elems)),
        negative_(sent_.size()) {}

 private:
  [[nodiscard]] bool counts_lead() const noexcept override { return true; }
  std::uint32_t survey(const float* input, const float* residual, ThreadPool* pool) override;
  CodecId encode_finite(const EncodeCall& call, Bytes& out) override;

  // Calls task(block, first, n) for the blocks, with several threads.
  template <typename Task>
  void for_blocks(ThreadPool* pool, const Task& task) const;
  // Selects what is sent of a block whose values are t, and returns their mean magnitude.
  float select(const kernels::BlockSurvey& found, const float* t, std::size_t n,
               std::span<std::uint64_t> words) const;
  // The words of sent_ for n elements from `first` on, where a word begins.
  std::span<std::uint64_t> words_of(std::size_t first, std::size_t n) {
    return std::span(sent_).subspan(first / kernels::kWordElems, kernels::selection_words(n));
  }

  float sparsity_multiplier_;
  std::size_t block_elems_;
  std::vector<float> magnitudes_;  // mean |T| of what is sent of each block
  std::vector<std::uint8_t> scales_;
  std::vector<std::uint64_t> sent_;
  std::vector<std::uint64_t> negative_;
};

// Selects as well: a block is in the cache, and its limit does not depend on the others.
std::uint32_t BlocksEncoder::survey(const float* input, const float* residual, ThreadPool* pool) {
  std::atomic<std::uint32_t> largest{0};
  for_blocks(pool, [&](std::size_t block, std::size_t first, std::size_t n) {
    alignas(64) std::array<float, kMaxBlockElems> t;
    const kernels::BlockSurvey found = kernels::survey_block(
        input + first, residual != nullptr ? residual + first : nullptr, n, lead(), t.data());
    magnitudes_[block] = select(found, t.data(), n, words_of(first, n));
    raise_to(largest, found.largest_bits);
  });
  return largest.load();
}

template <typename Task>
void BlocksEncoder::for_blocks(ThreadPool* pool, const Task& task) const {
  const auto parts = Partition::of(magnitudes_.size(), kMinPartElems / block_elems_ + 1, pool);
  run_parts(pool, parts.count(), [&](std::size_t i) {
    for (std::size_t block = parts.begin(i); block < parts.end(i); ++block) {
      const std::size_t first = block * block_elems_;
      task(block, first, std::min(block_elems_, elems() - first));
    }
  });
}

float BlocksEncoder::select(const kernels::BlockSurvey& found, const float* t, std::size_t n,
                            std::span<std::uint64_t> words) const {
  const auto factor = static_cast<float>(double{sparsity_multiplier_} * 4 / 3);
  const auto mean = static_cast<float>(found.first / static_cast<double>(n));
  // The largest is always sent: values that are all alike would wait for ever.
  const float limit =
      std::max(std::min(factor * mean, std::bit_cast<float>(found.largest_bits)), kSmallest);
  const kernels::BlockSurvey sent = kernels::select_block(t, n, limit, words.data());
  // Of what is sent: no other magnitude leaves less of it.
  return sent.count > 0 ? static_cast<float>(sent.first / sent.count) : 0;
}

CodecId BlocksEncoder::encode_finite(const EncodeCall& call, Bytes& out) {
  const std::size_t start = out.size();
  // Makes room for what is appended when the residual is no longer what it was.
  out.resize(start + three_lc_blocks_max_bytes(elems(), block_elems_));
  out.resize(start);

  const float m = magnitudes_.empty() ? 0 : std::ranges::max(magnitudes_);
  for_blocks(call.pool, [&](std::size_t block, std::size_t first, std::size_t n) {
    scales_[block] = scale_of(m, magnitudes_[block]);
    const std::span words = words_of(first, n);
    // Less than any scale says: as it is it waits.
    if (scales_[block] == kSmallestScale) std::ranges::fill(words, 0);
    kernels::settle_block(
        call.input + first, call.residual != nullptr ? call.residual + first : nullptr, n, lead(),
        scaled(m, scales_[block]), words.data(), &negative_[first / kernels::kWordElems]);
  });
  append_value(out, m);
  append_value(out, sparsity_multiplier_);
  append_value(out, kThreeLcBlocksLayout);
  append_varint(out, block_elems_);
  append(out, scales_.data(), scales_.size());
  append_signed_gaps({.words = sent_, .negative = negative_}, out);
  return CodecId::kThreeLc;
}

auto reader_maker(const ThreeLcBlocks& blocks, std::size_t elems) {
  return [&blocks, elems] { return GapReader(blocks.sent, elems, "3lc"); };
}

// The values of a payload's elements, by their block and sign.
class BlockValues {
 public:
  BlockValues(float m, float weight, const ThreeLcBlocks& blocks)
      : block_elems_(blocks.block_elems), scales_(blocks.scales) {
    for (std::size_t i = 0; i < values_.size(); ++i) {
      values_[i] = weight * scaled(m, static_cast<std::uint8_t>(i));
    }
  }

  float operator()(std::size_t, const FoundElement& element) {
    // Elements ascend: no division for each.
    while (element.elem() >= end_) {
      const float value = values_[std::to_integer<std::uint8_t>(scales_[block_++])];
      end_ += block_elems_;
      signed_ = {value, -value};
    }
    // Not by a branch: no processor foretells signs.
    return signed_[element.negative() ? 1 : 0];
  }

 private:
  std::size_t block_elems_;
  ByteView scales_;
  std::array<float, 256> values_;
  std::size_t block_ = 0;
  std::size_t end_ = 0;
  std::array<float, 2> signed_{};  // for positive elements, and for negative ones
};

}  // namespace

std::size_t three_lc_blocks_max_bytes(std::size_t elems, std::size_t block_elems) {
  return kThreeLcHeadBytes + varint_bytes(block_elems) + block_count(elems, block_elems) +
         signed_gaps_max_bytes(elems);
}

std::unique_ptr<Encoder> make_three_lc_blocks_encoder(std::size_t elems,
                                                      const EncoderContext& context,
                                                      float sparsity_multiplier,
                                                      std::size_t block_elems,
                                                      const EncoderOptions& options) {
  return std::make_unique<BlocksEncoder>(elems, context, sparsity_multiplier, block_elems, options);
}

ThreeLcBlocks parse_three_lc_blocks(ByteView body, std::size_t elems) {
  ByteReader reader(body);
  ThreeLcBlocks blocks{};
  blocks.block_elems =
      static_cast<std::size_t>(reader.varint(kMaxBlockElems, "length of a 3lc block"));
  if (blocks.block_elems < kMinBlockElems || blocks.block_elems % kMinBlockElems != 0) {
    fail(ErrorCode::kDataLoss, "a 3lc payload has blocks of {} values, not of a multiple of {}",
         blocks.block_elems, kMinBlockElems);
  }
  blocks.scales = reader.take(block_count(elems, blocks.block_elems), "3lc scales");
  blocks.sent = SignedGaps::read(reader, elems, "3lc");
  return blocks;
}

void check_three_lc_blocks(ByteView body, std::size_t elems) {
  const ThreeLcBlocks blocks = parse_three_lc_blocks(body, elems);
  check_elements(reader_maker(blocks, elems)());
}

void decode_three_lc_blocks(float m, ByteView body, std::span<float> out) {
  const ThreeLcBlocks blocks = parse_three_lc_blocks(body, out.size());
  fill_sparse(reader_maker(blocks, out.size()), BlockValues(m, 1, blocks), out);
}

void decode_add_three_lc_blocks(float m, ByteView body, float weight, std::span<float> out) {
  const ThreeLcBlocks blocks = parse_three_lc_blocks(body, out.size());
  add_sparse(reader_maker(blocks, out.size()), BlockValues(m, weight, blocks), out);
}

}  // namespace tersewire
