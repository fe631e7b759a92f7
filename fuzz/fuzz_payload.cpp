// Arbitrary bytes as a payload of one codec (the environment's FUZZ_CODEC names it): what is
// accepted decodes alike on every SIMD target, with threads, and by every function that decodes;
// what is not changes nothing.
//
// Input: one byte of choices, two for the number of elements, four for a weight; then the payload,
// or four bytes of settings, a byte for the number of bytes to change, a place and a value for
// each, and values that are encoded to become one.
#include <limits>
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
constexpr std::uint8_t kEncodedBit = 1;  // the payload is encoded values, changed here and there
constexpr std::uint8_t kHugeBit = 2;     // a number of elements that nothing can hold
constexpr std::uint8_t kPayloadMask = 0x0C;  // bytes before the payload, for its alignment
constexpr std::uint8_t kOutputMask = 0x30;   // elements before the output, for its alignment

constexpr std::size_t kMaxElems = 20001;
constexpr std::size_t kMaxEncodedElems = 3000;

Bytes encoded_payload(Input& input, std::size_t elems) {
  const std::string text = chosen_text(kCodec, input.take<std::uint32_t>());
  std::vector<std::pair<std::uint32_t, std::byte>> changes(input.take<std::uint8_t>() % 4);
  for (auto& [place, value] : changes) {
    place = input.take<std::uint32_t>();
    value = input.take<std::byte>();
  }
  std::vector<float> values(elems);
  const auto rest = input.rest();
  for (std::size_t i = 0; i < elems && rest.size() >= sizeof(float); ++i) {
    const std::size_t known = rest.size() / sizeof(float);
    std::memcpy(&values[i], rest.data() + i % known * sizeof(float), sizeof(float));
    if (!std::isfinite(values[i])) values[i] = 0;
  }
  Bytes payload;
  try {
    make_codec(text)->make_encoder(elems)->encode(values, 0, payload);
  } catch (const Error&) {  // what overflows, where that is refused
    return {};
  }
  for (const auto& [place, value] : changes) {
    if (!payload.empty()) payload[place % payload.size()] = value;
  }
  return payload;
}

struct Case {
  ByteView payload;
  std::size_t elems = 0;
  std::size_t output_offset = 0;
  float weight = 1;
  std::vector<float> before;
};

// What one run of all decoding functions gave.
struct Result {
  bool sound = false;
  std::vector<float> decoded;
  std::vector<float> added;
};

template <typename Task>
std::vector<float> output_of(const Case& test, bool& sound, Task&& task) {
  std::vector<float> buffer(test.elems + test.output_offset);
  const std::span<float> out = std::span(buffer).subspan(test.output_offset);
  std::ranges::copy(test.before, out.begin());
  sound = succeeds([&] { task(out); });
  require(sound || same_bits(out, test.before), "a failed decode changes nothing");
  return {out.begin(), out.end()};
}

Result decode_all(const Case& test, ThreadPool* pool) {
  Result result;
  bool added = false;
  result.decoded =
      output_of(test, result.sound, [&](auto out) { decode(kCodec, test.payload, out, pool); });
  result.added = output_of(
      test, added, [&](auto out) { decode_add(kCodec, test.payload, test.weight, out, pool); });
  require(added == result.sound, "decode_add accepts what decode accepts");
  return result;
}

void check_sums(const Case& test, const Result& result) {
  for (std::size_t i = 0; i < test.elems; ++i) {
    const float x = result.decoded[i];
    const float sum = test.before[i] + test.weight * x;
    const std::span got(&result.added[i], 1);
    const bool untouched =
        std::bit_cast<std::uint32_t>(x) == 0 && same_bits_or_nan(got, {&test.before[i], 1});
    require(untouched || same_bits_or_nan(got, {&sum, 1}), "decode_add adds weight times value");
  }
}

void check_doubles(const Case& test, const Result& result) {
  std::vector<double> wide(test.elems, 0.5);
  const bool sound = succeeds([&] { decode_f64(kCodec, test.payload, wide); });
  require(sound == result.sound, "decode_f64 accepts what decode accepts");
  for (std::size_t i = 0; i < test.elems; ++i) {
    if (!sound) {
      require(wide[i] == 0.5, "a failed decode_f64 changes nothing");
      continue;
    }
    const float limit = std::numeric_limits<float>::max();
    float rounded = static_cast<float>(wide[i]);
    if (std::isinf(rounded) && std::isfinite(wide[i])) rounded = std::copysign(limit, rounded);
    require(same_bits_or_nan({&rounded, 1}, {&result.decoded[i], 1}),
            "decode_f64, rounded, is decode");
  }
}

}  // namespace
}  // namespace tersewire::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tersewire;
  using namespace tersewire::fuzz;
  static ThreadPool pool(3);
  static const std::vector<std::string> targets = simd_targets();

  Input input(data, size);
  const auto choices = input.take<std::uint8_t>();
  const auto number = input.take<std::uint16_t>();
  Case test;
  test.weight = input.take<float>();
  const bool encoded = (choices & kEncodedBit) != 0 && kCodec != CodecId::kLevels;
  test.elems = number % (encoded ? kMaxEncodedElems : kMaxElems);
  Bytes payload;
  if (encoded) {
    payload = encoded_payload(input, test.elems);
  } else {
    const auto rest = std::as_bytes(input.rest());
    payload.assign(rest.begin(), rest.end());
  }
  // The payload ends where its memory ends, so that AddressSanitizer sees a read past it.
  const std::size_t offset = (choices & kPayloadMask) >> 2;
  const std::vector<std::byte> memory = [&] {
    std::vector<std::byte> bytes(offset);
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    return bytes;
  }();
  test.payload = ByteView(memory).subspan(offset);
  test.output_offset = (choices & kOutputMask) >> 4;

  if ((choices & kHugeBit) != 0) {
    (void)succeeds([&] { check_payload(kCodec, test.payload, (std::size_t{1} << 40) - number); });
    return 0;
  }
  test.before = arbitrary_values(test.elems);
  const bool sound = succeeds([&] { check_payload(kCodec, test.payload, test.elems); });
  const Result first = decode_all(test, &pool);
  require(first.sound == sound, "decode accepts what check_payload accepts");
  if (sound) {
    (void)payload_parameters(kCodec, test.payload);
    check_sums(test, first);
  }
  check_doubles(test, first);
  for (const std::string& target : targets) {
    force_simd_target(target);
    const Result other = decode_all(test, nullptr);
    require(other.sound == first.sound && same_bits_or_nan(other.decoded, first.decoded) &&
                same_bits_or_nan(other.added, first.added),
            "every SIMD target decodes alike, with threads or without");
  }
  force_simd_target("best");
  return 0;
}
