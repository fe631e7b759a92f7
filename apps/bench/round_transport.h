// Several jobs, one after the other, over the same network.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tersewire/passing_transport.h"

namespace tersewire::bench {

// A node's end that keeps the messages of one job apart from those of the next. Between jobs all
// nodes tell each other something, and what arrives from a node afterwards belongs to its next job.
// One thread at a time, except in await().
class RoundTransport final : public PassingTransport {
 public:
  // `end` must outlive it.
  explicit RoundTransport(Transport& end);

  // Sends `text` to every node and waits for theirs, by rank, its own among them. What is left of
  // messages sent to this node before is dropped. Throws like receive_within().
  std::vector<std::string> meet(const std::string& text, const WaitLimits& limits);

  // Within a job, in which another thread receives: waits until the nodes below `nodes`, this one
  // among them, have all come here as often. Throws kDeadlineExceeded, naming who is silent.
  void await(int nodes, const WaitLimits& limits);

  void send(int to, SharedBytes bytes) override;
  std::optional<Incoming> receive(std::chrono::milliseconds timeout) override;
  // Without what nodes tell each other.
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept override { return sent_; }
  [[nodiscard]] std::uint64_t bytes_received() const noexcept override { return received_; }

 private:
  using Texts = std::deque<std::string>;

  // Whether the message was another than of this round.
  bool keep(Incoming& message);

  std::deque<Incoming> of_this_round_;
  std::deque<Incoming> of_the_next_;
  std::vector<Texts> told_;  // by rank, of meetings to come
  std::mutex mutex_;         // of what follows
  std::condition_variable came_;
  std::vector<int> here_;  // by rank: how often it has come more often than this node
  std::atomic<std::uint64_t> sent_{0};
  std::atomic<std::uint64_t> received_{0};
};

}  // namespace tersewire::bench
