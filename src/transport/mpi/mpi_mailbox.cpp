#include "mpi_mailbox.h"

#include <algorithm>
#include <utility>

namespace tersewire {

// With the lock held.
void Mailbox::check_not_failed() const {
  if (failure_) throw Error(*failure_, sentence_);
}

void Mailbox::post(Outgoing message) {
  {
    const std::lock_guard lock(mutex_);
    check_not_failed();
    peers_[static_cast<std::size_t>(message.to)].waiting += message.bytes->size();
    orders_.messages.push_back(std::move(message));
  }
  ordered_.notify_one();
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
  wait_at_most(arrived_or_failed_, lock, timeout, [&] { return !inbox_.empty() || failure_; });
  check_not_failed();
  return take_first(inbox_);
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
}

Peer Mailbox::peer(int rank) const {
  const std::lock_guard lock(mutex_);
  check_not_failed();
  return rank == place_.rank ? Peer() : peers_[static_cast<std::size_t>(rank)];
}

void Mailbox::hear(int rank) {
  const std::lock_guard lock(mutex_);
  peers_[static_cast<std::size_t>(rank)].heard = Clock::now();
}

void Mailbox::see_off(int rank) {
  const std::lock_guard lock(mutex_);
  peers_[static_cast<std::size_t>(rank)].gone = "has left the network";
}

void Mailbox::sent(int to, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  peers_[static_cast<std::size_t>(to)].waiting -= bytes;
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
  ordered_.notify_one();
}

bool Mailbox::failed() const {
  const std::lock_guard lock(mutex_);
  return failure_.has_value();
}

}  // namespace tersewire
