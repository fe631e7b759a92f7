#include "dispatcher.h"

#include <algorithm>
#include <utility>

#include "tersewire/thread_pool.h"

namespace tersewire {

Dispatcher::~Dispatcher() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  queued_or_stopping_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Dispatcher::set(std::size_t node, std::function<void()> function) {
  const std::lock_guard lock(mutex_);
  if (threads_.empty()) {
    const std::size_t cores = allowed_cores();
    while (threads_.size() < std::min(cores, nodes_.size())) {
      threads_.emplace_back([this] { run(); });
    }
  }
  nodes_[node].function = std::move(function);
  queue(nodes_[node]);
}

void Dispatcher::clear(std::size_t node) {
  std::unique_lock lock(mutex_);
  ran_.wait(lock, [&] { return !nodes_[node].running; });
  nodes_[node].function = nullptr;
}

void Dispatcher::call(std::size_t node) noexcept {
  const std::lock_guard lock(mutex_);
  queue(nodes_[node]);
}

void Dispatcher::call_all() noexcept {
  const std::lock_guard lock(mutex_);
  for (Node& node : nodes_) queue(node);
}

// With the lock.
void Dispatcher::queue(Node& node) {
  if (!node.function) return;
  node.due = true;
  if (node.queued) return;
  node.queued = true;
  node.next = nullptr;
  (first_ == nullptr ? first_ : last_->next) = &node;
  last_ = &node;
  if (idle_ > 0) queued_or_stopping_.notify_one();
}

void Dispatcher::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_;
    queued_or_stopping_.wait(lock, [&] { return stopping_ || first_ != nullptr; });
    --idle_;
    if (stopping_) return;
    Node& node = *first_;
    first_ = node.next;
    node.due = false;
    if (node.function) {
      node.running = true;
      lock.unlock();
      node.function();
      lock.lock();
      node.running = false;
      ran_.notify_all();
    }
    node.queued = false;
    if (node.due) queue(node);
  }
}

}  // namespace tersewire
