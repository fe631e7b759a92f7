// The mpi transport, in as many processes as mpirun starts: the cases of every transport.
#include "mpi_test_main.h"
#include "transport_cases.h"

namespace tersewire {
namespace {

Rank* me = nullptr;

class MpiCases : public testing::TestWithParam<TransportCase> {};

TEST_P(MpiCases, OverProcesses) { GetParam().run(*me); }

INSTANTIATE_TEST_SUITE_P(Transport, MpiCases, testing::ValuesIn(kTransportCases), case_name);

TEST(MpiTransport, IsJoinedOnce) {
  try {
    join_mpi_network({1s});
    ADD_FAILURE() << "joined twice";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  }
}

int run_tests(std::unique_ptr<Transport> end) {
  Rank rank(*end);
  me = &rank;
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace tersewire

int main(int argc, char** argv) {
  return tersewire::mpi_test_main(argc, argv, tersewire::run_tests);
}
