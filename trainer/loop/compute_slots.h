// Bounds how many threads compute at once: workers may be many times more than cores, and a BLAS
// that hundreds of threads call at the same time runs out of buffers. Any thread.
#pragma once

#include <cstddef>
#include <semaphore>

namespace tersewire::trainer {

class ComputeSlots {
 public:
  // As many as cores that the process may use.
  ComputeSlots();

 private:
  friend class ComputeTurn;
  std::counting_semaphore<> free_;
};

// A thread's time on a core; waits for one.
class ComputeTurn {
 public:
  explicit ComputeTurn(ComputeSlots& slots) : slots_(slots) { slots_.free_.acquire(); }
  ~ComputeTurn() { slots_.free_.release(); }
  ComputeTurn(const ComputeTurn&) = delete;
  ComputeTurn& operator=(const ComputeTurn&) = delete;

  // Runs a task that may wait for other threads: it is another's turn meanwhile.
  template <typename Task>
  void apart(const Task& task) {
    slots_.free_.release();
    try {
      task();
    } catch (...) {
      slots_.free_.acquire();
      throw;
    }
    slots_.free_.acquire();
  }

 private:
  ComputeSlots& slots_;
};

}  // namespace tersewire::trainer
