// Arbitrary bytes as a .tw file or a state, in memory and as a stream.
//
// Input: one byte of choices (bit 0: repair the checksums, which no fuzzer would guess; the rest:
// the most bytes that the stream brings at once), the file.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "fuzz_support.h"
#include "tersewire/tw_file.h"
#include "tests/support/trickle.h"

namespace tersewire::fuzz {
namespace {

constexpr std::uint8_t kRepairBit = 1;
constexpr std::size_t kCountedBytes = 20;  // what the checksum covers of the header

struct Part {
  MessageKind kind;
  Frame frame;  // its payload is in `payload`
  std::vector<std::byte> payload;
};

void seal(std::span<std::byte> message) {
  std::vector<std::byte> covered(message.begin(), message.begin() + kCountedBytes);
  covered.insert(covered.end(), message.begin() + kMessageOverheadBytes, message.end());
  const std::uint64_t sum = XXH64(covered.data(), covered.size(), 0);
  std::memcpy(message.data() + kCountedBytes, &sum, sizeof(sum));
}

// Where a message ends is for the reader to find: every "TW" behind the first may begin the next.
void seal_all(std::vector<std::byte>& file) {
  std::size_t begin = 0;
  while (begin + kMessageOverheadBytes <= file.size()) {
    const auto from = file.begin() + static_cast<std::ptrdiff_t>(begin + kMessageOverheadBytes);
    constexpr std::byte kMagic[] = {std::byte{'T'}, std::byte{'W'}};
    const auto next = std::search(from, file.end(), std::begin(kMagic), std::end(kMagic));
    const auto end = static_cast<std::size_t>(next - file.begin());
    seal(std::span(file).subspan(begin, end - begin));
    begin = end;
  }
}

Part copy_of(const Message& message) {
  const Frame frame = message.frames.front();
  return {message.header.kind, frame, {frame.payload.begin(), frame.payload.end()}};
}

void check_same(const std::vector<Message>& whole, const std::vector<Part>& streamed) {
  require(whole.size() == streamed.size(), "a stream has as many parts");
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const Frame frame = whole[i].frames.front();
    const Part& part = streamed[i];
    require(whole[i].header.kind == part.kind && frame.codec == part.frame.codec &&
                frame.part == part.frame.part && frame.part == i &&
                frame.description == part.frame.description &&
                frame.not_finite == part.frame.not_finite &&
                std::ranges::equal(frame.payload, part.payload),
            "and the same ones");
  }
}

void check_lengths(const std::vector<Message>& parts) {
  const Frame first = parts.front().frames.front();
  require(first.description.has_value(), "a part is described");
  require(parts.size() == first.description->parts(), "every part is there");
  std::size_t elems = 0;
  for (const Message& part : parts) {
    const std::size_t some = *part.frames.front().elems();
    require(some > 0 || parts.size() == 1, "no part is empty");
    elems += some;
  }
  require(elems == first.description->elems(), "the parts make up the array");
}

}  // namespace
}  // namespace tersewire::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tersewire;
  using namespace tersewire::fuzz;
  Input input(data, size);
  const auto choices = input.take<std::uint8_t>();
  std::vector<std::byte> bytes = input.copy_of_rest();
  if ((choices & kRepairBit) != 0) seal_all(bytes);

  std::vector<Message> whole;
  const bool sound = succeeds([&] { whole = parse_tw_file(bytes); });
  Trickle source(bytes, std::size_t{1} + choices / 2);
  std::vector<Part> streamed;
  const bool came = succeeds([&] {
    TwReader reader(source);
    while (const auto message = reader.next()) streamed.push_back(copy_of(*message));
  });
  require(came == sound, "a file is accepted as a stream where it is in memory");
  if (!sound) return 0;
  check_same(whole, streamed);
  check_lengths(whole);
  return 0;
}
