// The main function of tests that mpirun starts as several ranks, which all run the same tests in
// the same order over one network.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <memory>

#include "tersewire/transport.h"

namespace tersewire {

// `tests` is called once this process has joined the network, and returns an exit status.
inline int mpi_test_main(int argc, char** argv,
                         const std::function<int(std::unique_ptr<Transport>)>& tests) {
  try {
    auto end = join_mpi_network({std::chrono::seconds(60)});
    // One list of tests is enough; what fails is printed by every rank.
    if (end->rank() != 0) testing::GTEST_FLAG(brief) = true;
    testing::InitGoogleTest(&argc, argv);
    return tests(std::move(end));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace tersewire
