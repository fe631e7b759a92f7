// Two ranks that send each other messages, whatever happens to the network.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "transport_cases.h"

namespace tersewire::test {

// Messages of all sizes, the largest of so many bytes, go both ways and arrive as they were, while
// `disturb` does what it likes, before each that rank 0 receives.
inline void exchange_both_ways(const std::vector<std::unique_ptr<Transport>>& ends, int messages,
                               std::size_t largest, const std::function<void(int sent)>& disturb) {
  const auto size_of = [&](int i) {
    return static_cast<std::size_t>(i) * 7919 * 13 % (i % 8 == 0 ? largest : 3000);
  };
  const auto run = [&](std::size_t rank) {
    Transport& end = *ends[rank];
    int received = 0;
    const auto receive_one = [&] {
      const auto incoming = end.receive(60s);
      ASSERT_TRUE(incoming);
      const int i = received++;
      EXPECT_TRUE(transport_cases::same(
          incoming->bytes, transport_cases::pattern(size_of(i), static_cast<std::uint64_t>(i))))
          << i;
    };
    for (int i = 0; i < messages; ++i) {
      end.send(1 - static_cast<int>(rank),
               transport_cases::pattern(size_of(i), static_cast<std::uint64_t>(i)));
      if (rank == 0) disturb(i);
      if (i >= 16) receive_one();
    }
    while (received < messages && !testing::Test::HasFailure()) receive_one();
    EXPECT_FALSE(end.receive(0ms));
  };
  std::thread other(run, 1);
  run(0);
  other.join();
}

}  // namespace tersewire::test
