#include "tersewire/thread_pool.h"

#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "errors.h"
#include "float_mode.h"

namespace tersewire {

std::size_t allowed_cores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return 1;
  return static_cast<std::size_t>(CPU_COUNT(&cores));
}

struct ThreadPool::State {
  std::mutex one_caller;

  std::mutex mutex;
  std::condition_variable work_or_stop;
  std::condition_variable all_idle;
  const std::function<void(std::size_t)>* task = nullptr;
  std::size_t count = 0;
  std::uint64_t round = 0;
  std::size_t busy = 0;
  bool stop = false;
  std::exception_ptr error;
  std::atomic<std::size_t> next{0};

  std::vector<std::thread> helpers;

  void take_indices() {
    for (std::size_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) {
      try {
        (*task)(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
      }
    }
  }

  void end() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    work_or_stop.notify_all();
    for (std::thread& helper : helpers) helper.join();
  }

  void help() {
    const DefaultFloatMode mode;
    std::uint64_t seen = 0;
    std::unique_lock lock(mutex);
    for (;;) {
      work_or_stop.wait(lock, [&] { return stop || round != seen; });
      if (stop) return;
      seen = round;
      lock.unlock();
      take_indices();
      lock.lock();
      if (--busy == 0) all_idle.notify_one();
    }
  }
};

ThreadPool::ThreadPool(std::size_t threads) : state_(std::make_unique<State>()) {
  if (threads < 1) fail(ErrorCode::kInvalidArgument, "a thread pool needs at least one thread");
  try {
    for (std::size_t i = 1; i < threads; ++i) {
      state_->helpers.emplace_back([state = state_.get()] { state->help(); });
    }
  } catch (const std::system_error&) {
    state_->end();
    fail(ErrorCode::kResourceExhausted,
         "the system starts no more than {} of {} threads; use fewer or raise the limit",
         state_->helpers.size() + 1, threads);
  }
}

ThreadPool::~ThreadPool() { state_->end(); }

std::size_t ThreadPool::threads() const noexcept { return state_->helpers.size() + 1; }

void ThreadPool::run(std::size_t count, const std::function<void(std::size_t)>& task) {
  const std::lock_guard one_caller(state_->one_caller);
  {
    const std::lock_guard lock(state_->mutex);
    state_->task = &task;
    state_->count = count;
    state_->next = 0;
    state_->busy = state_->helpers.size();
    state_->error = nullptr;
    ++state_->round;
  }
  state_->work_or_stop.notify_all();
  state_->take_indices();
  std::unique_lock lock(state_->mutex);
  state_->all_idle.wait(lock, [&] { return state_->busy == 0; });
  if (state_->error) std::rethrow_exception(state_->error);
}

}  // namespace tersewire
