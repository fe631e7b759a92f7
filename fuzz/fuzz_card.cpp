// Arbitrary packets and notices through the cards of two hosts: what a card makes of a packet is
// one that its peer restores to as many bytes, the headers as they were; what claims to be
// compressed is restored to a whole packet or dropped; nothing crashes.
//
// Input: a byte for the setting; then events, each a byte of choice and a 16-bit number of bytes
// that follow: a packet that leaves A, or B, or arrives, a notice to A, or milliseconds that pass.
#include <string>

#include "fuzz_support.h"
#include "nic/card.h"

namespace tersewire::fuzz {
namespace {

using namespace tersewire::nic;

enum class Event : std::uint8_t { kFromA, kFromB, kToA, kToB, kNotice, kTime };
constexpr std::uint8_t kEvents = 6;

// The bytes end where their memory ends.
Bytes take_bytes(std::span<const std::uint8_t>& rest) {
  std::size_t bytes = 0;
  if (rest.size() >= 2) {
    bytes = rest[0] | std::size_t{rest[1]} << 8;
    rest = rest.subspan(2);
  }
  const ByteView view = std::as_bytes(rest.first(std::min(bytes, rest.size())));
  rest = rest.subspan(view.size());
  return {view.begin(), view.end()};
}

void check_restored(const Bytes& out) {
  const PacketHeaders headers = read_headers(out);
  require(headers.kind == PacketKind::kWhole && headers.code_point == kMarkedCodePoint,
          "a restored packet is whole and has the mark");
  require(headers.end == out.size(), "a packet is as long as it says");
}

void arrive(Card& card, ByteView packet, Card::Instant now) {
  Bytes out;
  if (card.arriving(packet, now, out) == Verdict::kReplace) check_restored(out);
}

void leave(Card& from, Card& to, const Bytes& packet, Card::Instant now) {
  Bytes out;
  const Verdict verdict = from.leaving(packet, now, out);
  require(verdict != Verdict::kDrop, "no packet is lost on its way out");
  if (verdict == Verdict::kAccept) return arrive(to, packet, now);
  const PacketHeaders before = read_headers(packet);
  const PacketHeaders after = read_headers(out);
  require(after.kind == PacketKind::kWhole && after.code_point == kCompressedCodePoint,
          "what a card sends is whole and has its mark");
  Bytes back;
  const Verdict arrived = to.arriving(out, now, back);
  if (before.payload_bytes() == 0) {
    require(arrived == Verdict::kAccept, "a packet without a payload passes");
    return;
  }
  require(out.size() < before.end, "a compressed packet is shorter");
  require(arrived == Verdict::kReplace, "what a card sends is restored");
  check_restored(back);
  require(back.size() == before.end, "a restored packet is as long as it was");
  // Addresses, ports and sequence numbers.
  require(std::equal(back.begin() + 12, back.begin() + 20, packet.begin() + 12) &&
              std::equal(back.begin() + static_cast<std::ptrdiff_t>(before.transport_at),
                         back.begin() + static_cast<std::ptrdiff_t>(before.checksum_at),
                         packet.begin() + static_cast<std::ptrdiff_t>(before.transport_at)),
          "headers are as they were");
}

}  // namespace
}  // namespace tersewire::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tersewire;
  using namespace tersewire::fuzz;
  Input input(data, size);
  const auto setting = input.take<std::uint8_t>();
  const std::string codec = "inceptionn:bound=2^-" + std::to_string(1 + setting % 15) +
                            (setting >= 128 ? ",mode=paper" : "");
  nic::Card a(codec);
  nic::Card b(codec);
  nic::Card::Instant now{std::chrono::hours(1)};
  std::span<const std::uint8_t> rest = input.rest();
  while (!rest.empty()) {
    const auto event = static_cast<Event>(rest[0] % kEvents);
    rest = rest.subspan(1);
    const Bytes bytes = take_bytes(rest);
    switch (event) {
      case Event::kFromA:
        leave(a, b, bytes, now);
        break;
      case Event::kFromB:
        leave(b, a, bytes, now);
        break;
      case Event::kToA:
        arrive(a, bytes, now);
        break;
      case Event::kToB:
        arrive(b, bytes, now);
        break;
      case Event::kNotice:
        if (const auto notice = nic::parse_notice(bytes)) a.take(*notice);
        break;
      case Event::kTime:
        now += std::chrono::milliseconds(bytes.size());
        break;
    }
  }
  return 0;
}
