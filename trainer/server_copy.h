// In an elastic job whose servers own the model, each on a worker's node: what a node's server has
// at a state is kept by the next node, too, so that a node that dies takes nothing of the model
// with it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>

#include "tersewire/passing_transport.h"
#include "trainer/checkpoint.h"

namespace tersewire::trainer {

// A piece of what a server has; its bytes follow.
struct ServerPiece {
  static constexpr std::uint64_t kKind = 0x3153565245535254;  // "TRSERVS1"

  std::uint64_t step = 0;
  std::uint64_t total_bytes = 0;
  std::uint64_t begin = 0;
};

// A node's end of the network: sends what its server has to the next node, and keeps what comes of
// the one before, one state at a time, apart from all else. One thread at a time receives.
class ServerCopyEnd final : public PassingTransport {
 public:
  // `end` must outlive it. `most_bytes`: what the arrays of the server before can take.
  ServerCopyEnd(Transport& end, std::size_t most_bytes)
      : PassingTransport(end), most_bytes_(most_bytes) {}

  // Never one of those pieces. Throws kDataLoss for one that makes no sense.
  std::optional<Incoming> receive(std::chrono::milliseconds timeout) override;
  void expect_at_most(std::size_t bytes) override;

  // For the thread beside the one that receives: sends what is the server's of this node's state,
  // and waits for the same of the node before. Throws what receiving failed with, and like
  // await().
  NodeCheckpoint::Arrays swap(const NodeCheckpoint& own, const WaitLimits& limits);

 private:
  [[nodiscard]] int before() const { return (rank() + size() - 1) % size(); }
  // Whether the message was a piece.
  bool take(const Incoming& message);

  std::size_t most_bytes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Bytes bytes_;
  std::optional<ServerPiece> last_;  // of what is coming, or is there
  std::exception_ptr failure_;
};

}  // namespace tersewire::trainer
