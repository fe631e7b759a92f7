// Arbitrary floats and settings for one codec's encoder (the environment's FUZZ_CODEC names it):
// what holds for every codec, on every SIMD target and with threads.
//
// Input: four bytes of settings, one of choices, two for the number of elements, eight for a seed,
// values.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "codec_texts.h"
#include "fuzz_support.h"
#include "tersewire/codec.h"
#include "tersewire/simd.h"

namespace tersewire::fuzz {
namespace {

const CodecId kCodec = codec_of_environment();

// Choices.
constexpr std::uint8_t kManyBit = 1;     // so many elements that several threads share them
constexpr std::uint8_t kSparseBit = 2;   // mostly zeros
constexpr std::uint8_t kInputMask = 12;  // elements before the input, for its alignment
constexpr std::uint8_t kTameBit = 16;    // exponents near 1, so that sums stay finite

constexpr std::size_t kManyElems = 140000;
constexpr std::size_t kMaxElems = 2000;
constexpr std::uint64_t kSteps = 3;
constexpr std::array<std::byte, 3> kPrefix{std::byte{1}, std::byte{2}, std::byte{3}};

// What the input's floats become, step by step.
std::vector<float> step_values(std::span<const std::uint8_t> bytes, std::size_t elems,
                               std::uint64_t step, std::uint8_t choices) {
  std::vector<float> values(elems, 0.0F);
  const std::size_t known = bytes.size() / sizeof(float);
  if (known == 0) return values;
  const bool sparse = (choices & kSparseBit) != 0;
  std::size_t from = static_cast<std::size_t>(step);
  for (std::size_t i = 0; i < elems; ++from, i += sparse ? 1 + (from * from) % 257 : 1) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, bytes.data() + from % known * sizeof(float), sizeof(bits));
    if ((choices & kTameBit) != 0) bits = (bits & 0x87FFFFFFu) | 0x38000000u;
    values[i] = std::bit_cast<float>(bits);
  }
  return values;
}

struct Step {
  bool done = false;
  Encoded encoded{};
  Bytes payload;
  std::vector<float> residual;  // after it
};

bool same(const Step& a, const Step& b) {
  return a.done == b.done && a.encoded.codec == b.encoded.codec &&
         a.encoded.not_finite == b.encoded.not_finite && a.payload == b.payload &&
         same_bits(a.residual, b.residual);
}

float largest(std::span<const float> values) {
  float found = 0;
  for (const float value : values) found = std::max(found, std::fabs(value));
  return found;
}

// How many times a new value counts ("Lead" in spec/wire-format.md).
float lead_in(const std::string& text) {
  const std::size_t at = text.find("lead=");
  return at == std::string::npos ? 1.0F : std::stof(text.substr(at + 5));
}

// One encoder's life.
class Run {
 public:
  Run(const std::string& text, std::size_t elems, std::uint64_t seed, ThreadPool* pool)
      : codec_(make_codec(text)),
        reject_(text.ends_with("reject")),
        lead_(lead_in(codec_->text())),
        encoder_(codec_->make_encoder(
            elems, {.seed = seed, .sender = 3, .tensor = 4, .kind = TensorKind::kConv})),
        pool_(pool) {
    require(make_codec(codec_->text())->text() == codec_->text(), "a codec's text makes it again");
    require(codec_->id() == kCodec && encoder_->elems() == elems, "a codec is what was asked for");
  }

  Step step(std::span<const float> input, std::uint64_t number) {
    const std::vector<float> before(encoder_->residual().begin(), encoder_->residual().end());
    std::vector<float> sums(input.begin(), input.end());
    for (std::size_t i = 0; i < before.size(); ++i) {
      const float counted = lead_ * input[i];
      sums[i] = before[i] + counted;
    }
    bool finite = all_finite(sums);

    Bytes out(kPrefix.begin(), kPrefix.end());
    Step step;
    step.done = succeeds([&] { step.encoded = encoder_->encode(input, number, out, pool_); });
    // What a lead takes back can overflow.
    const bool raw = step.done ? step.encoded.not_finite : reject_;
    if (raw && lead_ != 1 && largest(sums) >= 0x1p100F) finite = false;
    step.payload.assign(out.begin() + kPrefix.size(), out.end());
    step.residual.assign(encoder_->residual().begin(), encoder_->residual().end());
    require(std::equal(kPrefix.begin(), kPrefix.end(), out.begin()),
            "encode appends and leaves what there was");
    require(step.done == (finite || !reject_), "only non-finite=reject refuses");
    require(step.done || step.payload.empty(), "a failed encode appends nothing");
    require(finite || same_bits(step.residual, before), "what is not finite costs no residual");
    require(all_finite(step.residual), "a residual is finite");
    if (step.done) check(step, input, sums, finite);
    return step;
  }

  // What was sent last comes back.
  void give_back(const Step& last) {
    if (last.done) encoder_->give_back(last.encoded.codec, last.payload);
  }

 private:
  void check(const Step& step, std::span<const float> input, std::span<const float> sums,
             bool finite) const {
    require(step.payload.size() <= codec_->max_encoded_bytes(input.size()),
            "no payload is longer than max_encoded_bytes");
    require(step.encoded.not_finite == !finite, "a result says whether the tensor was finite");
    require(step.encoded.codec == (finite ? kCodec : CodecId::kFp32),
            "what is not finite travels as fp32");
    check_payload(step.encoded.codec, step.payload, input.size());
    std::vector<float> sent(input.size());
    decode(step.encoded.codec, step.payload, sent);
    if (!finite) return require(same_bits(sent, input), "what is not finite travels as it is");
    require(all_finite(sent), "what was finite decodes to finite values");
    for (std::size_t i = 0; i < step.residual.size(); ++i) {
      float rest = sums[i] - sent[i];
      if (lead_ != 1) {
        const float again = (1 - lead_) * input[i];
        rest += again;
      }
      require(step.residual[i] == rest, "the residual is what was not sent");
    }
  }

  std::shared_ptr<const Codec> codec_;
  bool reject_;
  float lead_;
  std::unique_ptr<Encoder> encoder_;
  ThreadPool* pool_;
};

}  // namespace
}  // namespace tersewire::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tersewire;
  using namespace tersewire::fuzz;
  static ThreadPool pool(3);
  static const std::vector<std::string> targets = simd_targets();

  Input input(data, size);
  const std::string text = chosen_text(kCodec, input.take<std::uint32_t>());
  const auto choices = input.take<std::uint8_t>();
  const auto number = input.take<std::uint16_t>();
  const auto seed = input.take<std::uint64_t>();
  const bool many = (choices & kManyBit) != 0;
  const std::size_t elems = many ? kManyElems + number % kMaxElems : number % kMaxElems;
  const std::size_t offset = (choices & kInputMask) >> 2;

  std::vector<Step> first;
  const auto life = [&](ThreadPool* used) {
    Run run(text, elems, seed, used);
    const bool reference = first.empty();
    for (std::uint64_t i = 0; i < (many ? 1 : kSteps); ++i) {
      std::vector<float> memory(offset);
      const auto values = step_values(input.rest(), elems, i, choices);
      memory.insert(memory.end(), values.begin(), values.end());
      Step step = run.step(std::span(memory).subspan(offset), i);
      if (reference) {
        first.push_back(std::move(step));
      } else {
        require(same(step, first[static_cast<std::size_t>(i)]),
                "every SIMD target does the same, with threads or without");
      }
    }
    run.give_back(first.back());
  };
  life(nullptr);
  if (many) {
    life(&pool);
  } else {
    for (const std::string& target : targets) {
      force_simd_target(target);
      life(nullptr);
    }
  }
  force_simd_target("best");
  return 0;
}
