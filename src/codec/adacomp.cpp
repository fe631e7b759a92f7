#include "adacomp.h"

#include <algorithm>
#include <atomic>
#include <optional>

#include "errors.h"
#include "residual_encoder.h"
#include "selection.h"
#include "shape.h"
#include "sparse_ternary.h"
#include "surveys.h"

namespace tersewire {
namespace {

// Section "Methodology": L_T of 50 for convolutional layers, of 500 for all others.
constexpr std::uint64_t kConvBin = 50;
constexpr std::uint64_t kOtherBin = 500;
constexpr const char* kLocalSelectionBin = "50";  // for all, see below
// The published forms, 1, are late: adacomp loses a point in few steps, local selection diverges at
// rates that fp32 survives, with any lead where bins are of 500 (evidence/blocks).
constexpr float kAdaCompLead = 2;
constexpr float kLocalSelectionLead = 4;
// Elements that are worth a thread.
constexpr std::size_t kMinPartElems = 1 << 16;
constexpr std::size_t kMinPartWords = kMinPartElems / kernels::kWordElems;

class BinEncoder final : public ResidualEncoder {
 public:
  // gain: the input's weight in H = T + gain * input.
  BinEncoder(CodecId codec, std::size_t elems, const EncoderContext& context, std::uint64_t bin,
             float gain, const EncoderOptions& options)
      : ResidualEncoder(elems, context, options),
        codec_(codec),
        // As long as the tensor will do, so that indices do not overflow.
        bin_(std::clamp<std::size_t>(bin, 1, std::max<std::size_t>(elems, 1))),
        gain_(gain),
        maxima_(divide_up(elems, bin_)),
        sent_(kernels::selection_words(elems)),
        negative_(sent_.size()) {}

 private:
  std::uint32_t survey(const float* input, const float* residual, ThreadPool* pool) override;
  CodecId encode_finite(const EncodeCall& call, Bytes& out) override;
  [[nodiscard]] float scale() const;

  CodecId codec_;
  std::size_t bin_;
  float gain_;
  std::vector<float> maxima_;  // of the bins, from the survey on
  std::vector<std::uint64_t> sent_;
  std::vector<std::uint64_t> negative_;
};

std::uint32_t BinEncoder::survey(const float* input, const float* residual, ThreadPool* pool) {
  const auto parts = Partition::of(maxima_.size(), kMinPartElems / bin_ + 1, pool);
  std::atomic<std::uint32_t> largest{0};
  run_parts(pool, parts.count(), [&](std::size_t i) {
    const std::size_t begin = parts.begin(i) * bin_;
    const std::size_t end = std::min(parts.end(i) * bin_, elems());
    const std::uint32_t bits =
        kernels::bin_maxima(input + begin, residual != nullptr ? residual + begin : nullptr,
                            end - begin, bin_, maxima_.data() + parts.begin(i));
    raise_to(largest, bits);
  });
  return largest.load();
}

// The mean of the bins' maxima, those that are 0 included.
float BinEncoder::scale() const {
  if (maxima_.empty()) return 0;
  double sum = 0;
  for (std::size_t i = 0; i < maxima_.size(); i += kernels::kSumBlockElems) {
    sum += kernels::sum_block(maxima_.data() + i,
                              std::min(kernels::kSumBlockElems, maxima_.size() - i));
  }
  return static_cast<float>(sum / static_cast<double>(maxima_.size()));
}

CodecId BinEncoder::encode_finite(const EncodeCall& call, Bytes& out) {
  const std::size_t start = out.size();
  // Makes room for what is appended when the residual is no longer what it was.
  out.resize(start + sparse_ternary_max_bytes(codec_, call.elems));
  out.resize(start);

  const kernels::BinRule rule{
      .maxima = maxima_.data(), .bin = bin_, .gain = gain_, .scale = scale()};
  const auto words = Partition::of(sent_.size(), kMinPartWords, call.pool);
  run_parts(call.pool, words.count(), [&](std::size_t i) {
    const std::size_t end = std::min(words.end(i) * kernels::kWordElems, call.elems);
    kernels::select_in_bins(call.input, call.residual, words.begin(i) * kernels::kWordElems, end,
                            rule, sent_.data(), negative_.data());
  });
  append_sparse_ternary(codec_, {rule.scale, -rule.scale}, {sent_, negative_}, out);
  return codec_;
}

// A bin's length as the text says it; none: by the tensor's kind.
class BinLength {
 public:
  static constexpr const char* kByKind = "kind";

  // `fallback` where the text does not say.
  static BinLength take(SettingText& text, const char* fallback) {
    text.set_default("bin", fallback);
    const std::string word = text.take_word("bin");
    BinLength length;
    if (word == kByKind) return length;
    length.elems_ = parsed_number<std::uint64_t>(word);
    if (!length.elems_ || *length.elems_ < 1 || *length.elems_ > kMaxElems) {
      text.refuse("bin", fmt::format("kind or a whole number from 1 to {}", kMaxElems), word);
    }
    return length;
  }

  [[nodiscard]] std::uint64_t elems(TensorKind kind) const {
    return elems_.value_or(kind == TensorKind::kConv ? kConvBin : kOtherBin);
  }
  [[nodiscard]] std::string text() const {
    return elems_ ? fmt::format("{}", *elems_) : std::string(kByKind);
  }
  static CodecParameter describe(std::string fallback, std::string published = {}) {
    return {"bin", std::move(fallback), "kind, 1 to 2^40",
            "values in a bin; kind: 50 in convolutions, 500 elsewhere", std::move(published)};
  }

 private:
  std::optional<std::uint64_t> elems_;
};

float take_factor(SettingText& text) {
  const std::string word = text.take_word("factor");
  if (word.empty()) return 2;
  const auto factor = parsed_number<float>(word);
  if (!factor || !(*factor >= 1 && *factor <= 10)) {
    text.refuse("factor", "a number from 1 to 10", word);
  }
  return *factor;
}

template <CodecId kId>
class BinCodec final : public Codec {
 public:
  explicit BinCodec(SettingText& text) : bin_(BinLength::take(text, kDefaultBin)) {
    if constexpr (kHasFactor) factor_ = take_factor(text);
    options_ = EncoderOptions::take(text, true, kDefaultLead);
  }

  [[nodiscard]] CodecId id() const noexcept override { return kId; }
  [[nodiscard]] std::string text() const override {
    return fmt::format("{}:bin={},{}{}", codec_name(kId), bin_.text(),
                       kHasFactor ? fmt::format("factor={},", factor_) : "", options_.text());
  }
  [[nodiscard]] std::size_t max_encoded_bytes(std::size_t elems) const override {
    return std::max(sparse_ternary_max_bytes(kId, elems), elems * sizeof(float));
  }
  [[nodiscard]] std::unique_ptr<Encoder> make_encoder(
      std::size_t elems, const EncoderContext& context) const override {
    return std::make_unique<BinEncoder>(kId, elems, context, bin_.elems(context.kind), factor_ - 1,
                                        options_);
  }

 private:
  static constexpr bool kHasFactor = kId == CodecId::kAdaComp;
  static constexpr float kDefaultLead = kHasFactor ? kAdaCompLead : kLocalSelectionLead;
  static constexpr const char* kDefaultBin = kHasFactor ? BinLength::kByKind : kLocalSelectionBin;

  BinLength bin_;
  float factor_ = 1;  // local selection counts the last gradient once
  EncoderOptions options_;
};

}  // namespace

const CodecEntry& adacomp_codec() {
  static const CodecEntry entry = sparse_ternary_entry<BinCodec<CodecId::kAdaComp>,
                                                       CodecId::kAdaComp>(
      {CodecId::kAdaComp, "adacomp",
       "one scale for all values that, with the last gradient counted twice, reach the largest of "
       "their bin (AdaComp)",
       EncoderOptions::describe(
           {BinLength::describe(BinLength::kByKind),
            {"factor", "2", "[1, 10]", "how often the last gradient counts: higher sends more"}},
           true, fmt::format("{}", kAdaCompLead))});
  return entry;
}

const CodecEntry& local_selection_codec() {
  static const CodecEntry entry =
      sparse_ternary_entry<BinCodec<CodecId::kLocalSelection>, CodecId::kLocalSelection>(
          {CodecId::kLocalSelection, "local-selection",
           "one scale for the largest value of each bin: adacomp without its soft threshold",
           EncoderOptions::describe({BinLength::describe(kLocalSelectionBin, BinLength::kByKind)},
                                    true, fmt::format("{}", kLocalSelectionLead))});
  return entry;
}

}  // namespace tersewire
