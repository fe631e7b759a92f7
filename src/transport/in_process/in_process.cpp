// Nodes that are threads of one process: an inbox each, a lock each.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>

#include "errors.h"
#include "tersewire/transport.h"

namespace tersewire {
namespace {

struct Inbox {
  std::mutex mutex;
  std::condition_variable arrived_or_aborted;
  std::deque<Incoming> messages;
};

// What all nodes share.
struct Network {
  explicit Network(std::size_t nodes) : inboxes(nodes) {}

  void check_not_aborted() {
    if (!aborted.load()) return;
    const std::lock_guard lock(reason_mutex);
    throw Error(ErrorCode::kAborted, reason);
  }

  std::vector<Inbox> inboxes;
  std::atomic<bool> aborted{false};
  std::mutex reason_mutex;
  std::string reason;
};

class InProcessTransport final : public Transport {
 public:
  InProcessTransport(int rank, std::shared_ptr<Network> network)
      : rank_(rank), network_(std::move(network)) {}

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override {
    return static_cast<int>(network_->inboxes.size());
  }
  void send(int to, SharedBytes bytes) override;
  std::optional<Incoming> receive(std::chrono::milliseconds timeout) override;
  void abort(const std::string& reason) noexcept override;
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept override { return sent_.load(); }
  [[nodiscard]] std::uint64_t bytes_received() const noexcept override { return received_.load(); }

 private:
  int rank_;
  std::shared_ptr<Network> network_;
  std::atomic<std::uint64_t> sent_{0};
  std::atomic<std::uint64_t> received_{0};
};

void InProcessTransport::send(int to, SharedBytes bytes) {
  network_->check_not_aborted();
  if (to < 0 || to >= size()) {
    fail(ErrorCode::kInvalidArgument, "rank {} cannot send to rank {}: the job has ranks 0 to {}",
         rank_, to, size() - 1);
  }
  sent_ += bytes->size();
  Inbox& inbox = network_->inboxes[static_cast<std::size_t>(to)];
  {
    const std::lock_guard lock(inbox.mutex);
    inbox.messages.push_back({.from = rank_, .bytes = std::move(bytes)});
  }
  inbox.arrived_or_aborted.notify_one();
}

std::optional<Incoming> InProcessTransport::receive(std::chrono::milliseconds timeout) {
  Inbox& inbox = network_->inboxes[static_cast<std::size_t>(rank_)];
  std::unique_lock lock(inbox.mutex);
  inbox.arrived_or_aborted.wait_for(
      lock, timeout, [&] { return !inbox.messages.empty() || network_->aborted.load(); });
  network_->check_not_aborted();
  if (inbox.messages.empty()) return std::nullopt;
  Incoming message = std::move(inbox.messages.front());
  inbox.messages.pop_front();
  received_ += message.bytes->size();
  return message;
}

void InProcessTransport::abort(const std::string& reason) noexcept {
  {
    const std::lock_guard lock(network_->reason_mutex);
    if (network_->aborted.load()) return;
    try {
      network_->reason = reason;
    } catch (...) {
      // Out of memory for the sentence: the nodes still have to end.
    }
    network_->aborted = true;
  }
  for (Inbox& inbox : network_->inboxes) {
    // Taken and released, so that no node is between its check and its wait.
    { const std::lock_guard lock(inbox.mutex); }
    inbox.arrived_or_aborted.notify_all();
  }
}

}  // namespace

std::vector<std::unique_ptr<Transport>> make_in_process_network(int nodes) {
  if (nodes < 1) {
    fail(ErrorCode::kInvalidArgument, "a network of {} nodes carries nothing; use at least 1",
         nodes);
  }
  auto network = std::make_shared<Network>(static_cast<std::size_t>(nodes));
  std::vector<std::unique_ptr<Transport>> ends;
  for (int rank = 0; rank < nodes; ++rank) {
    ends.push_back(std::make_unique<InProcessTransport>(rank, network));
  }
  return ends;
}

}  // namespace tersewire
