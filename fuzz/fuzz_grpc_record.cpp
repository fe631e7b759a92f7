// Arbitrary bytes as batches of a stream of the transport grpc, in plaintext and as over TLS: what
// is no record is refused, messages come whole and in order whatever comes twice or is missing, and
// memory is made as bytes come.
//
// Input: a byte, whose lowest bit says whether as over TLS, and whose next whether a checksum is
// made right; two for the longest message; then records.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "fuzz_support.h"
#include "grpc_pair.h"

namespace tersewire::fuzz {
namespace {

// The records with the checksums that they should have, as far as they are any.
Bytes mended(ByteView stream) {
  Bytes bytes(stream.begin(), stream.end());
  ByteView last;
  for (std::size_t at = 0; bytes.size() - at >= kRecordHeadBytes;) {
    RecordHead head;
    std::memcpy(&head, bytes.data() + at, sizeof(head));
    if (head.kind == RecordKind::kCopy) {
      const RecordHead whole = sealed_copy(head, last, false);
      std::memcpy(bytes.data() + at, &whole, sizeof(whole));
      at += kRecordHeadBytes;
      continue;
    }
    if (head.bytes > bytes.size() - at - kRecordHeadBytes) break;
    const ByteView data = ByteView(bytes).subspan(at + kRecordHeadBytes, head.bytes);
    const RecordHead whole = sealed(head, data, false);
    std::memcpy(bytes.data() + at, &whole, sizeof(whole));
    at += kRecordHeadBytes + head.bytes;
    if (head.kind == RecordKind::kData) last = data;
  }
  return bytes;
}

}  // namespace
}  // namespace tersewire::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tersewire;
  using namespace tersewire::fuzz;
  Input input(data, size);
  const auto flags = input.take<std::uint8_t>();
  const bool secure = (flags & 1) != 0;
  const std::uint64_t longest = input.take<std::uint16_t>();
  const auto stream = std::as_bytes(input.rest());
  const Bytes bytes =
      (flags & 2) != 0 && !secure ? mended(stream) : Bytes(stream.begin(), stream.end());
  ReceivingSide receiving;
  SendingSide sending;
  sending.put(std::make_shared<const Bytes>(1000));
  sending.next(300);
  std::uint64_t held = 0;
  ByteView last;
  std::uint64_t delivered = 0;
  succeeds([&] {
    for (ByteView rest = bytes; !rest.empty();) {
      const std::size_t before = rest.size();
      Record record = take_record(rest, secure);
      require(before - rest.size() == kRecordHeadBytes + record.data.size(),
              "a record is taken off");
      require(record.head.kind <= kLastRecordKind, "records are of known kinds");
      if (record.head.kind == RecordKind::kCopy) record = copied(record, last, secure);
      if (record.head.kind == RecordKind::kHello) {
        const Hello hello = parse_hello(record.data);
        require(hello.address.empty() || is_peer_address(hello.address), "an address is one");
      }
      if (record.head.kind == RecordKind::kAddresses) {
        const auto places = parse_addresses(record.data, 3);
        require(places.size() == 3 && std::ranges::equal(addresses_data(places), record.data),
                "what the hub says of three ranks is said again alike");
      }
      if (record.head.kind == RecordKind::kDirect) {
        require(std::ranges::equal(direct_data(parse_direct(record.data)), record.data),
                "a report is said again alike");
      }
      if (record.head.kind == RecordKind::kRoster) parse_roster(record.data, 3);
      if (record.head.kind > RecordKind::kResume) continue;
      sending.hear(record.head.received, record.head.taken);
      require(sending.waiting_bytes() <= 1000, "what waits does not grow by itself");
      sending.rewind();
      while (const auto chunk = sending.next(300)) {
        require(chunk->offset <= 1000 && chunk->bytes <= 1000 - chunk->offset,
                "what is sent again is of the message");
      }
      if (record.head.kind != RecordKind::kData) continue;
      last = record.data;
      const std::uint64_t received = receiving.received();
      const std::uint64_t taken = receiving.taken();
      const auto message = receiving.add(record, longest);
      held += record.data.size();
      require(receiving.received() >= received && receiving.taken() >= taken, "neither falls");
      require(receiving.received() - received <= record.data.size() + kMessageCost,
              "no more is received than came");
      require(receiving.taken() <= receiving.received(), "no more is taken than came");
      if (!message) continue;
      delivered += message->size();
      require(message->size() <= longest, "no message is above the longest");
      require(delivered <= held, "no more is delivered than came");
      receiving.took(message->size());
    }
  });
  return 0;
}
