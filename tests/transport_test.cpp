// The in-process transport, and the refusals of joining one between processes.
#include "tersewire/transport.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "transport_cases.h"

namespace tersewire {
namespace {

using transport_cases::message;

class InProcessCases : public testing::TestWithParam<TransportCase> {};

TEST_P(InProcessCases, ForEveryNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 5}) {
    SCOPED_TRACE(ranks);
    const auto ends = make_in_process_network(ranks);
    std::vector<std::thread> threads;
    for (const auto& end : ends) {
      threads.emplace_back([&end] {
        Rank me(*end);
        GetParam().run(me);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

INSTANTIATE_TEST_SUITE_P(Transport, InProcessCases, testing::ValuesIn(kTransportCases), case_name);

TEST(InProcessTransport, SharesAMessageBetweenReceiversWithoutCopying) {
  auto ends = make_in_process_network(3);
  const SharedBytes bytes = message(10, 7);
  ends[0]->send(1, bytes);
  ends[0]->send(2, bytes);
  EXPECT_EQ(ends[1]->receive(1s)->bytes, bytes);
  EXPECT_EQ(ends[2]->receive(1s)->bytes, bytes);
}

TEST(InProcessTransport, RefusesANetworkOfNobody) {
  EXPECT_THROW(make_in_process_network(0), Error);
}

ErrorCode refusal_of_mpi(std::chrono::milliseconds deadline) {
  try {
    join_mpi_network(deadline);
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kInternal;
}

TEST(MpiTransport, IsRefusedOutsideOfALauncher) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) unsetenv(name);
#ifdef TERSEWIRE_MPI
  EXPECT_EQ(refusal_of_mpi(0ms), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refusal_of_mpi(1s), ErrorCode::kFailedPrecondition);
#else
  EXPECT_EQ(refusal_of_mpi(1s), ErrorCode::kUnimplemented);
#endif
}

}  // namespace
}  // namespace tersewire
