// In an elastic job whose servers own the model: what a node's server has at a state is kept by the
// next node with a server, too, so that a node that dies takes nothing of the model with it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>

#include "tersewire/passing_transport.h"
#include "trainer/files/checkpoint.h"

namespace tersewire::trainer {

// A piece of what a server has; its bytes follow.
struct ServerPiece {
  static constexpr std::uint64_t kKind = 0x3153565245535254;  // "TRSERVS1"

  std::uint64_t step = 0;
  std::uint64_t total_bytes = 0;
  std::uint64_t begin = 0;
};

// The nodes that have a server each, by rank; the first one is next to the last.
struct ServerRing {
  int first = 0;
  int nodes = 0;

  [[nodiscard]] int next(int rank) const { return first + (rank - first + 1) % nodes; }
  [[nodiscard]] int before(int rank) const { return first + (rank - first + nodes - 1) % nodes; }
};

// A node's end of the network: sends what its server has to the next node, and keeps what comes of
// the one before, one state at a time, apart from all else. One thread at a time receives.
class ServerCopyEnd final : public PassingTransport {
 public:
  // `end` must outlive it. `most_bytes`: what the arrays of the server before can take. `alone`:
  // no worker shares the node, and nobody receives while swap() waits.
  ServerCopyEnd(Transport& end, const ServerRing& ring, bool alone, std::size_t most_bytes)
      : PassingTransport(end), ring_(ring), alone_(alone), most_bytes_(most_bytes) {}

  // Never one of those pieces. Throws kDataLoss for one that makes no sense.
  std::optional<Incoming> receive(std::chrono::milliseconds timeout) override;
  void expect_at_most(std::size_t bytes) override;

  // For the thread beside the one that receives or, where the server is alone, for its own: sends
  // what is the server's of this node's state, and waits for the same of the node before. Throws
  // what receiving failed with, and like await().
  NodeCheckpoint::Arrays swap(const NodeCheckpoint& own, const WaitLimits& limits);

 private:
  [[nodiscard]] int before() const { return ring_.before(rank()); }
  // Whether the message was a piece.
  bool take(const Incoming& message);
  [[nodiscard]] bool is_whole() const { return last_ && bytes_.size() == last_->total_bytes; }
  // Whether all of the state has come within this time, or nothing more will.
  bool has_come(std::chrono::milliseconds timeout);

  ServerRing ring_;
  bool alone_;
  std::size_t most_bytes_;
  std::deque<Incoming> waiting_;  // for receive()
  std::mutex mutex_;
  std::condition_variable changed_;
  Bytes bytes_;
  std::optional<ServerPiece> last_;  // of what is coming, or is there
  std::exception_ptr failure_;
};

}  // namespace tersewire::trainer
