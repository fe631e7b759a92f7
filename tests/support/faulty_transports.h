// What networks and peers do to a job: transports around good ones.
#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "tersewire/passing_transport.h"

namespace tersewire {

// Passes everything on to an end of its own, but that it may have something: what is based on it
// gives some messages late or not at all, and its nodes receive in threads, as over most networks.
class OwningTransport : public PassingTransport {
 public:
  explicit OwningTransport(std::unique_ptr<Transport> inner)
      : PassingTransport(*inner), inner_(std::move(inner)) {}

  std::unique_ptr<ArrivalCalls> on_arrival(std::function<void()> /*arrived*/) override {
    return nullptr;
  }

 private:
  std::unique_ptr<Transport> inner_;
};

// Each message takes up to 300 us longer, at random: those of one sender stay in their order, those
// of different senders overtake each other.
class DelayingTransport final : public OwningTransport {
 public:
  DelayingTransport(std::unique_ptr<Transport> inner, unsigned seed)
      : OwningTransport(std::move(inner)), random_(seed) {}

  std::optional<Incoming> receive(std::chrono::milliseconds timeout) override {
    const auto end = Clock::now() + timeout;
    for (;;) {
      while (auto incoming = OwningTransport::receive(std::chrono::milliseconds(0))) {
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
class LostTransport final : public OwningTransport {
 public:
  LostTransport(std::unique_ptr<Transport> inner, int messages, Connection& connection)
      : OwningTransport(std::move(inner)), messages_left_(messages), connection_(connection) {}

  void send(int to, SharedBytes bytes) override {
    if (messages_left_-- > 0) return OwningTransport::send(to, std::move(bytes));
    connection_.cut();
  }
  std::optional<Incoming> receive(std::chrono::milliseconds timeout) override {
    if (!connection_.is_cut()) return OwningTransport::receive(timeout);
    std::this_thread::sleep_for(timeout);
    return std::nullopt;
  }
  void abort(const std::string& reason) noexcept override {
    if (!connection_.is_cut()) OwningTransport::abort(reason);
  }
  [[nodiscard]] Peer peer(int other) const override {
    const Peer known = OwningTransport::peer(other);
    return other == rank() ? known : connection_.as_heard(known);
  }

 private:
  std::atomic<int> messages_left_;
  Connection& connection_;
};

// The end of a node that is not cut off, which no longer hears `lost` when that one is.
class FarTransport final : public OwningTransport {
 public:
  FarTransport(std::unique_ptr<Transport> inner, int lost, const Connection& connection)
      : OwningTransport(std::move(inner)), lost_(lost), connection_(connection) {}

  [[nodiscard]] Peer peer(int other) const override {
    const Peer known = OwningTransport::peer(other);
    return other == lost_ ? connection_.as_heard(known) : known;
  }

 private:
  int lost_;
  const Connection& connection_;
};

// In place of one message this node sends what `spoil` makes of all so far, itself the last.
class SpoilingTransport final : public OwningTransport {
 public:
  using Messages = std::vector<SharedBytes>;
  using Spoil = std::function<Messages(const Messages& sent)>;

  SpoilingTransport(std::unique_ptr<Transport> inner, std::size_t message, Spoil spoil)
      : OwningTransport(std::move(inner)), message_(message), spoil_(std::move(spoil)) {}

  void send(int to, SharedBytes bytes) override {
    Messages messages{bytes};
    {
      const std::lock_guard lock(mutex_);
      sent_.push_back(std::move(bytes));
      if (sent_.size() == message_) messages = spoil_(sent_);
    }
    for (SharedBytes& message : messages) OwningTransport::send(to, std::move(message));
  }

 private:
  std::mutex mutex_;
  std::size_t message_;
  Spoil spoil_;
  Messages sent_;
};

}  // namespace tersewire
