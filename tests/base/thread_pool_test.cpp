#include "tersewire/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "cgroup_quota.h"
#include "tersewire/error.h"

namespace tersewire {
namespace {

TEST(AllowedCores, AreThoseThatTheProcessIsBoundTo) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  const auto cores = static_cast<std::size_t>(CPU_COUNT(&all));
  EXPECT_EQ(allowed_cores(), std::min(cores, cores_of_quota().value_or(cores)));
  int first = 0;
  while (!CPU_ISSET(first, &all)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  std::size_t bound = 0;
  std::thread([&] {
    if (sched_setaffinity(0, sizeof(one), &one) == 0) bound = allowed_cores();
  }).join();
  EXPECT_EQ(bound, 1U);
}

TEST(ThreadPool, RunsEveryIndexOnce) {
  for (const std::size_t threads : {1U, 2U, 5U}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const std::size_t count : {0U, 1U, 3U, 100U}) {
      std::vector<std::atomic<int>> calls(count);
      pool.run(count, [&](std::size_t i) { ++calls[i]; });
      for (const auto& n : calls) EXPECT_EQ(n, 1);
    }
  }
}

TEST(ThreadPool, HandsOutATasksExceptionAfterAllHaveEnded) {
  ThreadPool pool(3);
  std::atomic<int> ended{0};
  const auto task = [&](std::size_t i) {
    ++ended;
    if (i == 4) throw std::runtime_error("four");
  };
  EXPECT_THROW(pool.run(10, task), std::runtime_error);
  EXPECT_EQ(ended, 10);
  ended = 0;
  pool.run(3, task);
  EXPECT_EQ(ended, 3);
}

TEST(ThreadPool, HelpsSeveralCallers) {
  ThreadPool pool(3);
  std::atomic<int> sum{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int i = 0; i < 50; ++i) pool.run(8, [&](std::size_t) { ++sum; });
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 4 * 50 * 8);
}

TEST(ThreadPool, HelpsATask) {
  for (const std::size_t threads : {1U, 2U, 4U}) {
    ThreadPool pool(threads);
    for (int i = 0; i < 50; ++i) {
      std::array<std::atomic<int>, 5> calls{};
      pool.run(calls.size(),
               [&](std::size_t outer) { pool.run(outer, [&](std::size_t) { ++calls[outer]; }); });
      for (std::size_t outer = 0; outer < calls.size(); ++outer) {
        EXPECT_EQ(calls[outer], static_cast<int>(outer));
      }
    }
  }
}

// Two threads must be in the inner run at once, and one is idle whoever takes the outer task.
TEST(ThreadPool, LetsIdleThreadsIntoTheRunOfATask) {
  ThreadPool pool(3);
  std::atomic<int> inside{0};
  pool.run(1, [&](std::size_t) {
    pool.run(2, [&](std::size_t) {
      ++inside;
      while (inside < 2) std::this_thread::yield();
    });
  });
  EXPECT_EQ(inside, 2);
}

TEST(ThreadPool, HandsATasksExceptionToWhoCalledForIt) {
  ThreadPool pool(2);
  std::atomic<int> caught{0};
  pool.run(4, [&](std::size_t outer) {
    try {
      pool.run(3, [&](std::size_t inner) {
        if (outer == 2 && inner == 1) throw std::runtime_error("inner");
      });
    } catch (const std::runtime_error&) {
      ++caught;
    }
  });
  EXPECT_EQ(caught, 1);
}

TEST(ThreadPool, NeedsAThread) { EXPECT_THROW(ThreadPool(0), Error); }

}  // namespace
}  // namespace tersewire
