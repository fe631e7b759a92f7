// Where an application's threads and the communication thread of the mpi transport meet. It knows
// nothing of MPI. Every function may be called from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ends.h"
#include "tersewire/error.h"
#include "tersewire/transport.h"

namespace tersewire {

struct MpiPlace {
  int rank;
  int size;
};

struct Outgoing {
  int to;
  SharedBytes bytes;
};

// What the communication thread is to do.
struct Orders {
  std::vector<Outgoing> messages;
  std::optional<std::string> abort;  // the reason to tell every other rank
  bool leave = false;

  [[nodiscard]] bool any() const { return !messages.empty() || abort || leave; }
};

class Mailbox {
 public:
  // For the application. Those that may throw throw the failure, where there is one.
  void post(Outgoing message);
  void post_to_self(Incoming message);
  std::optional<Incoming> take(std::chrono::milliseconds timeout);
  void order_to_leave();
  // Waits until left() was called; false where the communication thread has asked for no orders for
  // `limit`.
  [[nodiscard]] bool wait_until_left(std::chrono::milliseconds limit);
  [[nodiscard]] Peer peer(int rank) const;
  void expect_at_most(std::size_t bytes) { longest_message_ = bytes; }

  // For the communication thread.
  [[nodiscard]] std::size_t longest_message() const { return longest_message_; }
  void join(MpiPlace place);
  // A sign of life of a rank, and that it has left.
  void hear(int rank);
  void see_off(int rank);
  // So many bytes of messages are with a rank.
  void sent(int to, std::size_t bytes);
  // Nobody could be heard for so long.
  void excuse(std::chrono::nanoseconds deafness);
  // Whether a rank that has not left has been silent for so long.
  [[nodiscard]] bool misses_one(std::chrono::milliseconds limit) const;
  void deliver(Incoming message);
  // The orders since the last call; waits for one, at most `pause`.
  Orders collect(std::chrono::nanoseconds pause);
  void left();

  // For both: every call of the application throws this failure from now on. The first one stays;
  // where this is it, and `tell_others`, the other ranks are to hear its sentence.
  void fail(ErrorCode code, const std::string& sentence, bool tell_others) noexcept;
  [[nodiscard]] bool failed() const;

 private:
  using Clock = std::chrono::steady_clock;

  void check_not_failed() const;

  mutable std::mutex mutex_;
  std::condition_variable arrived_or_failed_;
  std::condition_variable ordered_;
  std::condition_variable left_condition_;
  std::deque<Incoming> inbox_;
  Orders orders_;
  std::optional<ErrorCode> failure_;
  std::string sentence_;
  MpiPlace place_{};
  std::vector<Peer> peers_;                    // by rank
  Clock::time_point asked_at_ = Clock::now();  // for orders
  bool left_ = false;
  std::atomic<std::size_t> longest_message_{kUnknownLongest};
};

}  // namespace tersewire
