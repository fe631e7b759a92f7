// Pieces of one rank's messages, as the mpi transport puts them together: whatever a rank says, no
// message is longer than allowed, none gets memory that it did not fill, and they keep their order.
//
// Input: how long a piece and a message may be (u8, u16), then acts: a byte, of which the lowest
// two bits choose, and what they need: the announcement of a message (its length, u16), a piece
// (its length, u8; bit 2: it is the last), the end of the arrival of one that is underway (u8:
// which), and nothing, where what is whole is taken.
#include <algorithm>
#include <deque>
#include <vector>

#include "fuzz_support.h"
#include "message_pieces.h"

namespace tersewire::fuzz {
namespace {

constexpr int kMostActs = 256;

class Rank {
 public:
  Rank(std::size_t piece_bytes, std::uint64_t longest) : pieces_(piece_bytes), longest_(longest) {}

  // False once it has said what no rank says.
  bool act(Input& input) {
    const auto choice = input.take<std::uint8_t>();
    switch (choice & 3U) {
      case 0: {
        const std::uint64_t bytes = input.take<std::uint16_t>();
        return succeeds([&] { pieces_.announce(bytes, longest_); });
      }
      case 1:
        return begin(input.take<std::uint8_t>(), (choice & 4U) != 0);
      case 2:
        arrive(input.take<std::uint8_t>());
        return true;
      default:
        take();
        return true;
    }
  }

 private:
  struct Underway {
    MessagePieces::Piece* piece;
    std::size_t bytes;
  };

  bool begin(std::size_t bytes, bool last) {
    return succeeds([&] {
      MessagePieces::Piece& piece = pieces_.begin(bytes, last, longest_);
      require(piece.bytes->size() <= longest_, "no message is longer than allowed");
      require(piece.offset + bytes <= piece.bytes->size(), "a piece lies in its message");
      begun_bytes_ += bytes;
      if (last) {
        require(begun_bytes_ == piece.bytes->size(), "the pieces of a message fill it");
        expected_.push_back(begun_bytes_);
        begun_bytes_ = 0;
      }
      underway_.push_back({&piece, bytes});
    });
  }

  void arrive(std::size_t which) {
    if (underway_.empty()) return;
    const auto place = underway_.begin() + static_cast<std::ptrdiff_t>(which % underway_.size());
    std::fill_n(place->piece->room(), place->bytes, std::byte{1});
    place->piece->complete = true;
    underway_.erase(place);
  }

  void take() {
    while (const SharedBytes message = pieces_.take_message()) {
      require(!expected_.empty() && message->size() == expected_.front(),
              "in the order of sending");
      require(std::ranges::all_of(*message, [](std::byte byte) { return byte == std::byte{1}; }),
              "a message is whole");
      expected_.pop_front();
    }
    require(!underway_.empty() || expected_.empty(), "what has arrived can be taken");
  }

  MessagePieces pieces_;
  std::uint64_t longest_;
  std::size_t begun_bytes_ = 0;       // of the message whose pieces are coming
  std::deque<std::size_t> expected_;  // lengths of messages all of whose pieces have begun
  std::vector<Underway> underway_;
};

}  // namespace
}  // namespace tersewire::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tersewire::fuzz;
  Input input(data, size);
  const std::size_t piece_bytes = input.take<std::uint8_t>();
  Rank rank(piece_bytes, input.take<std::uint16_t>());
  for (int act = 0; act < kMostActs && !input.rest().empty(); ++act) {
    if (!rank.act(input)) break;
  }
  return 0;
}
