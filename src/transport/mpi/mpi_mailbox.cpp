#include "mpi_mailbox.h"

#include <algorithm>
#include <utility>

#include "limit_checks.h"

namespace tersewire {
namespace {

// How often one that waits for room looks whether it has waited for too long.
constexpr std::chrono::milliseconds kRoomLook(10);

}  // namespace

// With the lock held.
void Mailbox::check_not_failed() const {
  if (failure_) throw Error(*failure_, sentence_);
}

void Mailbox::post(Outgoing message) {
  {
    std::unique_lock lock(mutex_);
    check_not_failed();
    const std::uint64_t bytes = message.bytes->size();
    wait_for_room(lock, message.to, bytes);
    flows_[static_cast<std::size_t>(message.to)].sent += bytes;
    orders_.messages.push_back(std::move(message));
  }
  ordered_.notify_one();
}

// Until these bytes fit beside the others; they do alone.
void Mailbox::wait_for_room(std::unique_lock<std::mutex>& lock, int to, std::uint64_t bytes) {
  const auto there = static_cast<std::size_t>(to);
  const auto fits = [&] {
    const Flow& flow = flows_[there];
    const std::uint64_t unreceived = flow.sent - flow.acknowledged;
    return unreceived == 0 || unreceived + bytes <= queue_bytes_ || peers_[there].gone || failure_;
  };
  if (fits()) return;
  orders_.asks.push_back({to, flows_[there].sent});
  // Whoever waits takes in what comes: ranks that all send first would wait in a circle.
  ++waiting_to_send_;
  for (std::size_t from = 0; from < flows_.size(); ++from) {
    take_in(flows_[from], static_cast<int>(from));
  }
  ordered_.notify_one();
  std::chrono::milliseconds waited{0};
  while (!room_or_failed_.wait_for(lock, kRoomLook, fits)) {
    waited += kRoomLook;
    const bool silent = Clock::now() - peers_[there].heard >= limits_.wait.deadline;
    if (waited < (silent ? limits_.wait.deadline : limits_.wait.progress_limit)) continue;
    --waiting_to_send_;
    fail_for_want_of_room(place_.rank, to, waited);
  }
  --waiting_to_send_;
  check_not_failed();
}

// With the lock held: what has arrived of a rank, or a part of it, counts as received.
void Mailbox::take_in(Flow& flow, int from) {
  if (waiting_to_send_ > 0) flow.received = flow.arrived;
  const bool is_due = flow.received - flow.told >= std::max<std::uint64_t>(queue_bytes_ / 4, 1);
  const bool is_asked = flow.asked > flow.told && flow.received > flow.told;
  if (!is_due && !is_asked) return;
  flow.told = flow.received;
  orders_.received.push_back({from, flow.told});
}

bool Mailbox::admit(int from, std::uint64_t message_bytes) {
  const std::lock_guard lock(mutex_);
  Flow& flow = flows_[static_cast<std::size_t>(from)];
  const std::uint64_t unreceived = flow.begun - flow.told;
  if (unreceived > 0 && unreceived + message_bytes > queue_bytes_) return false;
  flow.begun += message_bytes;
  return true;
}

bool Mailbox::hear_received(int from, std::uint64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    Flow& flow = flows_[static_cast<std::size_t>(from)];
    if (bytes < flow.acknowledged || bytes > flow.sent) return false;
    flow.acknowledged = bytes;
  }
  room_or_failed_.notify_all();
  return true;
}

void Mailbox::hear_ask(int from, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  Flow& flow = flows_[static_cast<std::size_t>(from)];
  flow.asked = bytes;
  take_in(flow, from);
}

void Mailbox::set_limits(const TransportLimits& limits) {
  const std::lock_guard lock(mutex_);
  limits_ = limits;
}

TransportLimits Mailbox::limits() const {
  const std::lock_guard lock(mutex_);
  return limits_;
}

void Mailbox::post_to_self(Incoming message) {
  {
    const std::lock_guard lock(mutex_);
    check_not_failed();
    inbox_.push_back(std::move(message));
  }
  arrived_or_failed_.notify_one();
}

std::optional<Incoming> Mailbox::take(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  arrived_or_failed_.wait_for(lock, timeout, [&] { return !inbox_.empty() || failure_; });
  check_not_failed();
  if (inbox_.empty()) return std::nullopt;
  Incoming message = std::move(inbox_.front());
  inbox_.pop_front();
  if (message.from == place_.rank) return message;
  // Of one that was let past the bound the bytes have been counted before.
  Flow& flow = flows_[static_cast<std::size_t>(message.from)];
  flow.received = std::min(flow.arrived, flow.received + message.bytes->size());
  take_in(flow, message.from);
  const bool told = !orders_.received.empty();
  lock.unlock();
  if (told) ordered_.notify_one();
  return message;
}

void Mailbox::order_to_leave() {
  {
    const std::lock_guard lock(mutex_);
    orders_.leave = true;
  }
  ordered_.notify_one();
}

bool Mailbox::wait_until_left(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  while (!left_) {
    const auto until = asked_at_ + limit;
    if (Clock::now() >= until) return false;
    left_condition_.wait_until(lock, until);
  }
  return true;
}

void Mailbox::join(MpiPlace place) {
  const std::lock_guard lock(mutex_);
  place_ = place;
  peers_.resize(static_cast<std::size_t>(place.size));
  flows_.resize(static_cast<std::size_t>(place.size));
}

Peer Mailbox::peer(int rank) const {
  const std::lock_guard lock(mutex_);
  if (rank == place_.rank) return {};
  const auto number = static_cast<std::size_t>(rank);
  Peer peer = peers_[number];
  peer.unreceived_bytes = flows_[number].sent - flows_[number].acknowledged;
  return peer;
}

void Mailbox::hear(int rank) {
  const std::lock_guard lock(mutex_);
  peers_[static_cast<std::size_t>(rank)].heard = Clock::now();
}

void Mailbox::see_off(int rank) {
  const std::lock_guard lock(mutex_);
  peers_[static_cast<std::size_t>(rank)].gone = "has left the network";
  room_or_failed_.notify_all();
}

void Mailbox::excuse(std::chrono::nanoseconds deafness) {
  const std::lock_guard lock(mutex_);
  for (Peer& peer : peers_) peer.heard = std::min(Clock::now(), peer.heard + deafness);
}

bool Mailbox::misses_one(std::chrono::milliseconds limit) const {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  return std::ranges::any_of(peers_, [&](const Peer& peer) {
    return &peer != &peers_[static_cast<std::size_t>(place_.rank)] && now - peer.heard >= limit;
  });
}

void Mailbox::deliver(Incoming message) {
  {
    const std::lock_guard lock(mutex_);
    Flow& flow = flows_[static_cast<std::size_t>(message.from)];
    flow.arrived += message.bytes->size();
    take_in(flow, message.from);
    inbox_.push_back(std::move(message));
  }
  arrived_or_failed_.notify_one();
}

Orders Mailbox::collect(std::chrono::nanoseconds pause) {
  std::unique_lock lock(mutex_);
  asked_at_ = Clock::now();
  if (pause.count() > 0) ordered_.wait_for(lock, pause, [&] { return orders_.any(); });
  return std::exchange(orders_, {});
}

void Mailbox::left() {
  {
    const std::lock_guard lock(mutex_);
    left_ = true;
  }
  left_condition_.notify_all();
}

void Mailbox::fail(ErrorCode code, const std::string& sentence, bool tell_others) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = code;
    if (tell_others) orders_.abort.emplace();
    try {
      sentence_ = sentence;
      if (tell_others) orders_.abort = sentence;
    } catch (...) {
      // Out of memory for the sentence: the nodes still have to end.
    }
  }
  arrived_or_failed_.notify_all();
  room_or_failed_.notify_all();
  ordered_.notify_one();
}

bool Mailbox::failed() const {
  const std::lock_guard lock(mutex_);
  return failure_.has_value();
}

}  // namespace tersewire
