#include "ladder.h"

#include <algorithm>
#include <map>

#include "errors.h"
#include "float_mode.h"

namespace tersewire {
namespace {

using Codecs = std::vector<std::shared_ptr<const Codec>>;
using RungOf = std::function<std::size_t(std::uint64_t step)>;

struct Rungs {
  Codecs codecs;
  RungOf at;  // a step
};

class LadderEncoder final : public Encoder {
 public:
  LadderEncoder(std::shared_ptr<const Rungs> rungs, std::size_t elems,
                const EncoderContext& context)
      : rungs_(std::move(rungs)), context_(context), elems_(elems), kept_(elems) {}

  [[nodiscard]] std::size_t elems() const noexcept override { return elems_; }

  Encoded encode(std::span<const float> input, std::uint64_t step, Bytes& out,
                 ThreadPool* pool) override {
    take_rung(rung_of(step));
    if (input.size() != elems_ || !owes()) return encoder_->encode(input, step, out, pool);
    const DefaultFloatMode mode;
    sum_.resize(elems_);
    std::ranges::transform(input, kept_, sum_.begin(), std::plus<>());
    const std::size_t start = out.size();
    const Encoded made = encoder_->encode(sum_, step, out, pool);
    if (made.not_finite) {  // it stays, and the input travels by itself
      out.resize(start);
      return encoder_->encode(input, step, out, pool);
    }
    std::ranges::fill(kept_, 0.0F);
    return made;
  }

  void observe_gradient(std::span<const float> gradient) override {
    if (encoder_) encoder_->observe_gradient(gradient);
  }

  std::span<float> residual() noexcept override {
    settled_ = false;  // whoever asks may write
    return kept_.empty() && encoder_ ? encoder_->residual() : std::span<float>(kept_);
  }

 private:
  [[nodiscard]] std::size_t rung_of(std::uint64_t step) const {
    const std::size_t rung = rungs_->at(step);
    const std::size_t count = rungs_->codecs.size();
    if (rung < count) return rung;
    fail(ErrorCode::kInvalidArgument,
         "the ladder has rung {} in step {} and only {} codecs; return a number below {} from "
         "rung()",
         rung, step, count, count);
  }

  void take_rung(std::size_t rung) {
    if (encoder_ && rung == rung_) return;
    auto next = rungs_->codecs[rung]->make_encoder(elems_, context_);
    const std::span<float> before = residual();
    if (next->residual().empty()) {
      if (kept_.empty()) kept_.assign(before.begin(), before.end());
    } else {
      std::ranges::copy(before, next->residual().begin());
      kept_ = {};
    }
    encoder_ = std::move(next);
    rung_ = rung;
  }

  // Whether an earlier codec has left something that this one has no residual for.
  bool owes() {
    if (settled_ || kept_.empty()) return false;
    settled_ = std::ranges::all_of(kept_, [](float value) { return value == 0; });
    return !settled_;
  }

  std::shared_ptr<const Rungs> rungs_;
  EncoderContext context_;
  std::size_t elems_;
  std::size_t rung_ = 0;
  std::unique_ptr<Encoder> encoder_;  // none before the first step
  // What there is of a residual where the encoder has none of its own.
  std::vector<float> kept_;
  bool settled_ = false;  // kept_ is known to be zeros
  std::vector<float> sum_;
};

class LadderCodec final : public Codec {
 public:
  LadderCodec(Codecs codecs, RungOf rung)
      : rungs_(std::make_shared<const Rungs>(Rungs{std::move(codecs), std::move(rung)})) {}

  [[nodiscard]] CodecId id() const noexcept override { return rungs_->codecs.front()->id(); }
  [[nodiscard]] std::string text() const override {
    std::string text;
    for (const auto& codec : rungs_->codecs) text += (text.empty() ? "" : " / ") + codec->text();
    return text;
  }
  [[nodiscard]] std::size_t max_encoded_bytes(std::size_t elems) const override {
    std::size_t most = 0;
    for (const auto& codec : rungs_->codecs) most = std::max(most, codec->max_encoded_bytes(elems));
    return most;
  }
  [[nodiscard]] std::unique_ptr<Encoder> make_encoder(
      std::size_t elems, const EncoderContext& context) const override {
    return std::make_unique<LadderEncoder>(rungs_, elems, context);
  }

 private:
  std::shared_ptr<const Rungs> rungs_;
};

}  // namespace

std::vector<std::shared_ptr<const Codec>> make_ladder(
    const std::vector<std::vector<std::shared_ptr<const Codec>>>& rungs,
    const std::function<std::size_t(std::uint64_t step)>& rung) {
  if (!rung) {
    fail(ErrorCode::kInvalidArgument,
         "a ladder of {} codecs has no rung(); set it to say which of them encodes each step",
         rungs.size());
  }
  std::map<std::vector<std::string>, std::shared_ptr<const Codec>> made;
  std::vector<std::shared_ptr<const Codec>> ladders;
  for (std::size_t tensor = 0; tensor < rungs.front().size(); ++tensor) {
    Codecs codecs;
    std::vector<std::string> texts;
    for (const auto& of_rung : rungs) {
      codecs.push_back(of_rung[tensor]);
      texts.push_back(of_rung[tensor]->text());
    }
    auto& ladder = made[texts];
    if (!ladder) ladder = std::make_shared<LadderCodec>(std::move(codecs), rung);
    ladders.push_back(ladder);
  }
  return ladders;
}

}  // namespace tersewire
