// Measuring exchanges: what a bench counts is what its nodes sent, and its parts do what they say.
#include "apps/bench/exchange_bench.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>

#include "apps/bench/gradient_source.h"
#include "apps/bench/model_tensors.h"
#include "apps/bench/round_transport.h"
#include "tersewire/error.h"

namespace tersewire::bench {
namespace {

using namespace std::chrono_literals;

constexpr double kLenetBytes = 4 * 431'080;
constexpr double kLenetTensors = 8;
constexpr double kOverheadBytes = 40;  // of a message, at most

ExchangeBenchConfig lenet(int workers) {
  ExchangeBenchConfig config;
  config.model = "lenet";
  config.job.workers = workers;
  config.codecs = {"int8"};
  config.steps = 4;
  config.job.deadline = 60s;
  return config;
}

std::vector<ExchangeBenchRow> run(const ExchangeBenchConfig& config, const Floats& recorded = {}) {
  return bench_exchange(config, recorded, join_exchange_bench(config));
}

std::string refusal(const ExchangeBenchConfig& config, int nodes) {
  try {
    check_exchange_bench(config, nodes);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
}

TEST(ExchangeBench, BytesOfFp32AreThoseOfTheModel) {
  const auto rows = run(lenet(3));
  ASSERT_EQ(rows.size(), 2U);
  const ExchangeBenchRow& fp32 = rows[0];
  EXPECT_EQ(fp32.codec, "fp32");
  for (const double bytes : {fp32.push_bytes, fp32.pull_bytes}) {
    EXPECT_GT(bytes, kLenetBytes);
    EXPECT_LE(bytes, kLenetBytes + kLenetTensors * kOverheadBytes);
  }
  // 3 workers' pushes and the answers to them in 2 + 4 steps, a goodbye from each, and checksums
  // before the first and after the last step from two.
  const double steps_bytes = 3 * 6 * (fp32.push_bytes + fp32.pull_bytes);
  EXPECT_GE(static_cast<double>(fp32.total_sent_bytes), steps_bytes);
  EXPECT_LE(static_cast<double>(fp32.total_sent_bytes), steps_bytes + 7 * kOverheadBytes);
}

TEST(ExchangeBench, EveryExchangeRuns) {
  struct Case {
    const char* exchange;
    double share;  // of the model's bytes that each of 3 workers sends
  };
  for (const auto& [exchange, share] : {Case{"parameter-server", 1}, Case{"gradient-server", 1},
                                        Case{"all-gather", 2}, Case{"ring", 4.0 / 3}}) {
    SCOPED_TRACE(exchange);
    auto config = lenet(3);
    config.job.exchange = exchange;
    const auto rows = run(config);
    ASSERT_EQ(rows.size(), 2U);
    EXPECT_NEAR(rows[0].push_bytes, share * kLenetBytes, 0.001 * share * kLenetBytes);
    // What others have sent ahead is at most a step's.
    EXPECT_NEAR(rows[0].pull_bytes, share * kLenetBytes, 0.25 * share * kLenetBytes);
    EXPECT_NEAR(rows[1].push_bytes, rows[0].push_bytes / 4, rows[0].push_bytes / 100);
    for (const ExchangeBenchRow& row : rows) {
      EXPECT_GT(row.step_seconds_median, 0);
      EXPECT_GT(row.codec_seconds, 0);
      EXPECT_FALSE(row.hidden);  // there is no computation
      EXPECT_GT(row.peak_memory_bytes, std::uint64_t{1} << 20);
    }
  }
}

TEST(ExchangeBench, SpeedupsAreOverTheBaselineOfTheRun) {
  auto config = lenet(2);
  config.codecs = {"3lc", "fp32", "int8"};
  config.compute_seconds = 0.02;
  const auto rows = run(config);
  ASSERT_EQ(rows.size(), 3U);  // the baseline runs once
  EXPECT_EQ(rows[0].speedup, 1.0);
  for (const ExchangeBenchRow& row : rows) {
    EXPECT_EQ(row.speedup, rows[0].step_seconds_median / row.step_seconds_median);
    EXPECT_EQ(row.ceiling, rows[0].step_seconds_median / 0.02);
    // Nothing is quicker than its computation, to within the clock's rounding.
    EXPECT_GE(row.step_seconds_median, 0.02 * 0.999);
    EXPECT_GT(row.exchange_seconds.value(), 0);
    ASSERT_TRUE(row.hidden);
    EXPECT_GE(*row.hidden, 0);
    EXPECT_LE(*row.hidden, 1);
  }
  config.baseline.reset();
  config.codecs = {"3lc"};
  const auto alone = run(config);
  ASSERT_EQ(alone.size(), 1U);
  EXPECT_EQ(alone[0].speedup, std::nullopt);
  EXPECT_EQ(alone[0].ceiling, std::nullopt);
}

// What both workers push goes over the server's link. One step may take from the next.
TEST(ExchangeBench, LinksOfLimitedRateTakeTheirTime) {
  auto config = lenet(2);
  config.transport = "in-process:rate=500mbit";
  const auto rows = run(config);
  for (const ExchangeBenchRow& row : rows) {
    EXPECT_GT(row.step_seconds_median, 0.9 * 2 * row.push_bytes * 8 / 500e6) << row.codec;
  }
}

TEST(ExchangeBench, TheSameSeedSendsTheSameBytes) {
  auto config = lenet(3);
  config.codecs = {"3lc:s=1.5"};
  config.baseline.reset();
  const auto first = run(config);
  const auto again = run(config);
  EXPECT_EQ(first[0].push_bytes, again[0].push_bytes);
  EXPECT_EQ(first[0].total_sent_bytes, again[0].total_sent_bytes);
  config.job.seed = 2;
  EXPECT_NE(run(config)[0].total_sent_bytes, first[0].total_sent_bytes);
}

TEST(ExchangeBench, ReplaysRecordedGradients) {
  auto config = lenet(2);
  config.codecs = {"3lc:mode=paper"};
  // All alike: no value is small enough to leave out, and five share a byte. Of those that are made
  // up hardly any is sent.
  const double ternary_bytes = 431'080.0 / 5;
  EXPECT_NEAR(run(config, Floats{1, 1, 1})[1].push_bytes, ternary_bytes, 0.02 * ternary_bytes);
  EXPECT_LT(run(config)[1].push_bytes, 0.5 * ternary_bytes);
}

TEST(ExchangeBench, BackupWorkersMayBeLeftBehind) {
  auto config = lenet(3);
  config.job.backup_workers = 1;
  config.steps = 20;
  const auto rows = run(config);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_GT(rows[0].step_seconds_median, 0);
}

TEST(ExchangeBench, WorkersMayBeAheadOfTheSlowest) {
  auto config = lenet(3);
  config.job.staleness = 2;
  config.compute_seconds = 0.002;
  config.slowest = 3;
  config.steps = 20;
  const auto rows = run(config);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_GE(rows[0].step_seconds_median, 0.002);
}

TEST(ExchangeBench, RefusesWhatMakesNoSense) {
  auto config = lenet(3);
  EXPECT_EQ(refusal(config, 4), "");
  EXPECT_NE(refusal(config, 5).find("takes 4 processes, not 5"), std::string::npos);
  config.job.exchange = "ring";
  config.codecs = {"int8", "3lc"};
  EXPECT_NE(refusal(config, 3).find("does not fit exchange ring"), std::string::npos);
  config = lenet(3);
  config.codecs = {};
  config.baseline.reset();
  EXPECT_NE(refusal(config, 4), "");
  config = lenet(3);
  config.compute_seconds = std::nan("");
  EXPECT_NE(refusal(config, 4), "");
  config = lenet(3);
  config.transport = "mpi:rate=100mbit";
  EXPECT_THROW(join_exchange_bench(config), Error);
}

TEST(GradientSource, IsFreshForEachWorkerTensorAndStep) {
  const auto tensors = model_tensors("lenet");
  const GradientSource source(tensors, 1);
  std::set<const float*> places;
  for (const std::uint64_t step : {1, 2}) {
    for (const int worker : {0, 1}) {
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        const auto gradient = source.gradient(i, worker, step);
        EXPECT_EQ(gradient.size(), tensors[i].elems());
        EXPECT_EQ(gradient.data(), source.gradient(i, worker, step).data());
        places.insert(gradient.data());
      }
    }
  }
  EXPECT_EQ(places.size(), 4 * tensors.size());
  EXPECT_FALSE(
      std::ranges::equal(source.gradient(0, 0, 1), GradientSource(tensors, 2).gradient(0, 0, 1)));
}

// Half of the dense gradients that were recorded were below 0.22 times the root of their mean
// square, which was 0.0043, and one in 2^10 above 7.8 times.
TEST(GradientSource, SpreadsValuesAsRecordedOnes) {
  const auto tensors = model_tensors("lenet");
  const GradientSource source(tensors, 3);
  ASSERT_EQ(tensors[4].kind, TensorKind::kDense);
  const auto gradient = source.gradient(4, 0, 1);
  const auto n = static_cast<double>(gradient.size());
  double squares = 0;
  for (const float value : gradient) squares += double{value} * value;
  EXPECT_NEAR(std::sqrt(squares / n), 0.0043, 0.0002);
  const auto share_above = [&](double limit) {
    return static_cast<double>(std::ranges::count_if(
               gradient, [&](float value) { return std::abs(value) > limit * 4.32e-3; })) /
           n;
  };
  EXPECT_NEAR(share_above(0.219), 0.5, 0.01);
  EXPECT_NEAR(share_above(7.81), 0x1p-10, 0x1p-12);
  EXPECT_EQ(share_above(13.2), 0);
  EXPECT_NEAR(
      static_cast<double>(std::ranges::count_if(gradient, [](float value) { return value < 0; })) /
          n,
      0.5, 0.01);
}

TEST(GradientSource, ReplaysAnArrayOverAndOver) {
  const auto tensors = model_tensors("lenet");
  const Floats recorded{0, 1, 2, 3, 4, 5, 6};
  const GradientSource source(tensors, 1, recorded);
  std::set<float> first;
  for (std::uint64_t step = 1; step <= 100; ++step) {
    const auto gradient = source.gradient(2, 0, step);
    first.insert(gradient[0]);
    for (std::size_t i = 1; i < gradient.size(); ++i) {
      ASSERT_EQ(gradient[i], std::fmod(gradient[i - 1] + 1, 7));
    }
  }
  EXPECT_EQ(first.size(), recorded.size());
  EXPECT_THROW(GradientSource(tensors, 1, Floats()), Error);
}

SharedBytes message(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return std::make_shared<const Bytes>(bytes.begin(), bytes.end());
}

TEST(RoundTransport, KeepsJobsApart) {
  const auto ends = make_in_process_network(3);
  RoundTransport node0(*ends[0]);
  RoundTransport node1(*ends[1]);
  RoundTransport node2(*ends[2]);
  node1.send(0, message("late"));  // of the job that ends, and never received
  std::thread ahead1([&] {
    EXPECT_EQ(node1.meet("b", {60s, 60s}), (std::vector<std::string>{"a", "b", "c"}));
    node1.send(0, message("of the next job"));
    EXPECT_EQ(node1.meet("e", {60s, 60s}), (std::vector<std::string>{"d", "e", "f"}));
  });
  std::thread ahead2([&] {
    node2.meet("c", {60s, 60s});
    node2.meet("f", {60s, 60s});
  });
  EXPECT_EQ(node0.meet("a", {60s, 60s}), (std::vector<std::string>{"a", "b", "c"}));
  const auto received = node0.receive(60s);
  ASSERT_TRUE(received);
  EXPECT_EQ(*received->bytes, *message("of the next job"));
  EXPECT_EQ(received->from, 1);
  EXPECT_EQ(node0.meet("d", {60s, 60s}), (std::vector<std::string>{"d", "e", "f"}));
  ahead1.join();
  ahead2.join();
  // What nodes tell each other is not the job's.
  EXPECT_EQ(node0.bytes_sent(), 0U);
  EXPECT_EQ(node0.bytes_received(), 19U);
  EXPECT_EQ(node1.bytes_sent(), 19U);
}

// Within a job the nodes' other threads receive.
TEST(RoundTransport, AwaitsTheOthersWithinAJob) {
  const auto ends = make_in_process_network(3);
  RoundTransport node0(*ends[0]);
  RoundTransport node1(*ends[1]);
  std::atomic<bool> came{false};
  std::jthread receiving0([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) EXPECT_FALSE(node0.receive(1ms));
  });
  std::jthread receiving1([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) EXPECT_FALSE(node1.receive(1ms));
  });
  std::thread waiting([&] {
    for (int round = 0; round < 3; ++round) node0.await(2, {60s, 60s});
    came = true;
  });
  node1.await(2, {60s, 60s});
  node1.await(2, {60s, 60s});
  EXPECT_FALSE(came);
  node1.await(2, {60s, 60s});
  waiting.join();
  // The others do not come.
  try {
    node0.await(3, {10ms, 10ms});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
    EXPECT_NE(std::string_view(error.what()).find("for rank 1 to end"), std::string_view::npos);
  }
  EXPECT_EQ(node0.bytes_sent(), 0U);
  EXPECT_EQ(node0.bytes_received(), 0U);
}

// Its own server's last means to others are in it.
TEST(ExchangeBench, CountsWhatColocatedServersSend) {
  ExchangeBenchConfig config = lenet(2);
  config.job.exchange = "gradient-server";
  config.job.servers = Job::kColocated;
  const double first = run(config)[1].push_bytes;
  for (int again = 0; again < 10; ++again) EXPECT_EQ(run(config)[1].push_bytes, first);
}

TEST(RoundTransport, NamesWhoIsSilent) {
  const auto ends = make_in_process_network(3);
  RoundTransport node0(*ends[0]);
  ends[1]->send(0, message("TBthere"));
  try {
    node0.meet("here", {10ms, 10ms});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
    EXPECT_NE(std::string_view(error.what()).find("rank 2"), std::string_view::npos);
  }
}

}  // namespace
}  // namespace tersewire::bench
