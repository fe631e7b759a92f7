// Arbitrary messages from a peer to an end that two jobs share: what is of a lane arrives there,
// whole and in order, up to the first message that is of none, which ends the job.
//
// Input: messages, each its length and its bytes.
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "fuzz_support.h"
#include "python/shared_end.h"

namespace tersewire::fuzz {
namespace {

constexpr std::size_t kLongest = 64;

// The lane of a message as the format says it; nothing where it is of none.
std::optional<std::size_t> lane_of(ByteView message) {
  if (message.size() < 8 || message.size() > 8 + kLongest) return std::nullopt;
  for (std::size_t i = 1; i < 8; ++i) {
    if (message[i] != std::byte{0}) return std::nullopt;
  }
  const auto lane = std::to_integer<std::size_t>(message[0]);
  return lane < 2 ? std::optional(lane) : std::nullopt;
}

// That the sender has left one, of which more may come.
bool is_farewell(ByteView message) {
  Bytes bytes(message.begin(), message.end());
  if (bytes.size() != 8 || bytes[4] != std::byte{1}) return false;
  bytes[4] = std::byte{0};
  return lane_of(bytes).has_value();
}

}  // namespace
}  // namespace tersewire::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tersewire;
  using namespace tersewire::fuzz;
  ByteView rest = std::as_bytes(std::span(data, size));
  auto network = make_in_process_network(2);
  const auto end = std::make_shared<python::SharedEnd>(std::move(network[0]));
  const std::array lanes{python::SharedEnd::open(end, kLongest),
                         python::SharedEnd::open(end, kLongest)};
  std::array<std::vector<Bytes>, 2> expected;
  bool refused = false;
  while (!rest.empty() && !refused) {
    const ByteView cut = take_message(rest);
    Bytes message(cut.begin(), cut.end());
    const auto lane = lane_of(message);
    if (lane) expected[*lane].emplace_back(message.begin() + 8, message.end());
    refused = !lane && !is_farewell(message);
    network[1]->send(0, std::make_shared<const Bytes>(std::move(message)));
  }
  for (std::size_t lane = 0; lane < 2 && !refused; ++lane) {
    for (const Bytes& bytes : expected[lane]) {
      const auto came = lanes[lane]->receive(std::chrono::seconds(60));
      require(came && *came->bytes == bytes, "a lane's messages arrive in it, in order");
    }
    require(!lanes[lane]->receive(std::chrono::milliseconds(0)), "and nothing else");
  }
  if (refused) {
    require(!succeeds([&] { network[1]->receive(std::chrono::seconds(60)); }),
            "what is of no lane ends the job");
  }
  return 0;
}
