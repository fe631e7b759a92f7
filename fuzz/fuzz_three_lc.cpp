// Arbitrary bytes as a payload of codec 3lc, but in blocks (fuzz_payload's), against a plain
// reading of the specification, on every SIMD target and on several threads.
//
// Input: one byte of choices, two bytes for the number of elements, four for a weight, the payload.
#include <limits>
#include <optional>
#include <vector>

#include "fuzz_support.h"
#include "tersewire/codec.h"
#include "tersewire/simd.h"
#include "three_lc_oracle.h"

namespace tersewire::fuzz {
namespace {

// Choices.
constexpr std::uint8_t kElemsMask = 3;       // how the number of elements is chosen, see below
constexpr std::uint8_t kRepeatBit = 4;       // repeat the body until it is worth several threads
constexpr std::uint8_t kPayloadMask = 0x18;  // bytes before the payload, for its alignment
constexpr std::uint8_t kOutputMask = 0x60;   // elements before the output, for its alignment
constexpr std::uint8_t kLargeBit = 0x80;     // outputs larger than the caches are decoded too

constexpr std::size_t kHeadBytes = 9;
constexpr std::uint8_t kBlocksLayout = 8;
constexpr std::size_t kRepeatedBytes = 33000;
constexpr std::uint64_t kMaxOnAllTargets = 5000;  // more: one target, but any
constexpr std::uint64_t kMaxDecoded = 1 << 18;
constexpr std::uint64_t kMaxLargeDecoded = (1 << 21) + (1 << 16);

std::vector<std::uint8_t> payload_bytes(std::span<const std::uint8_t> bytes, bool repeat) {
  std::vector<std::uint8_t> payload(bytes.begin(), bytes.end());
  if (!repeat || bytes.size() <= kHeadBytes) return payload;
  const auto body = bytes.subspan(kHeadBytes);
  while (payload.size() < kRepeatedBytes) payload.insert(payload.end(), body.begin(), body.end());
  return payload;
}

std::size_t choose_elems(std::uint8_t choices, std::size_t number,
                         const std::optional<OraclePayload>& oracle) {
  switch (choices & kElemsMask) {
    case 0:
      return number % 20001;
    case 1:  // what makes most payloads sound
    case 2:
      return oracle ? static_cast<std::size_t>(oracle->groups) * 5 - number % 5 : number;
    default:  // nothing of this size can be held, but a check may be asked for it
      return ~std::size_t{0} - number;
  }
}

// A payload, and what the specification makes of it.
struct Case {
  ByteView payload;
  std::size_t elems = 0;
  std::size_t output_offset = 0;
  float weight = 1;
  bool sound = false;
  std::vector<float> before;   // what the outputs hold first
  std::vector<float> decoded;  // what decode and ...
  std::vector<float> added;    // ... decode_add must make of them
  std::vector<std::int8_t> digits;

  // Elements with a digit of 0 keep their bits; of a NaN that took part in a sum nothing is said.
  [[nodiscard]] bool added_as_specified(std::span<const float> out) const {
    if (same_bits(out, added)) return true;
    for (std::size_t i = 0; i < elems; ++i) {
      const auto compare = digits[i] == 0 ? same_bits : same_bits_or_nan;
      if (!compare(out.subspan(i, 1), std::span(added).subspan(i, 1))) return false;
    }
    return true;
  }
};

void expect(Case& test, const OraclePayload& oracle) {
  const float step = test.weight * oracle.m;
  test.digits = oracle_digits(oracle, test.elems);
  test.decoded.resize(test.elems);
  test.added = test.before;
  for (std::size_t i = 0; i < test.elems; ++i) {
    const auto digit = test.digits[i];
    test.decoded[i] = digit == 0 ? 0.0F : digit > 0 ? oracle.m : -oracle.m;
    if (digit != 0) test.added[i] += digit > 0 ? step : -step;
  }
}

void check_decoding(const Case& test, ThreadPool* pool) {
  std::vector<float> buffer(test.elems + test.output_offset);
  const std::span<float> out = std::span(buffer).subspan(test.output_offset);

  std::ranges::copy(test.before, out.begin());
  const bool decoded = succeeds([&] { decode(CodecId::kThreeLc, test.payload, out, pool); });
  require(decoded == test.sound, "decode accepts exactly what the specification accepts");
  require(same_bits(out, test.sound ? test.decoded : test.before),
          test.sound ? "decode gives the specified bits" : "a failed decode changes nothing");

  std::ranges::copy(test.before, out.begin());
  const bool added =
      succeeds([&] { decode_add(CodecId::kThreeLc, test.payload, test.weight, out, pool); });
  require(added == test.sound, "decode_add accepts exactly what the specification accepts");
  if (test.sound) {
    require(test.added_as_specified(out), "decode_add gives the specified bits");
  } else {
    require(same_bits(out, test.before), "a failed decode_add changes nothing");
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
  const auto bytes = payload_bytes(input.rest(), (choices & kRepeatBit) != 0);
  if (bytes.size() >= kHeadBytes && bytes[kHeadBytes - 1] == kBlocksLayout) return 0;
  const auto oracle = oracle_parse(bytes);
  test.elems = choose_elems(choices, number, oracle);
  test.sound = oracle && oracle_holds(*oracle, test.elems);
  test.output_offset = (choices & kOutputMask) >> 5;

  // The payload ends where its memory ends, so that AddressSanitizer sees a read past it.
  const std::size_t payload_offset = (choices & kPayloadMask) >> 3;
  std::vector<std::uint8_t> memory(payload_offset);
  memory.insert(memory.end(), bytes.begin(), bytes.end());
  test.payload = ByteView(std::as_bytes(std::span(memory))).subspan(payload_offset);

  const bool checked =
      succeeds([&] { check_payload(CodecId::kThreeLc, test.payload, test.elems); });
  require(checked == test.sound, "check_payload accepts exactly what the specification accepts");
  const bool large = (choices & kLargeBit) != 0;
  if (test.elems > (large ? kMaxLargeDecoded : kMaxDecoded)) return 0;

  test.before = arbitrary_values(test.elems);
  if (test.sound) expect(test, *oracle);
  const bool all_targets = test.sound && test.elems <= kMaxOnAllTargets;
  for (std::size_t t = 0; t < (all_targets ? targets.size() : 1); ++t) {
    force_simd_target(targets[all_targets ? t : number % targets.size()]);
    check_decoding(test, nullptr);
  }
  if (test.elems > kMaxOnAllTargets) check_decoding(test, &pool);
  force_simd_target("best");
  return 0;
}
