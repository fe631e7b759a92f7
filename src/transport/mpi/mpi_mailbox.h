// Where an application's threads and the communication thread of the mpi transport meet. It knows
// nothing of MPI. Every function may be called from any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

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

// Said to a rank about the bytes of messages, since the start, in either direction.
struct Tally {
  int to;
  std::uint64_t bytes;
};

// What the communication thread is to do.
struct Orders {
  std::vector<Outgoing> messages;
  std::vector<Tally> received;       // from that rank, by the application here
  std::vector<Tally> asks;           // to hear that of so many bytes that went there
  std::optional<std::string> abort;  // the reason to tell every other rank
  bool leave = false;

  [[nodiscard]] bool any() const {
    return !messages.empty() || !received.empty() || !asks.empty() || abort || leave;
  }
};

// What goes from one rank to another is bounded: a sender counts what was received there, and waits
// where more than `queue_bytes` are not. The receiver tells it now and then, and at once where it
// is asked to, as by one that waits.
class Mailbox {
 public:
  explicit Mailbox(std::uint64_t queue_bytes) : queue_bytes_(queue_bytes) {}

  // For the application. Those that may throw throw the failure, where there is one.
  void post(Outgoing message);  // waits for room
  void post_to_self(Incoming message);
  std::optional<Incoming> take(std::chrono::milliseconds timeout);
  void order_to_leave();
  // Waits until left() was called; false where the communication thread has asked for no orders for
  // `limit`.
  [[nodiscard]] bool wait_until_left(std::chrono::milliseconds limit);
  [[nodiscard]] Peer peer(int rank) const;
  void set_limits(const TransportLimits& limits);

  // For the communication thread. Those that hear from a rank say whether it may say that.
  void join(MpiPlace place);
  [[nodiscard]] bool admit(int from, std::uint64_t message_bytes);
  [[nodiscard]] bool hear_received(int from, std::uint64_t bytes);
  void hear_ask(int from, std::uint64_t bytes);
  [[nodiscard]] TransportLimits limits() const;
  // A sign of life of a rank, and that it has left.
  void hear(int rank);
  void see_off(int rank);
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

  // Bytes of messages since the start.
  struct Flow {
    std::uint64_t sent = 0;          // to it
    std::uint64_t acknowledged = 0;  // of these, as received there
    std::uint64_t begun = 0;         // from it, those that have begun to arrive included
    std::uint64_t arrived = 0;       // whole, in the inbox or beyond
    std::uint64_t received = 0;      // by the application, or let past the bound
    std::uint64_t told = 0;          // of these
    std::uint64_t asked = 0;         // up to where it wants to be told at once
  };

  void check_not_failed() const;
  void wait_for_room(std::unique_lock<std::mutex>& lock, int to, std::uint64_t bytes);
  void take_in(Flow& flow, int from);

  mutable std::mutex mutex_;
  std::condition_variable arrived_or_failed_;
  std::condition_variable ordered_;
  std::condition_variable left_condition_;
  std::condition_variable room_or_failed_;
  std::deque<Incoming> inbox_;
  Orders orders_;
  std::optional<ErrorCode> failure_;
  std::string sentence_;
  MpiPlace place_{};
  std::vector<Peer> peers_;  // by rank
  std::vector<Flow> flows_;  // by rank
  std::uint64_t queue_bytes_;
  TransportLimits limits_;
  int waiting_to_send_ = 0;                    // threads of the application
  Clock::time_point asked_at_ = Clock::now();  // for orders
  bool left_ = false;
};

}  // namespace tersewire
