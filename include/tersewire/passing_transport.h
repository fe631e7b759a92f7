// A base for transports that wrap another: a layer between a node and its end of the network.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tersewire/transport.h"

namespace tersewire {

// Passes every call on to another end. A derived class overrides what it does differently; one that
// delivers messages later than they arrive must also override on_arrival(), and may return null.
// Threads and exceptions are the other end's.
class PassingTransport : public Transport {
 public:
  // `end` must outlive it.
  explicit PassingTransport(Transport& end) : end_(end) {}

  [[nodiscard]] int rank() const noexcept override { return end_.rank(); }
  [[nodiscard]] int size() const noexcept override { return end_.size(); }
  void send(int to, SharedBytes bytes) override { end_.send(to, std::move(bytes)); }
  std::optional<Incoming> receive(std::chrono::milliseconds timeout) override {
    return end_.receive(timeout);
  }
  std::unique_ptr<ArrivalCalls> on_arrival(std::function<void()> arrived) override {
    return end_.on_arrival(std::move(arrived));
  }
  void abort(const std::string& reason) noexcept override { end_.abort(reason); }
  [[nodiscard]] Peer peer(int rank) const override { return end_.peer(rank); }
  void expect_at_most(std::size_t bytes) override { end_.expect_at_most(bytes); }
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept override { return end_.bytes_sent(); }
  [[nodiscard]] std::uint64_t bytes_received() const noexcept override {
    return end_.bytes_received();
  }

 protected:
  [[nodiscard]] Transport& end() const { return end_; }

  // The other end's next message that `keeps` does not take for itself, or nothing if none has
  // arrived within `timeout`. `keeps` may move a message only if it returns true.
  std::optional<Incoming> receive_unkept(std::chrono::milliseconds timeout,
                                         const std::function<bool(Incoming&)>& keeps) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point last = Clock::now() + timeout;
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(last - Clock::now());
      auto message = end_.receive(std::max(left, std::chrono::milliseconds(0)));
      if (!message || !keeps(*message)) return message;
    }
  }

 private:
  Transport& end_;
};

}  // namespace tersewire
