// Arbitrary bytes as what a connection of the tcp transport brings, cut anywhere: the records are
// those of the stream as a whole, up to the first head that means nothing, and memory is made as
// bytes come.
//
// Input: two bytes for the longest message, one for where the stream is cut; then the stream.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "ends.h"
#include "fuzz_support.h"
#include "tcp_stream.h"

namespace tersewire::fuzz {
namespace {

struct Reading {
  std::vector<std::pair<TcpRecord, Bytes>> records;
  bool refused = false;
};

// As the format says it, with the whole stream at hand.
Reading read_whole(ByteView stream, std::uint64_t longest) {
  Reading reading;
  while (stream.size() >= kTcpHeadBytes) {
    std::uint64_t length = 0;
    for (std::size_t i = kTcpHeadBytes - 1; i-- > 0;) {
      length = length << 8 | std::to_integer<std::uint64_t>(stream[i]);
    }
    const auto kind = std::to_integer<unsigned>(stream[kTcpHeadBytes - 1]);
    const std::uint64_t most = kind == 0 ? longest : kind == 2 ? kMostReasonBytes : 0;
    reading.refused = kind > 3 || length > most;
    if (reading.refused || length > stream.size() - kTcpHeadBytes) break;
    const ByteView bytes = stream.subspan(kTcpHeadBytes, length);
    reading.records.emplace_back(static_cast<TcpRecord>(kind), Bytes(bytes.begin(), bytes.end()));
    stream = stream.subspan(kTcpHeadBytes + length);
  }
  return reading;
}

Reading read_in_pieces(ByteView stream, std::uint64_t longest, std::size_t most_at_once) {
  Reading reading;
  TcpReader reader;
  for (std::size_t at = 0; at < stream.size();) {
    const std::span<std::byte> room = reader.room();
    require(!room.empty(), "there is always room");
    require(room.size() <= std::max<std::size_t>(std::size_t{1} << 20, stream.size()),
            "no more room is made than twice what came, and 1 MiB");
    const std::size_t count = std::min({room.size(), stream.size() - at, most_at_once});
    std::ranges::copy(stream.subspan(at, count), room.begin());
    at += count;
    reading.refused = !succeeds([&] { reader.taken(count, longest); });
    while (auto record = reader.next()) {
      reading.records.emplace_back(record->kind, std::move(record->bytes));
    }
    if (reading.refused) break;
  }
  return reading;
}

}  // namespace
}  // namespace tersewire::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tersewire::fuzz;
  Input input(data, size);
  const std::uint64_t longest = input.take<std::uint16_t>();
  const std::size_t most_at_once = 1 + std::size_t{input.take<std::uint8_t>()};
  const auto stream = std::as_bytes(input.rest());
  const Reading whole = read_whole(stream, longest);
  const Reading pieces = read_in_pieces(stream, longest, most_at_once);
  require(pieces.refused == whole.refused, "what means nothing is refused, and nothing else");
  require(pieces.records == whole.records, "records do not depend on where a stream is cut");
  return 0;
}
