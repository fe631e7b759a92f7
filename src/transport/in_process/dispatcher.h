// Few threads that call functions of many nodes, so that a node in which nothing happens has none.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tersewire {

// Any thread.
class Dispatcher {
 public:
  explicit Dispatcher(std::size_t nodes) : nodes_(nodes) {}
  ~Dispatcher();
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  // From now on this is what call() calls for the node, which had none. The first one starts the
  // threads, as many as this process has cores.
  void set(std::size_t node, std::function<void()> function);
  // Waits for a call that is going on; there is none afterwards.
  void clear(std::size_t node);

  // Has the node's function called, where it has one: once more, if a call is going on.
  void call(std::size_t node) noexcept;
  void call_all() noexcept;

 private:
  struct Node {
    std::function<void()> function;
    bool due = false;     // to be called
    bool queued = false;  // or being called
    bool running = false;
    Node* next = nullptr;  // in the queue
  };

  void run();
  void queue(Node& node);

  std::mutex mutex_;
  std::condition_variable queued_or_stopping_;
  std::condition_variable ran_;
  std::vector<Node> nodes_;
  Node* first_ = nullptr;  // of the queue, which needs no memory of its own
  Node* last_ = nullptr;
  std::size_t idle_ = 0;  // threads
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tersewire
