// The mpi transport, in as many processes as mpirun starts: the cases of every transport. All ranks
// run the same tests in the same order over one network, which they join once.
#include <gtest/gtest.h>

#include <cstdio>

#include "tersewire/transport.h"
#include "transport_cases.h"

namespace tersewire {
namespace {

Rank* me = nullptr;

class MpiCases : public testing::TestWithParam<TransportCase> {};

TEST_P(MpiCases, OverProcesses) { GetParam().run(*me); }

INSTANTIATE_TEST_SUITE_P(Transport, MpiCases, testing::ValuesIn(kTransportCases), case_name);

TEST(MpiTransport, IsJoinedOnce) {
  try {
    join_mpi_network(1s);
    ADD_FAILURE() << "joined twice";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  }
}

int run_tests() {
  const auto end = join_mpi_network(60s);
  Rank rank(*end);
  me = &rank;
  // One list of tests is enough; what fails is printed by every rank.
  if (rank.number() != 0) testing::GTEST_FLAG(brief) = true;
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace tersewire

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  try {
    return tersewire::run_tests();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
