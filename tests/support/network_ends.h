// The ends of a network whose nodes meet: each is made and goes in a thread of its own.
#pragma once

#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "tersewire/transport.h"

namespace tersewire::test {

// join(rank) for every rank. What one of them throws is thrown.
template <typename Join>
std::vector<std::unique_ptr<Transport>> join_all(int ranks, const Join& join) {
  std::vector<std::future<std::unique_ptr<Transport>>> joining;
  for (int rank = 0; rank < ranks; ++rank) {
    joining.push_back(std::async(
        std::launch::async, [&join, rank]() -> std::unique_ptr<Transport> { return join(rank); }));
  }
  std::vector<std::unique_ptr<Transport>> ends;
  for (auto& end : joining) ends.push_back(end.get());
  return ends;
}

// An end that goes waits for the others to have what it sent.
inline void end_all(std::vector<std::unique_ptr<Transport>>& ends) {
  std::vector<std::thread> threads;
  for (auto& end : ends) threads.emplace_back([&end] { end.reset(); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tersewire::test
