// The ends of a network whose nodes meet: each is made and goes in a thread of its own.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "tersewire/transport.h"

namespace tersewire::test {

// join(rank) for every rank.
template <typename Join>
std::vector<std::unique_ptr<Transport>> join_all(int ranks, const Join& join) {
  std::vector<std::unique_ptr<Transport>> ends(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] { ends[static_cast<std::size_t>(rank)] = join(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  return ends;
}

// An end that goes waits for the others to have what it sent.
inline void end_all(std::vector<std::unique_ptr<Transport>>& ends) {
  std::vector<std::thread> threads;
  for (auto& end : ends) threads.emplace_back([&end] { end.reset(); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tersewire::test
