#include "tersewire/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "cgroup_quota.h"
#include "errors.h"
#include "float_mode.h"

namespace tersewire {

std::size_t allowed_cores() {
  cpu_set_t bound;
  // Fails where the machine has more than a cpu_set_t holds.
  const std::size_t cores = sched_getaffinity(0, sizeof(bound), &bound) == 0
                                ? static_cast<std::size_t>(CPU_COUNT(&bound))
                                : std::max(std::thread::hardware_concurrency(), 1U);
  return std::min(cores, cores_of_quota().value_or(cores));
}

namespace {

// A loop that some thread has called for.
struct Run {
  const std::function<void(std::size_t)>* task;
  std::size_t count;
  Run* before;                       // the one that was called for before it, of those with indices
  std::size_t helpers = 0;           // that are at it
  std::exception_ptr error;          // the first
  std::atomic<std::size_t> next{0};  // index
};

}  // namespace

struct ThreadPool::State {
  std::mutex mutex;
  std::condition_variable work_or_stop;
  std::condition_variable helper_left;
  Run* last = nullptr;
  bool stop = false;

  std::vector<std::thread> helpers;

  void take_indices(Run& run) {
    for (std::size_t i = run.next.fetch_add(1); i < run.count; i = run.next.fetch_add(1)) {
      try {
        (*run.task)(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!run.error) run.error = std::current_exception();
      }
    }
  }

  // With the lock: nothing is left to take of it.
  void strike(const Run& run) {
    for (Run** place = &last; *place != nullptr; place = &(*place)->before) {
      if (*place != &run) continue;
      *place = run.before;
      return;
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

  // The last run first: who called for it is within an earlier one, maybe.
  void help() {
    const DefaultFloatMode mode;
    std::unique_lock lock(mutex);
    for (;;) {
      work_or_stop.wait(lock, [&] { return stop || last != nullptr; });
      if (stop) return;
      Run& run = *last;
      ++run.helpers;
      lock.unlock();
      take_indices(run);
      lock.lock();
      strike(run);
      if (--run.helpers == 0) helper_left.notify_all();
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
         "the system started only {} of {} threads; use fewer or raise the limit (ulimit -u)",
         state_->helpers.size() + 1, threads);
  }
}

ThreadPool::~ThreadPool() { state_->end(); }

std::size_t ThreadPool::threads() const noexcept { return state_->helpers.size() + 1; }

void ThreadPool::run(std::size_t count, const std::function<void(std::size_t)>& task) {
  Run run{.task = &task, .count = count, .before = nullptr, .error = nullptr};
  {
    const std::lock_guard lock(state_->mutex);
    run.before = std::exchange(state_->last, &run);
  }
  state_->work_or_stop.notify_all();
  state_->take_indices(run);
  std::unique_lock lock(state_->mutex);
  state_->strike(run);
  state_->helper_left.wait(lock, [&] { return run.helpers == 0; });
  if (run.error) std::rethrow_exception(run.error);
}

}  // namespace tersewire
