#include "python/shared_end.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tersewire/error.h"

namespace tersewire::python {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLook(1000);
constexpr milliseconds kShortLook(100);
// What is kept of one rank for a lane that takes nothing, beside its longest message: more than any
// job has on its way.
constexpr std::size_t kMostHeldBytes = std::size_t{64} << 20;

enum class LaneKind : std::uint32_t { kMessage = 0, kLeft = 1 };

// Before each message.
struct LaneHead {
  std::uint32_t lane;
  LaneKind kind;
};
constexpr std::size_t kLaneHeadBytes = 8;
static_assert(sizeof(LaneHead) == kLaneHeadBytes);

SharedBytes with_head(const LaneHead& head, ByteView body) {
  Bytes bytes(kLaneHeadBytes + body.size());
  std::memcpy(bytes.data(), &head, kLaneHeadBytes);
  std::ranges::copy(body, bytes.begin() + kLaneHeadBytes);
  return std::make_shared<const Bytes>(std::move(bytes));
}

template <typename... Values>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Values...> text, Values&&... values) {
  throw Error(code, fmt::format(text, std::forward<Values>(values)...));
}

}  // namespace

class Lane final : public Transport {
 public:
  Lane(std::shared_ptr<SharedEnd> end, std::uint32_t number, SharedEnd::Inbox& inbox)
      : end_(std::move(end)), network_(*end_->network_), number_(number), inbox_(inbox) {}
  ~Lane() override;
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  [[nodiscard]] int rank() const noexcept override { return network_.rank(); }
  [[nodiscard]] int size() const noexcept override { return network_.size(); }
  void send(int to, SharedBytes bytes) override;
  std::optional<Incoming> receive(milliseconds timeout) override;
  void abort(const std::string& reason) noexcept override { network_.abort(reason); }
  [[nodiscard]] Peer peer(int rank) const override;
  void expect_at_most(std::size_t bytes) override {
    const std::lock_guard lock(end_->mutex_);
    end_->expect(inbox_, bytes);
  }
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept override { return sent_; }
  [[nodiscard]] std::uint64_t bytes_received() const noexcept override { return received_; }

 private:
  [[nodiscard]] bool has_left(int rank) const {
    const std::lock_guard lock(end_->mutex_);
    return rank >= 0 && rank < size() && inbox_.left[static_cast<std::size_t>(rank)];
  }
  SharedBytes wrapped(const SharedBytes& bytes);

  const std::shared_ptr<SharedEnd> end_;
  Transport& network_;
  const std::uint32_t number_;
  SharedEnd::Inbox& inbox_;
  // What was sent last, and with its head: several receivers share a message.
  std::mutex wrapping_;
  std::weak_ptr<const Bytes> bare_;
  std::weak_ptr<const Bytes> wrapped_;
  std::atomic<std::uint64_t> sent_{0};
  std::atomic<std::uint64_t> received_{0};
};

Lane::~Lane() {
  for (int to = 0; to < size(); ++to) {
    if (to == rank()) continue;
    try {
      network_.send(to, with_head({.lane = number_, .kind = LaneKind::kLeft}, {}));
    } catch (const std::exception&) {  // it has left the network, or the job is over
    }
  }
  {
    const std::lock_guard lock(end_->mutex_);
    end_->lanes_.erase(number_);
  }
  end_->room_.notify_all();
}

SharedBytes Lane::wrapped(const SharedBytes& bytes) {
  const std::lock_guard lock(wrapping_);
  SharedBytes made = wrapped_.lock();
  if (made && bare_.lock() == bytes) return made;
  made = with_head({.lane = number_, .kind = LaneKind::kMessage}, *bytes);
  bare_ = bytes;
  wrapped_ = made;
  return made;
}

void Lane::send(int to, SharedBytes bytes) {
  const std::size_t size = bytes->size();
  if (to == rank()) {
    static_cast<void>(network_.peer(to));  // throws where the job is over
    const std::lock_guard lock(end_->mutex_);
    end_->deliver(inbox_, {.from = to, .bytes = std::move(bytes), .own = true});
  } else if (has_left(to)) {
    fail(ErrorCode::kUnavailable,
         "rank {} has left the job, and rank {} goes on; let every rank end after the same step",
         to, rank());
  } else {
    network_.send(to, to < 0 || to >= this->size() ? std::move(bytes) : wrapped(bytes));
  }
  sent_ += size;
}

std::optional<Incoming> Lane::receive(milliseconds timeout) {
  static_cast<void>(network_.peer(rank()));  // throws where the job is over
  std::optional<Incoming> message;
  {
    std::unique_lock lock(end_->mutex_);
    const auto ready = [&] { return !inbox_.messages.empty() || end_->failure_; };
    const milliseconds bounded = std::min<milliseconds>(timeout, WaitLimits::kLongest);
    if (timeout.count() > 0) inbox_.changed.wait_for(lock, bounded, ready);
    if (end_->failure_) std::rethrow_exception(end_->failure_);
    message = take_first(inbox_.messages);
    if (!message) return std::nullopt;
    if (!message->own) {
      inbox_.held_bytes[static_cast<std::size_t>(message->from)] -= message->bytes->size();
    }
  }
  end_->room_.notify_all();
  received_ += message->bytes->size();
  return message;
}

Peer Lane::peer(int rank) const {
  Peer peer = network_.peer(rank);
  if (!peer.gone && has_left(rank)) peer.gone = "has left the network";
  return peer;
}

SharedEnd::~SharedEnd() {
  if (!thread_.joinable()) return;
  stop_ = true;
  try {
    network_->send(network_->rank(), std::make_shared<const Bytes>());  // wakes the thread
  } catch (const Error&) {                                              // it has ended
  }
  thread_.join();
}

std::unique_ptr<Transport> SharedEnd::open(const std::shared_ptr<SharedEnd>& end,
                                           std::size_t longest) {
  const std::lock_guard lock(end->mutex_);
  const std::uint32_t number = end->next_++;
  Inbox& inbox = end->lanes_[number];
  const auto ranks = static_cast<std::size_t>(end->network_->size());
  inbox.held_bytes.resize(ranks);
  inbox.left.resize(ranks);
  end->expect(inbox, longest);
  if (number == 0) end->thread_ = std::thread([end = end.get()] { end->run(); });
  return std::make_unique<Lane>(end, number, inbox);
}

// The network's limit never falls: what is late of a lane that was left is dropped, not refused.
void SharedEnd::expect(Inbox& inbox, std::size_t longest) {
  inbox.longest = longest;
  longest_ = std::max(longest_, longest);
  network_->expect_at_most(longest_ + kLaneHeadBytes);
}

void SharedEnd::deliver(Inbox& inbox, Incoming message) {
  inbox.messages.push_back(std::move(message));
  inbox.changed.notify_one();
}

void SharedEnd::run() {
  try {
    while (!stop_) {
      const auto message = network_->receive(kLook);
      if (message && message->from != network_->rank()) take(*message);
    }
  } catch (const std::exception& error) {
    network_->abort(fmt::format("rank {}: {}", network_->rank(), error.what()));
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    for (auto& [number, inbox] : lanes_) inbox.changed.notify_all();
  }
}

void SharedEnd::take(const Incoming& message) {
  const ByteView bytes(*message.bytes);
  const auto from = static_cast<std::size_t>(message.from);
  LaneHead head{};
  if (bytes.size() >= kLaneHeadBytes) std::memcpy(&head, bytes.data(), kLaneHeadBytes);
  const bool left = head.kind == LaneKind::kLeft;
  if (bytes.size() < kLaneHeadBytes || (left && bytes.size() > kLaneHeadBytes) ||
      (!left && head.kind != LaneKind::kMessage)) {
    fail(ErrorCode::kDataLoss,
         "{} bytes came from rank {} that are not a message of a lane; run one version everywhere",
         bytes.size(), from);
  }
  const ByteView body = bytes.subspan(kLaneHeadBytes);
  const auto is_full = [&](const Inbox& inbox) {
    return inbox.held_bytes[from] > std::max(kMostHeldBytes, inbox.longest);
  };
  std::unique_lock lock(mutex_);
  if (head.lane >= next_) {
    fail(ErrorCode::kFailedPrecondition,
         "rank {} uses lane {}, and rank {} has opened {}; make what exchanges gradients in the "
         "same order on every rank",
         from, head.lane, network_->rank(), next_);
  }
  auto lane = lanes_.find(head.lane);
  while (!stop_ && lane != lanes_.end() && is_full(lane->second)) {
    room_.wait_for(lock, kShortLook);
    static_cast<void>(network_->peer(network_->rank()));  // throws where the job is over
    lane = lanes_.find(head.lane);
  }
  if (lane == lanes_.end()) return;  // this rank has left it
  Inbox& inbox = lane->second;
  if (left) {
    inbox.left[from] = true;
    return;
  }
  if (body.size() > inbox.longest) {
    fail(ErrorCode::kDataLoss,
         "{} bytes came from rank {}, and no message of this job has more than {}; start all ranks "
         "with the same arguments",
         body.size(), from, inbox.longest);
  }
  inbox.held_bytes[from] += body.size();
  deliver(inbox, {.from = message.from,
                  .bytes = std::make_shared<const Bytes>(body.begin(), body.end()),
                  .arrived = message.arrived});
}

}  // namespace tersewire::python
