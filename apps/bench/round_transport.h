// Several jobs, one after the other, over the same network.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "tersewire/transport.h"

namespace tersewire::bench {

// A node's end that keeps the messages of one job apart from those of the next. Between jobs all
// nodes tell each other something, and what arrives from a node afterwards belongs to its next job.
// One thread at a time.
class RoundTransport final : public Transport {
 public:
  // `end` must outlive it.
  explicit RoundTransport(Transport& end);

  // Sends `text` to every node and waits for theirs, by rank, its own among them. What is left of
  // messages sent to this node before is dropped. Throws like receive_within().
  std::vector<std::string> meet(const std::string& text, const WaitLimits& limits);

  [[nodiscard]] int rank() const noexcept override { return end_.rank(); }
  [[nodiscard]] int size() const noexcept override { return end_.size(); }
  void send(int to, SharedBytes bytes) override { end_.send(to, std::move(bytes)); }
  std::optional<Incoming> receive(std::chrono::milliseconds timeout) override;
  [[nodiscard]] Peer peer(int rank) const override { return end_.peer(rank); }
  void expect_at_most(std::size_t bytes) override { end_.expect_at_most(bytes); }
  void abort(const std::string& reason) noexcept override { end_.abort(reason); }
  // Without the texts.
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept override {
    return end_.bytes_sent() - told_bytes_sent_;
  }
  [[nodiscard]] std::uint64_t bytes_received() const noexcept override {
    return end_.bytes_received() - told_bytes_received_;
  }

 private:
  using Texts = std::deque<std::string>;

  void sort_in(Incoming message);

  Transport& end_;
  std::deque<Incoming> of_this_round_;
  std::deque<Incoming> of_the_next_;
  std::vector<Texts> told_;  // by rank, of meetings to come
  std::atomic<std::uint64_t> told_bytes_sent_{0};
  std::atomic<std::uint64_t> told_bytes_received_{0};
};

}  // namespace tersewire::bench
