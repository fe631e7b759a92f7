// A fixed set of threads for loops over parts of one array.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace tersewire {

// Cores that this process may use, at least 1: fewer than the machine's if it is bound to some, or
// if a control group (a container's limit) allows it less processor time.
std::size_t allowed_cores();

// Runs the same function for several indices at once; its own threads compute in the default
// floating point mode. They help any caller of run(): several threads may call it, and tasks too.
class ThreadPool {
 public:
  // threads: how many run at once, including a caller; at least 1, or kInvalidArgument is thrown.
  // Throws kResourceExhausted if the system cannot start more.
  explicit ThreadPool(std::size_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] std::size_t threads() const noexcept;

  // Calls task(0) ... task(count - 1), each once, in any order and on any thread, and returns when
  // all have ended. The first exception thrown by a task is rethrown here, after all have ended.
  // Allocates nothing. Any thread.
  void run(std::size_t count, const std::function<void(std::size_t)>& task);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tersewire
