// Arbitrary floats and settings for codec 3lc's encoder in mode=paper, against a plain reading of
// the specification, on every SIMD target.
//
// Input: one byte of settings, one of choices, two for s, two for the number of elements, values.
#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "fuzz_support.h"
#include "tersewire/codec.h"
#include "tersewire/simd.h"
#include "three_lc_oracle.h"

namespace tersewire::fuzz {
namespace {

// Settings: bits 0 and 1 are the layout byte, bit 2 is unused, then
constexpr std::uint8_t kNoErrorFeedbackBit = 8;
constexpr std::uint8_t kRejectBit = 16;
// Choices.
constexpr std::uint8_t kManyBit = 1;     // so many elements that several threads share them
constexpr std::uint8_t kSparseBit = 2;   // mostly zeros
constexpr std::uint8_t kInputMask = 12;  // elements before the input, for its alignment

constexpr std::size_t kManyElems = 82000;
constexpr std::size_t kMaxElems = 2000;
constexpr std::size_t kSteps = 3;

struct Settings {
  std::uint8_t layout = 0;
  bool error_feedback = true;
  bool reject = false;
  float s = 1;

  [[nodiscard]] std::string text() const {
    char number[40];
    std::snprintf(number, sizeof(number), "%.9g", static_cast<double>(s));
    std::string text = std::string("3lc:mode=paper,s=") + number;
    text += (layout & kOraclePartitions) != 0 ? ",layout=partitions" : ",layout=neighbours";
    text += (layout & kOracleZeroRuns) != 0 ? ",zre=on" : ",zre=off";
    text += error_feedback ? ",ef=on" : ",ef=off";
    text += reject ? ",non-finite=reject" : ",non-finite=send";
    return text;
  }
};

// What the input's floats become, step by step.
std::vector<float> step_values(std::span<const std::uint8_t> bytes, std::size_t elems,
                               std::size_t step, bool sparse) {
  std::vector<float> values(elems, 0.0F);
  const std::size_t known = bytes.size() / sizeof(float);
  if (known == 0) return values;
  // A sparse tensor has a value here and there, at distances that runs of all lengths come from.
  std::size_t from = step;
  for (std::size_t i = 0; i < elems; ++from, i += sparse ? 1 + (from * from) % 257 : 1) {
    std::memcpy(&values[i], bytes.data() + from % known * sizeof(float), sizeof(float));
  }
  return values;
}

// What an encoder did in one step.
struct Step {
  std::vector<float> sums;  // of the residual and the input
  bool done = false;        // false: it refused
  Encoded encoded{};
  Bytes payload;
  std::vector<float> residual;  // after it
};

constexpr std::array<std::byte, 3> kPrefix{std::byte{1}, std::byte{2}, std::byte{3}};

// One encoder's life. What holds on every SIMD target is checked on the way.
class Run {
 public:
  Run(const Settings& settings, std::size_t elems, ThreadPool* pool)
      : settings_(settings),
        codec_(make_codec(settings.text())),
        encoder_(codec_->make_encoder(elems)),
        pool_(pool) {
    require(encoder_->elems() == elems, "an encoder knows its number of elements");
    require(encoder_->residual().size() == (settings.error_feedback ? elems : 0),
            "a residual has as many elements as its tensor");
  }

  Step step(std::span<const float> input) {
    const std::vector<float> before(encoder_->residual().begin(), encoder_->residual().end());
    Step step;
    step.sums.assign(input.begin(), input.end());
    for (std::size_t i = 0; i < before.size(); ++i) step.sums[i] = before[i] + input[i];
    Bytes out(kPrefix.begin(), kPrefix.end());
    step.done = succeeds([&] { step.encoded = encoder_->encode(input, steps_++, out, pool_); });
    require(std::equal(kPrefix.begin(), kPrefix.end(), out.begin()),
            "encode appends and leaves what there was");
    step.payload.assign(out.begin() + kPrefix.size(), out.end());
    step.residual.assign(encoder_->residual().begin(), encoder_->residual().end());
    const bool finite = all_finite(step.sums);
    require(step.done == (finite || !settings_.reject), "only non-finite=reject refuses");
    require(step.done || step.payload.empty(), "a failed encode appends nothing");
    require(finite || same_bits(step.residual, before), "what is not finite costs no residual");
    return step;
  }

  // What `last` sent comes back.
  void give_back(const Step& last) {
    if (!settings_.error_feedback || !all_finite(last.sums)) return;
    encoder_->give_back(CodecId::kThreeLc, last.payload);
    require(same_bits(encoder_->residual(), last.sums), "what is given back restores the sums");
  }

  // Holds a step against the specification.
  void check(const Step& step, std::span<const float> input) const {
    if (!step.done) return;
    const bool finite = all_finite(step.sums);
    require(step.payload.size() <= codec_->max_encoded_bytes(input.size()),
            "no payload is longer than max_encoded_bytes");
    require(step.encoded.not_finite == !finite, "a result says whether the tensor was finite");
    require(step.encoded.codec == (finite ? CodecId::kThreeLc : CodecId::kFp32),
            "what is not finite travels as fp32");
    check_payload(step.encoded.codec, step.payload, input.size());
    std::vector<float> sent(input.size());
    decode(step.encoded.codec, step.payload, sent);
    if (!finite) return require(same_bits(sent, input), "what is not finite travels as it is");
    const auto expected = oracle_encode(step.sums, settings_.s, settings_.layout).payload;
    require(std::ranges::equal(std::as_bytes(std::span(expected)), step.payload),
            "encode gives the specified bytes");
    // Doubles hold these sums exactly.
    for (std::size_t i = 0; i < step.residual.size(); ++i) {
      require(double{sent[i]} + double{step.residual[i]} == double{step.sums[i]},
              "what was sent and the new residual are the old residual and the input");
    }
  }

 private:
  Settings settings_;
  std::shared_ptr<const Codec> codec_;
  std::unique_ptr<Encoder> encoder_;
  ThreadPool* pool_;
  std::uint64_t steps_ = 0;
};

bool same(const Step& a, const Step& b) {
  return a.done == b.done && a.encoded.codec == b.encoded.codec &&
         a.encoded.not_finite == b.encoded.not_finite && a.payload == b.payload &&
         same_bits(a.residual, b.residual);
}

Settings take_settings(Input& input) {
  const auto bits = input.take<std::uint8_t>();
  return {.layout = static_cast<std::uint8_t>(bits & (kOraclePartitions | kOracleZeroRuns)),
          .error_feedback = (bits & kNoErrorFeedbackBit) == 0,
          .reject = (bits & kRejectBit) != 0};
}

}  // namespace
}  // namespace tersewire::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tersewire;
  using namespace tersewire::fuzz;
  static ThreadPool pool(3);
  static const std::vector<std::string> targets = simd_targets();

  Input input(data, size);
  Settings settings = take_settings(input);
  const auto choices = input.take<std::uint8_t>();
  settings.s = 1.0F + static_cast<float>(input.take<std::uint16_t>()) / 65536.0F;
  const auto number = input.take<std::uint16_t>();
  const bool many = (choices & kManyBit) != 0;
  const std::size_t elems = many ? kManyElems + number % kMaxElems : number % kMaxElems;
  const std::size_t offset = (choices & kInputMask) >> 2;

  std::vector<Step> first;  // what the first target did
  for (std::size_t t = 0; t < (many ? 1 : targets.size()); ++t) {
    // With many elements one target, but any.
    force_simd_target(targets[many ? number % targets.size() : t]);
    Run run(settings, elems, many ? &pool : nullptr);
    for (std::size_t i = 0; i < (many ? 1 : kSteps); ++i) {
      std::vector<float> memory(offset);
      const auto values = step_values(input.rest(), elems, i, (choices & kSparseBit) != 0);
      memory.insert(memory.end(), values.begin(), values.end());
      Step step = run.step(std::span(memory).subspan(offset));
      if (t > 0) {
        require(same(step, first[i]), "every SIMD target does the same");
      } else {
        run.check(step, values);
        first.push_back(std::move(step));
      }
    }
    run.give_back(first.back());
  }
  force_simd_target("best");
  return 0;
}
