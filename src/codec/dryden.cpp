#include "dryden.h"

#include <algorithm>
#include <array>

#include "errors.h"
#include "kernels.h"
#include "largest_selection.h"
#include "selection.h"
#include "sparse_ternary.h"
#include "surveys.h"

namespace tersewire {
namespace {

// With other leads, and with the 0.003 of AdaComp's figure 1, it diverges at rates that fp32
// survives (evidence/blocks).
constexpr double kDefaultFraction = 0.01;
constexpr const char* kPublishedFraction = "0.003";
constexpr float kDefaultLead = 2;
constexpr std::size_t kBlockWords = kernels::kSumBlockElems / kernels::kWordElems;
// Blocks that are worth a thread.
constexpr std::size_t kMinPartBlocks = 1 << 4;

// A sum as the format adds (spec/wire-format.md, "Sums"), of few values among many zeros, which
// change nothing.
class SparseSum {
 public:
  void add(std::size_t elem, float value) {
    lanes_[elem % kernels::kSumLanes] += double{value};
    ++count_;
  }
  void end_block() {
    sum_ += kernels::fold_lanes(lanes_);
    lanes_.fill(0);
  }
  [[nodiscard]] float mean() const {
    return count_ == 0 ? 0 : static_cast<float>(sum_ / static_cast<double>(count_));
  }

 private:
  std::array<double, kernels::kSumLanes> lanes_{};
  double sum_ = 0;
  std::uint64_t count_ = 0;
};

class DrydenEncoder final : public LargestSelection {
 public:
  DrydenEncoder(std::size_t elems, const EncoderContext& context, double fraction,
                const EncoderOptions& options)
      : LargestSelection(elems, context, fraction, options), negative_(sent().size()) {}

 private:
  CodecId encode_finite(const EncodeCall& call, Bytes& out) override;
  // Their means, and their signs into negative_.
  SentValues find_values(const EncodeCall& call);
  // For the elements of words [begin, end).
  void update_residual(const EncodeCall& call, SentValues values, std::size_t begin,
                       std::size_t end) const;

  std::vector<std::uint64_t> negative_;
};

SentValues DrydenEncoder::find_values(const EncodeCall& call) {
  SparseSum plus;
  SparseSum minus;
  std::ranges::fill(negative_, 0);
  for (std::size_t block = 0; block < negative_.size(); block += kBlockWords) {
    const std::size_t end = std::min(block + kBlockWords, negative_.size());
    list_named(sent(), block, end, [&](std::size_t first, auto places) {
      // All of them are asked for before the first is waited for.
      for (const std::uint32_t place : places) {
        __builtin_prefetch(call.input + first + place);
        if (call.residual != nullptr) __builtin_prefetch(call.residual + first + place);
      }
      for (const std::uint32_t place : places) {
        const std::size_t elem = first + place;
        const float t =
            call.residual != nullptr ? call.input[elem] + call.residual[elem] : call.input[elem];
        (t > 0 ? plus : minus).add(elem, t);
        negative_[elem / kernels::kWordElems] |= std::uint64_t{t < 0} << elem % kernels::kWordElems;
      }
    });
    plus.end_block();
    minus.end_block();
  }
  return {.plus = plus.mean(), .minus = minus.mean()};
}

void DrydenEncoder::update_residual(const EncodeCall& call, SentValues values, std::size_t begin,
                                    std::size_t end) const {
  const std::size_t first = begin * kernels::kWordElems;
  const std::size_t n = std::min(end * kernels::kWordElems, call.elems) - first;
  kernels::add(call.residual + first, call.input + first, n);
  list_named(sent(), begin, end, [&](std::size_t from, auto places) {
    for (const std::uint32_t place : places) {
      float& rest = call.residual[from + place];
      rest -= rest > 0 ? values.plus : values.minus;
    }
  });
}

CodecId DrydenEncoder::encode_finite(const EncodeCall& call, Bytes& out) {
  const SentValues values = find_values(call);
  append_sparse_ternary(CodecId::kDryden, values, {sent(), negative_}, out);
  if (call.residual == nullptr) return CodecId::kDryden;
  const auto parts = Partition::of(negative_.size(), kMinPartBlocks * kBlockWords, call.pool);
  run_parts(call.pool, parts.count(), [&](std::size_t i) {
    for (std::size_t word = parts.begin(i); word < parts.end(i); word += kBlockWords) {
      update_residual(call, values, word, std::min(word + kBlockWords, parts.end(i)));
    }
  });
  return CodecId::kDryden;
}

class DrydenCodec final : public Codec {
 public:
  explicit DrydenCodec(SettingText& text)
      : fraction_(take_fraction(text, kDefaultFraction)),
        options_(EncoderOptions::take(text, true, kDefaultLead)) {}

  [[nodiscard]] CodecId id() const noexcept override { return CodecId::kDryden; }
  [[nodiscard]] std::string text() const override {
    return fmt::format("dryden:fraction={},{}", fraction_, options_.text());
  }
  [[nodiscard]] std::size_t max_encoded_bytes(std::size_t elems) const override {
    return std::max(sparse_ternary_max_bytes(id(), elems), elems * sizeof(float));
  }
  [[nodiscard]] std::unique_ptr<Encoder> make_encoder(
      std::size_t elems, const EncoderContext& context) const override {
    return std::make_unique<DrydenEncoder>(elems, context, fraction_, options_);
  }

 private:
  double fraction_;
  EncoderOptions options_;
};

}  // namespace

const CodecEntry& dryden_codec() {
  // Outside the list below, where clang 14 destroys such a text twice.
  const std::string fraction = fmt::format("{}", kDefaultFraction);
  static const CodecEntry entry = sparse_ternary_entry<DrydenCodec, CodecId::kDryden>(
      {CodecId::kDryden, "dryden",
       "the largest values as the mean of the positive or of the negative ones (Dryden et al.)",
       EncoderOptions::describe({describe_fraction(fraction, kPublishedFraction)}, true,
                                fmt::format("{}", kDefaultLead))});
  return entry;
}

}  // namespace tersewire
