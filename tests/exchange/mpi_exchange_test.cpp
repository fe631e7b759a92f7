// Every exchange with every codec over processes: each worker ends with the bits that it would have
// had as a thread, which tests/exchange/exchange_suite_test.cpp holds against a reference.
#include <cstring>
#include <deque>
#include <map>

#include "exchange_suite.h"
#include "faulty_transports.h"
#include "mpi_test_main.h"

namespace tersewire {
namespace {

// One job after another over the same network. Ranks may be jobs ahead of each other: a message
// says which one it belongs to, and waits for it.
class ConsecutiveJobs final : public OwningTransport {
 public:
  using OwningTransport::OwningTransport;

  // A job of the network's first `nodes` ranks.
  void begin_job(int nodes) {
    ++job_;
    nodes_ = nodes;
  }

  [[nodiscard]] int size() const noexcept override { return nodes_; }
  void send(int to, SharedBytes bytes) override {
    Bytes numbered(sizeof(job_) + bytes->size());
    std::memcpy(numbered.data(), &job_, sizeof(job_));
    std::ranges::copy(*bytes, numbered.begin() + sizeof(job_));
    OwningTransport::send(to, std::make_shared<const Bytes>(std::move(numbered)));
  }
  std::optional<Incoming> receive(std::chrono::milliseconds timeout) override {
    auto& waiting = waiting_[job_];
    while (waiting.empty()) {
      auto incoming = OwningTransport::receive(timeout);
      if (!incoming) return std::nullopt;
      sort_in(std::move(*incoming));
    }
    return take_first(waiting);
  }

 private:
  void sort_in(Incoming numbered) {
    std::uint32_t job = 0;
    std::memcpy(&job, numbered.bytes->data(), sizeof(job));
    numbered.bytes =
        std::make_shared<const Bytes>(numbered.bytes->begin() + sizeof(job), numbered.bytes->end());
    waiting_[job].push_back(std::move(numbered));
  }

  std::uint32_t job_ = 0;
  int nodes_ = 0;
  std::map<std::uint32_t, std::deque<Incoming>> waiting_;  // by job
};

ConsecutiveJobs* network = nullptr;
int ranks = 0;

// With as many workers as there are ranks for.
Job largest_job(const TestedExchange& exchange, const TestedCodec& codec) {
  for (int workers = ranks; workers > 0; --workers) {
    if (workers % exchange.workers_divide_by != 0) continue;
    Job job = suite_job(exchange, codec.text, workers);
    if (workers + server_nodes(job) <= ranks) return job;
  }
  throw std::runtime_error("too few ranks for this exchange");
}

void expect_the_bits_of_threads(const Job& job, const Behaviour& behaviour) {
  const int nodes = job.workers + server_nodes(job);
  network->begin_job(nodes);
  if (network->rank() >= nodes) return;
  const auto rank = static_cast<std::size_t>(network->rank());
  Outcome outcome = empty_outcome(job);
  run_node(job, *network, behaviour, outcome);
  EXPECT_EQ(outcome.errors[rank], "");
  if (rank >= outcome.replicas.size()) return;
  const Outcome threads = run_job(job, behaviour);
  expect_no_errors(threads);
  expect_equal_bits(outcome.replicas[rank], threads.replicas[rank]);
}

class EveryExchange : public testing::TestWithParam<TestedExchange> {};

TEST_P(EveryExchange, GivesTheBitsOfThreads) {
  for (const TestedCodec& codec : kTestedCodecs) {
    if (!fits(GetParam(), codec)) continue;
    SCOPED_TRACE(codec.text);
    Behaviour behaviour = suite_behaviour(codec);
    behaviour.steps = 5;
    expect_the_bits_of_threads(largest_job(GetParam(), codec), behaviour);
  }
}

INSTANTIATE_TEST_SUITE_P(OverProcesses, EveryExchange, testing::ValuesIn(kTestedExchanges),
                         exchange_name);

int run_tests(std::unique_ptr<Transport> end) {
  ranks = end->size();
  ConsecutiveJobs jobs(std::move(end));
  network = &jobs;
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace tersewire

int main(int argc, char** argv) {
  return tersewire::mpi_test_main(argc, argv, tersewire::run_tests);
}
