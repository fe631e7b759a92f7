// How much a worker sends ahead of one that is slower.
#include "exchange_suite.h"

namespace tersewire {
namespace {

constexpr std::size_t kTensors = 60;
constexpr std::size_t kElems = 64;
constexpr std::size_t kBucketBytes = kElems * sizeof(float);
// As in worker.cpp.
constexpr std::size_t kWindowBuckets = 8;

Job many_buckets(const TestedExchange& exchange) {
  Job job = suite_job(exchange, "fp32", 4);
  job.tensors.clear();
  for (std::size_t i = 0; i < kTensors; ++i) {
    job.tensors.push_back({"tensor " + std::to_string(i), {kElems}, TensorKind::kDense});
  }
  job.bucket_bytes = kBucketBytes;
  return job;
}

class Window : public testing::TestWithParam<TestedExchange> {};

TEST_P(Window, AJobOfManyBucketsComesToTheSame) {
  const Job job = many_buckets(GetParam());
  Job unlimited = job;
  unlimited.bucket_bytes = std::size_t{1} << 20;
  const Behaviour behaviour = suite_behaviour(kTestedCodecs.front());
  const Outcome outcome = run_job(job, behaviour);
  expect_no_errors(outcome);
  for (const Model& replica : outcome.replicas) expect_equal_bits(outcome.replicas[0], replica);
  const Outcome expected = run_job(unlimited, behaviour);
  for (std::size_t i = 0; i < kTensors; ++i) {
    for (std::size_t j = 0; j < kElems; ++j) {
      ASSERT_NEAR(outcome.replicas[0][i][j], expected.replicas[0][i][j], 1e-6);
    }
  }
}

TEST_P(Window, WorkersWaitForOneThatIsSilent) {
  Job job = many_buckets(GetParam());
  job.progress_limit = 200ms;
  const int silent = job.workers - 1;
  const auto ends = make_in_process_network(job.workers + server_nodes(job));
  // Until the others have given up.
  const auto fall_silent = [&](int worker, std::uint64_t /*step*/) {
    if (worker != silent) return;
    while (!is_over(*ends[static_cast<std::size_t>(silent)])) std::this_thread::sleep_for(1ms);
  };
  const Outcome outcome =
      run_job_over(ends, job, {.steps = 1, .before_step = fall_silent, .gradient = {}});
  // Checksums, a window, and the bucket that filled it; to everyone where there are no servers. In
  // rings what others sent goes on, too.
  constexpr std::size_t kBucketMessage =
      kBucketBytes + kMessageOverheadBytes + kMaxFrameOverheadBytes;
  std::size_t receivers = server_nodes(job) > 0 ? 1 : static_cast<std::size_t>(job.workers);
  if (GetParam().sends == Sends::kSums) ++receivers;
  const std::size_t most = receivers * (kWindowBuckets + 2) * kBucketMessage;
  ASSERT_LT(most, kTensors * kBucketBytes);
  for (int worker = 0; worker < silent; ++worker) {
    const auto rank = static_cast<std::size_t>(worker);
    EXPECT_NE(outcome.errors[rank], "");
    EXPECT_LT(outcome.bytes_sent[rank], most) << "worker " << worker;
  }
}

// All but those that hold every gradient until there is an agreement.
std::vector<TestedExchange> windowed() {
  std::vector<TestedExchange> exchanges = kTestedExchanges;
  std::erase_if(exchanges, [](const auto& exchange) { return exchange.sends == Sends::kTernary; });
  return exchanges;
}

INSTANTIATE_TEST_SUITE_P(Exchanges, Window, testing::ValuesIn(windowed()), exchange_name);

}  // namespace
}  // namespace tersewire
