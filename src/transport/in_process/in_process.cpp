// Nodes that are threads of one process: an inbox each, a lock each. Where links are modelled, a
// thread of the network's own puts messages into the inboxes when they would have arrived. Threads
// that all nodes share make the calls of on_arrival().
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "dispatcher.h"
#include "ends.h"
#include "errors.h"
#include "links.h"
#include "tersewire/transport.h"

namespace tersewire {
namespace {

constexpr const char* kHasLeft = "has left the network";

struct Inbox {
  std::mutex mutex;
  std::condition_variable arrived_or_aborted;
  std::deque<Incoming> messages;
  std::map<int, std::size_t> waiting;  // bytes by sender, of messages on their way as well

  // Messages are expected when they are sent.
  void expect(const Incoming& message) {
    const std::lock_guard lock(mutex);
    waiting[message.from] += message.bytes->size();
  }
  void put(Incoming message) {
    {
      const std::lock_guard lock(mutex);
      messages.push_back(std::move(message));
    }
    arrived_or_aborted.notify_one();
  }
};

// Carries messages over modelled links.
class Carrier {
 public:
  using Deliver = std::function<void(int to, Incoming message)>;

  Carrier(std::size_t nodes, const ModelledLinks& links, Deliver deliver)
      : deliver_(std::move(deliver)), links_(static_cast<int>(nodes), links) {
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

  Deliver deliver_;
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
      deliver_(to, std::move(message));
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
  Network(int nodes, const ModelledLinks& links)
      : inboxes(static_cast<std::size_t>(nodes)),
        left(static_cast<std::size_t>(nodes)),
        dispatcher(static_cast<std::size_t>(nodes)) {
    if (links.bits_per_second == 0 && !LinkFaults(links).any()) return;
    carrier.emplace(inboxes.size(), links,
                    [this](int to, Incoming message) { deliver(to, std::move(message)); });
  }

  void deliver(int to, Incoming message) {
    const auto node = static_cast<std::size_t>(to);
    inboxes[node].put(std::move(message));
    dispatcher.call(node);
  }

  void check_not_aborted() {
    if (!aborted.load()) return;
    const std::lock_guard lock(reason_mutex);
    throw Error(ErrorCode::kAborted, reason);
  }

  std::vector<Inbox> inboxes;
  std::vector<std::atomic<bool>> left;  // by rank
  std::atomic<bool> aborted{false};
  std::mutex reason_mutex;
  std::string reason;
  Dispatcher dispatcher;
  std::optional<Carrier> carrier;  // none: messages arrive when they are sent
};

class NodeCalls final : public ArrivalCalls {
 public:
  NodeCalls(std::shared_ptr<Network> network, int rank, std::function<void()> arrived)
      : network_(std::move(network)), node_(static_cast<std::size_t>(rank)) {
    network_->dispatcher.set(node_, std::move(arrived));
  }
  ~NodeCalls() override { network_->dispatcher.clear(node_); }
  NodeCalls(const NodeCalls&) = delete;
  NodeCalls& operator=(const NodeCalls&) = delete;

  void call_again() override { network_->dispatcher.call(node_); }

 private:
  std::shared_ptr<Network> network_;
  std::size_t node_;
};

class InProcessTransport final : public Transport {
 public:
  InProcessTransport(int rank, std::shared_ptr<Network> network)
      : rank_(rank), network_(std::move(network)) {}
  ~InProcessTransport() override { network_->left[static_cast<std::size_t>(rank_)] = true; }
  InProcessTransport(const InProcessTransport&) = delete;
  InProcessTransport& operator=(const InProcessTransport&) = delete;

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override {
    return static_cast<int>(network_->inboxes.size());
  }
  void send(int to, SharedBytes bytes) override;
  std::optional<Incoming> receive(std::chrono::milliseconds timeout) override;
  std::unique_ptr<ArrivalCalls> on_arrival(std::function<void()> arrived) override {
    return std::make_unique<NodeCalls>(network_, rank_, std::move(arrived));
  }
  void abort(const std::string& reason) noexcept override;
  [[nodiscard]] Peer peer(int rank) const override {
    network_->check_not_aborted();
    Peer peer;
    if (rank == rank_) return peer;
    peer.waiting = waiting(rank_, rank);
    // What it sent this node may still be on its way.
    if (network_->left[static_cast<std::size_t>(rank)] && waiting(rank, rank_) == 0) {
      peer.gone = kHasLeft;
    }
    return peer;
  }
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept override { return sent_.load(); }
  [[nodiscard]] std::uint64_t bytes_received() const noexcept override { return received_.load(); }

 private:
  [[nodiscard]] std::size_t waiting(int from, int to) const {
    Inbox& inbox = network_->inboxes[static_cast<std::size_t>(to)];
    const std::lock_guard lock(inbox.mutex);
    const auto found = inbox.waiting.find(from);
    return found == inbox.waiting.end() ? 0 : found->second;
  }

  int rank_;
  std::shared_ptr<Network> network_;
  std::atomic<std::uint64_t> sent_{0};
  std::atomic<std::uint64_t> received_{0};
};

void InProcessTransport::send(int to, SharedBytes bytes) {
  network_->check_not_aborted();
  check_sent(rank_, to, size(), bytes);
  sent_ += bytes->size();
  Incoming message{.from = rank_, .bytes = std::move(bytes), .own = to == rank_};
  Inbox& inbox = network_->inboxes[static_cast<std::size_t>(to)];
  inbox.expect(message);
  if (network_->carrier && to != rank_) {
    network_->carrier->send(to, std::move(message));
  } else {
    network_->deliver(to, std::move(message));
  }
}

std::optional<Incoming> InProcessTransport::receive(std::chrono::milliseconds timeout) {
  Inbox& inbox = network_->inboxes[static_cast<std::size_t>(rank_)];
  std::unique_lock lock(inbox.mutex);
  wait_at_most(inbox.arrived_or_aborted, lock, timeout,
               [&] { return !inbox.messages.empty() || network_->aborted.load(); });
  network_->check_not_aborted();
  std::optional<Incoming> message = take_first(inbox.messages);
  if (!message) return std::nullopt;
  inbox.waiting[message->from] -= message->bytes->size();
  received_ += message->bytes->size();
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
  network_->dispatcher.call_all();
}

void check_links(const ModelledLinks& links) {
  constexpr double kLeastRate = 1000;
  constexpr double kMostSeconds = 60;
  constexpr double kLeastLoss = 1e-6;
  constexpr double kMostLoss = 0.5;
  const auto check = [](double value, bool fits, const char* refusal) {
    if (!fits || !std::isfinite(value)) {
      fail(ErrorCode::kInvalidArgument, fmt::runtime(refusal), value);
    }
  };
  check(links.bits_per_second, links.bits_per_second == 0 || links.bits_per_second >= kLeastRate,
        "links of {} bit/s cannot be modelled; use at least 1000, or 0 for no limit");
  check(links.delay_seconds, links.delay_seconds >= 0 && links.delay_seconds <= kMostSeconds,
        "a delay of {} s cannot be modelled; use 0 to 60 s");
  check(links.jitter_seconds, links.jitter_seconds >= 0 && links.jitter_seconds <= kMostSeconds,
        "a jitter of {} s cannot be modelled; use 0 to 60 s");
  check(links.loss, links.loss == 0 || (links.loss >= kLeastLoss && links.loss <= kMostLoss),
        "a loss of {} of the frames cannot be modelled; use 0, or a share from 1e-6 to 0.5");
}

}  // namespace

std::vector<std::unique_ptr<Transport>> make_in_process_network(int nodes,
                                                                const ModelledLinks& links) {
  if (nodes < 1) {
    fail(ErrorCode::kInvalidArgument, "a network of {} nodes carries nothing; use at least 1",
         nodes);
  }
  check_links(links);
  auto network = std::make_shared<Network>(nodes, links);
  std::vector<std::unique_ptr<Transport>> ends;
  for (int rank = 0; rank < nodes; ++rank) {
    ends.push_back(std::make_unique<InProcessTransport>(rank, network));
  }
  return ends;
}

}  // namespace tersewire
