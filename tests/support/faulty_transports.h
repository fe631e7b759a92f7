// What networks and peers do to a job: transports around good ones.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "tersewire/transport.h"

namespace tersewire {

// Passes everything on.
class PassingTransport : public Transport {
 public:
  explicit PassingTransport(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}

  [[nodiscard]] int rank() const noexcept override { return inner_->rank(); }
  [[nodiscard]] int size() const noexcept override { return inner_->size(); }
  void send(int to, SharedBytes bytes) override { inner_->send(to, std::move(bytes)); }
  std::optional<Incoming> receive(std::chrono::milliseconds timeout) override {
    return inner_->receive(timeout);
  }
  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }
  [[nodiscard]] Peer peer(int rank) const override { return inner_->peer(rank); }
  void expect_at_most(std::size_t bytes) override { inner_->expect_at_most(bytes); }
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept override { return inner_->bytes_sent(); }
  [[nodiscard]] std::uint64_t bytes_received() const noexcept override {
    return inner_->bytes_received();
  }

 private:
  std::unique_ptr<Transport> inner_;
};

// Each message takes up to 300 us longer, at random: those of one sender stay in their order, those
// of different senders overtake each other.
class DelayingTransport final : public PassingTransport {
 public:
  DelayingTransport(std::unique_ptr<Transport> inner, unsigned seed)
      : PassingTransport(std::move(inner)), random_(seed) {}

  std::optional<Incoming> receive(std::chrono::milliseconds timeout) override {
    const auto end = Clock::now() + timeout;
    for (;;) {
      while (auto incoming = PassingTransport::receive(std::chrono::milliseconds(0))) {
        delay(std::move(*incoming));
      }
      if (auto message = take_due()) return message;
      if (Clock::now() >= end) return std::nullopt;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  void delay(Incoming message) {
    const std::lock_guard lock(mutex_);
    Clock::time_point& last = last_due_[message.from];
    last = std::max(last, Clock::now() + std::chrono::microseconds(random_() % 300));
    delayed_.emplace(last, std::move(message));
  }
  std::optional<Incoming> take_due() {
    const std::lock_guard lock(mutex_);
    if (delayed_.empty() || delayed_.begin()->first > Clock::now()) return std::nullopt;
    return std::move(delayed_.extract(delayed_.begin()).mapped());
  }

  std::mutex mutex_;
  std::mt19937 random_;
  std::map<int, Clock::time_point> last_due_;  // by sender
  std::multimap<Clock::time_point, Incoming> delayed_;
};

// Between one node and the others: whether it is cut, and since when.
class Connection {
 public:
  void cut() {
    const std::lock_guard lock(mutex_);
    if (!cut_at_) cut_at_ = std::chrono::steady_clock::now();
  }
  [[nodiscard]] bool is_cut() const { return cut_at().has_value(); }
  // What is known of who is at the other end.
  [[nodiscard]] Peer as_heard(Peer peer) const {
    if (const auto at = cut_at()) peer.heard = std::min(peer.heard, *at);
    return peer;
  }

 private:
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> cut_at() const {
    const std::lock_guard lock(mutex_);
    return cut_at_;
  }

  mutable std::mutex mutex_;
  std::optional<std::chrono::steady_clock::time_point> cut_at_;
};

// After some messages this node is cut off: nothing gets out, signs of life included, and nothing
// in.
class LostTransport final : public PassingTransport {
 public:
  LostTransport(std::unique_ptr<Transport> inner, int messages, Connection& connection)
      : PassingTransport(std::move(inner)), messages_left_(messages), connection_(connection) {}

  void send(int to, SharedBytes bytes) override {
    if (messages_left_-- > 0) return PassingTransport::send(to, std::move(bytes));
    connection_.cut();
  }
  std::optional<Incoming> receive(std::chrono::milliseconds timeout) override {
    if (!connection_.is_cut()) return PassingTransport::receive(timeout);
    std::this_thread::sleep_for(timeout);
    return std::nullopt;
  }
  void abort(const std::string& reason) noexcept override {
    if (!connection_.is_cut()) PassingTransport::abort(reason);
  }
  [[nodiscard]] Peer peer(int other) const override {
    const Peer known = PassingTransport::peer(other);
    return other == rank() ? known : connection_.as_heard(known);
  }

 private:
  std::atomic<int> messages_left_;
  Connection& connection_;
};

// The end of a node that is not cut off, which no longer hears `lost` when that one is.
class FarTransport final : public PassingTransport {
 public:
  FarTransport(std::unique_ptr<Transport> inner, int lost, const Connection& connection)
      : PassingTransport(std::move(inner)), lost_(lost), connection_(connection) {}

  [[nodiscard]] Peer peer(int other) const override {
    const Peer known = PassingTransport::peer(other);
    return other == lost_ ? connection_.as_heard(known) : known;
  }

 private:
  int lost_;
  const Connection& connection_;
};

// In place of one message this node sends what `spoil` makes of all so far, itself the last.
class SpoilingTransport final : public PassingTransport {
 public:
  using Messages = std::vector<SharedBytes>;
  using Spoil = std::function<Messages(const Messages& sent)>;

  SpoilingTransport(std::unique_ptr<Transport> inner, std::size_t message, Spoil spoil)
      : PassingTransport(std::move(inner)), message_(message), spoil_(std::move(spoil)) {}

  void send(int to, SharedBytes bytes) override {
    Messages messages{bytes};
    {
      const std::lock_guard lock(mutex_);
      sent_.push_back(std::move(bytes));
      if (sent_.size() == message_) messages = spoil_(sent_);
    }
    for (SharedBytes& message : messages) PassingTransport::send(to, std::move(message));
  }

 private:
  std::mutex mutex_;
  std::size_t message_;
  Spoil spoil_;
  Messages sent_;
};

}  // namespace tersewire
