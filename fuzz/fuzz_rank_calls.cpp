// Arbitrary messages from a peer to the calls that ranks make before they exchange gradients: each
// is what the call waits for, or the calls end with a sentence.
//
// Input: the rank that makes the calls, in a byte, and messages, each its length and its bytes.
#include <chrono>
#include <memory>
#include <vector>

#include "fuzz_support.h"
#include "python/rank_calls.h"
#include "python/shared_end.h"

namespace tersewire::fuzz {
namespace {

using python::RankCalls;

// Before each message of lane 0, and what says that its sender has left it.
constexpr std::size_t kHeadBytes = 8;
constexpr std::size_t kFarewellByte = 4;

void gather(RankCalls& calls, std::size_t rank) {
  const Bytes own(3, std::byte{7});
  const std::vector<Bytes> told = calls.gather(own);
  require(told.size() == 2, "not one contribution a rank");
  require(rank == 1 || told[0] == own, "not what rank 0 itself says");
}

}  // namespace
}  // namespace tersewire::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tersewire;
  using namespace tersewire::fuzz;
  ByteView rest = std::as_bytes(std::span(data, size));
  if (rest.empty()) return 0;
  const std::size_t rank = std::to_integer<std::size_t>(rest[0]) % 2;
  const int own = static_cast<int>(rank);
  rest = rest.subspan(1);
  auto network = make_in_process_network(2);
  Transport& peer = *network[1 - rank];
  const auto lane = python::SharedEnd::open(
      std::make_shared<python::SharedEnd>(std::move(network[rank])), RankCalls::kLongestMessage);
  while (!rest.empty()) {
    const ByteView cut = take_message(rest);
    Bytes message(kHeadBytes, std::byte{0});
    message.insert(message.end(), cut.begin(), cut.end());
    peer.send(own, std::make_shared<const Bytes>(std::move(message)));
  }
  Bytes farewell(kHeadBytes, std::byte{0});
  farewell[kFarewellByte] = std::byte{1};
  peer.send(own, std::make_shared<const Bytes>(std::move(farewell)));
  const WaitLimits limits{.deadline = std::chrono::seconds(60),
                          .progress_limit = std::chrono::seconds(60)};
  RankCalls calls(*lane, limits, "the hub");
  Bytes values(5, std::byte{0});
  // They end when the peer's messages do.
  const bool went_on = succeeds([&] {
    for (;;) {
      gather(calls, rank);
      calls.broadcast(1 - own, values);
      calls.broadcast(own, values);
    }
  });
  require(!went_on, "calls without a peer");
  return 0;
}
