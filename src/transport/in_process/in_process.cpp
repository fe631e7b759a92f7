// Nodes that are threads of one process: an inbox each, a lock each. Where links are limited, a
// thread of the network's own puts messages into the inboxes when they would have arrived.
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "errors.h"
#include "limit_checks.h"
#include "links.h"
#include "tersewire/transport.h"

namespace tersewire {
namespace {

// How often a node that waits for room looks whether it has waited for too long.
constexpr std::chrono::milliseconds kRoomLook(10);

struct Inbox {
  std::mutex mutex;
  std::condition_variable arrived_or_aborted;
  std::condition_variable room_or_aborted;
  std::deque<Incoming> messages;
  std::map<int, std::uint64_t> unreceived;  // bytes sent, those on their way included, by sender
  int waiting_to_send = 0;                  // threads of this node, for room elsewhere
  bool closed = false;                      // the node has left

  void put(Incoming message) {
    {
      const std::lock_guard lock(mutex);
      if (closed) return;
      messages.push_back(std::move(message));
    }
    arrived_or_aborted.notify_one();
  }
};

// Carries messages over links of a limited rate into the inboxes.
class Carrier {
 public:
  Carrier(std::vector<Inbox>& inboxes, double bits_per_second)
      : inboxes_(inboxes), links_(static_cast<int>(inboxes.size()), bits_per_second) {
    thread_ = std::thread([this] { run(); });
  }
  ~Carrier() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    sent_or_stopping_.notify_one();
    thread_.join();
  }

  void send(int to, Incoming message) {
    {
      const std::lock_guard lock(mutex_);
      links_.send(to, std::move(message), std::chrono::steady_clock::now());
    }
    sent_or_stopping_.notify_one();
  }

 private:
  void run();

  std::vector<Inbox>& inboxes_;
  std::mutex mutex_;
  std::condition_variable sent_or_stopping_;
  Links links_;
  bool stopping_ = false;
  std::thread thread_;
};

void Carrier::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    for (auto& [to, message] : links_.advance(std::chrono::steady_clock::now())) {
      inboxes_[static_cast<std::size_t>(to)].put(std::move(message));
    }
    const Links::Time next = links_.next_event();
    if (next == Links::Time::max()) {
      sent_or_stopping_.wait(lock);
    } else {
      sent_or_stopping_.wait_until(lock, next);
    }
  }
}

// What all nodes share.
struct Network {
  Network(int nodes, double bits_per_second, std::uint64_t queue)
      : inboxes(static_cast<std::size_t>(nodes)), queue_bytes(queue) {
    if (bits_per_second > 0) carrier.emplace(inboxes, bits_per_second);
  }

  void check_not_aborted() {
    if (!aborted.load()) return;
    const std::lock_guard lock(reason_mutex);
    throw Error(ErrorCode::kAborted, reason);
  }

  std::vector<Inbox> inboxes;
  std::uint64_t queue_bytes;
  std::atomic<bool> aborted{false};
  std::mutex reason_mutex;
  std::string reason;
  std::optional<Carrier> carrier;  // none: messages arrive when they are sent
};

// While it lives, senders need not wait for room at this node.
class TakingAll {
 public:
  explicit TakingAll(Inbox& inbox) : inbox_(inbox) {
    {
      const std::lock_guard lock(inbox_.mutex);
      ++inbox_.waiting_to_send;
    }
    inbox_.room_or_aborted.notify_all();
  }
  ~TakingAll() {
    const std::lock_guard lock(inbox_.mutex);
    --inbox_.waiting_to_send;
  }
  TakingAll(const TakingAll&) = delete;
  TakingAll& operator=(const TakingAll&) = delete;

 private:
  Inbox& inbox_;
};

class InProcessTransport final : public Transport {
 public:
  InProcessTransport(int rank, std::shared_ptr<Network> network)
      : rank_(rank), network_(std::move(network)) {}
  ~InProcessTransport() override;
  InProcessTransport(const InProcessTransport&) = delete;
  InProcessTransport& operator=(const InProcessTransport&) = delete;

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override {
    return static_cast<int>(network_->inboxes.size());
  }
  void send(int to, SharedBytes bytes) override;
  std::optional<Incoming> receive(std::chrono::milliseconds timeout) override;
  void abort(const std::string& reason) noexcept override;
  [[nodiscard]] Peer peer(int rank) const override;
  void set_limits(const TransportLimits& limits) override {
    const std::lock_guard lock(limits_mutex_);
    limits_ = limits;
  }
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept override { return sent_.load(); }
  [[nodiscard]] std::uint64_t bytes_received() const noexcept override { return received_.load(); }

 private:
  void wait_for_room(int to, std::uint64_t bytes);
  [[nodiscard]] TransportLimits limits() const {
    const std::lock_guard lock(limits_mutex_);
    return limits_;
  }
  [[nodiscard]] Inbox& inbox(int rank) const {
    return network_->inboxes[static_cast<std::size_t>(rank)];
  }

  int rank_;
  std::shared_ptr<Network> network_;
  mutable std::mutex limits_mutex_;
  TransportLimits limits_;
  std::atomic<std::uint64_t> sent_{0};
  std::atomic<std::uint64_t> received_{0};
};

InProcessTransport::~InProcessTransport() {
  Inbox& own = inbox(rank_);
  std::deque<Incoming> unread;
  {
    const std::lock_guard lock(own.mutex);
    own.closed = true;
    unread.swap(own.messages);
  }
  own.room_or_aborted.notify_all();
}

void InProcessTransport::send(int to, SharedBytes bytes) {
  network_->check_not_aborted();
  if (to < 0 || to >= size()) {
    fail(ErrorCode::kInvalidArgument, "rank {} cannot send to rank {}: the job has ranks 0 to {}",
         rank_, to, size() - 1);
  }
  if (to != rank_) wait_for_room(to, bytes->size());
  sent_ += bytes->size();
  Incoming message{.from = rank_, .bytes = std::move(bytes)};
  if (network_->carrier && to != rank_) {
    network_->carrier->send(to, std::move(message));
  } else {
    inbox(to).put(std::move(message));
  }
}

// Until these bytes, which are then underway, fit beside the others; they do alone.
void InProcessTransport::wait_for_room(int to, std::uint64_t bytes) {
  Inbox& theirs = inbox(to);
  const auto fits = [&] {
    const std::uint64_t unreceived = theirs.unreceived[rank_];
    return unreceived == 0 || unreceived + bytes <= network_->queue_bytes ||
           theirs.waiting_to_send > 0 || theirs.closed || network_->aborted.load();
  };
  {
    const std::lock_guard lock(theirs.mutex);
    if (fits()) {
      theirs.unreceived[rank_] += bytes;
      return;
    }
  }
  const TakingAll taking_all(inbox(rank_));
  {
    std::unique_lock lock(theirs.mutex);
    std::chrono::milliseconds waited{0};
    while (!theirs.room_or_aborted.wait_for(lock, kRoomLook, fits)) {
      waited += kRoomLook;
      if (waited >= limits().wait.progress_limit) fail_for_want_of_room(rank_, to, waited);
    }
    theirs.unreceived[rank_] += bytes;
  }
  network_->check_not_aborted();
}

std::optional<Incoming> InProcessTransport::receive(std::chrono::milliseconds timeout) {
  Inbox& own = inbox(rank_);
  std::unique_lock lock(own.mutex);
  own.arrived_or_aborted.wait_for(
      lock, timeout, [&] { return !own.messages.empty() || network_->aborted.load(); });
  network_->check_not_aborted();
  if (own.messages.empty()) return std::nullopt;
  Incoming message = std::move(own.messages.front());
  own.messages.pop_front();
  const std::size_t size = message.bytes->size();
  if (message.from != rank_) {
    own.unreceived[message.from] -= size;
    own.room_or_aborted.notify_all();
  }
  lock.unlock();
  check_may_arrive(message.from, size, limits());
  received_ += size;
  return message;
}

Peer InProcessTransport::peer(int rank) const {
  Inbox& theirs = inbox(rank);
  const std::lock_guard lock(theirs.mutex);
  Peer peer;
  if (theirs.closed) peer.gone = "has left the network";
  const auto unreceived = theirs.unreceived.find(rank_);
  if (unreceived != theirs.unreceived.end()) peer.unreceived_bytes = unreceived->second;
  return peer;
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
    inbox.room_or_aborted.notify_all();
  }
}

}  // namespace

std::vector<std::unique_ptr<Transport>> make_in_process_network(int nodes, double bits_per_second,
                                                                std::uint64_t queue_bytes) {
  if (nodes < 1) {
    fail(ErrorCode::kInvalidArgument, "a network of {} nodes carries nothing; use at least 1",
         nodes);
  }
  if (bits_per_second != 0 &&
      !(bits_per_second >= Links::kMinRate && std::isfinite(bits_per_second))) {
    fail(ErrorCode::kInvalidArgument,
         "links of {} bit/s cannot be modelled; use at least {}, or 0 for no limit",
         bits_per_second, Links::kMinRate);
  }
  auto network = std::make_shared<Network>(nodes, bits_per_second, queue_bytes);
  std::vector<std::unique_ptr<Transport>> ends;
  for (int rank = 0; rank < nodes; ++rank) {
    ends.push_back(std::make_unique<InProcessTransport>(rank, network));
  }
  return ends;
}

}  // namespace tersewire
