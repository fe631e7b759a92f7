// Every exchange with every codec over the transport grpc: each worker ends with the bits that it
// would have had as a thread, which tests/exchange/exchange_suite_test.cpp holds against a
// reference; also while the connections break.
#include <atomic>

#include "cutting_proxy.h"
#include "exchange_suite.h"
#include "network_ends.h"
#include "tersewire/grpc_network.h"

namespace tersewire {
namespace {

using test::end_all;

// The ends of a hub's job, each through an address of the proxy's or the hub's.
std::vector<std::unique_ptr<Transport>> join_all(const std::string& address, int nodes) {
  return test::join_all(nodes, [&](int rank) {
    return join_grpc_network(address, rank, nodes, {}, {.deadline = 60s});
  });
}

void expect_the_bits_of_threads(const Job& job, const Behaviour& behaviour,
                                const std::vector<std::unique_ptr<Transport>>& ends) {
  const Outcome outcome = run_job_over(ends, job, behaviour);
  expect_no_errors(outcome);
  const Outcome threads = run_job(job, behaviour);
  expect_no_errors(threads);
  for (std::size_t i = 0; i < threads.replicas.size(); ++i) {
    expect_equal_bits(outcome.replicas[i], threads.replicas[i]);
  }
}

int some_workers(const TestedExchange& exchange) {
  return 3 % exchange.workers_divide_by == 0 ? 3 : 4;
}

class EveryExchange : public testing::TestWithParam<TestedExchange> {};

INSTANTIATE_TEST_SUITE_P(All, EveryExchange, testing::ValuesIn(kTestedExchanges), exchange_name);

TEST_P(EveryExchange, GivesTheBitsOfThreads) {
  for (const TestedCodec& codec : kTestedCodecs) {
    if (!fits(GetParam(), codec)) continue;
    SCOPED_TRACE(codec.text);
    const Job job = suite_job(GetParam(), codec.text, some_workers(GetParam()));
    const int nodes = job.workers + server_nodes(job);
    const GrpcHub hub("127.0.0.1:0", nodes);
    auto ends = join_all(hub.address(), nodes);
    expect_the_bits_of_threads(job, suite_behaviour(codec), ends);
    end_all(ends);
  }
}

TEST_P(EveryExchange, GivesTheBitsOfThreadsThoughConnectionsBreak) {
  const auto codec = std::ranges::find_if(
      kTestedCodecs, [](const TestedCodec& tested) { return fits(GetParam(), tested); });
  ASSERT_NE(codec, kTestedCodecs.end());
  const Job job = suite_job(GetParam(), codec->text, some_workers(GetParam()));
  const int nodes = job.workers + server_nodes(job);
  const GrpcHub hub("127.0.0.1:0", nodes);
  const std::string address = hub.address();
  CuttingProxy proxy(std::stoi(address.substr(address.rfind(':') + 1)));
  auto ends = join_all(proxy.address(), nodes);
  Behaviour behaviour = suite_behaviour(*codec);
  behaviour.steps = 30;
  std::atomic<bool> over{false};
  std::thread cutter([&] {
    while (!over) {
      proxy.cut();
      std::this_thread::sleep_for(150ms);
    }
  });
  expect_the_bits_of_threads(job, behaviour, ends);
  over = true;
  cutter.join();
  EXPECT_GT(proxy.connections(), nodes);
  end_all(ends);
}

}  // namespace
}  // namespace tersewire
