// Arbitrary messages to a node's end that keeps what the server on the node before has: pieces of
// that are taken or refused, what is whole is read or refused, and all else is passed on in its
// order.
//
// Input: messages, each its length and its bytes.
#include <cstring>
#include <deque>
#include <memory>

#include "fuzz_support.h"
#include "trainer/members/node_report.h"
#include "trainer/members/server_copy.h"

namespace tersewire::fuzz {
namespace {

constexpr std::size_t kMostBytes = 256;

bool is_piece(ByteView message) {
  using trainer::ServerPiece;
  return message.size() >= sizeof(ServerPiece::kKind) + sizeof(ServerPiece) &&
         trainer::begins_as<ServerPiece>(message);
}

}  // namespace
}  // namespace tersewire::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tersewire;
  using namespace tersewire::fuzz;
  ByteView rest = std::as_bytes(std::span(data, size));
  auto network = make_in_process_network(2);
  trainer::ServerCopyEnd end(*network[1], {.first = 0, .nodes = 2}, false, kMostBytes);
  std::deque<Bytes> expected;
  while (!rest.empty()) {
    const ByteView cut = take_message(rest);
    if (!is_piece(cut)) expected.emplace_back(cut.begin(), cut.end());
    network[0]->send(1, std::make_shared<const Bytes>(cut.begin(), cut.end()));
    if (!takes_expected(end, expected)) return 0;
    require(expected.empty(), "a message is kept back");
    if (!is_piece(cut)) continue;
    trainer::ServerPiece piece;
    std::memcpy(&piece, cut.data() + sizeof(piece.kKind), sizeof(piece));
    const std::size_t taken = piece.begin + cut.size() - sizeof(piece.kKind) - sizeof(piece);
    require(taken <= kMostBytes, "more is kept than there can be");
    if (taken < piece.total_bytes) continue;
    trainer::NodeCheckpoint own;
    own.step = piece.step;
    try {
      for (const auto& [key, array] : end.swap(own, {})) {
        require(trainer::is_of_server(key), "what no server has");
      }
    } catch (const Error& error) {
      require(error.code() == ErrorCode::kDataLoss, "not the refusal of a state");
    }
  }
  return 0;
}
