// Codecs that take turns in a job: nothing is lost where one follows another.
#include <fmt/format.h>

#include "exchange_suite.h"
#include "expect_error.h"

namespace tersewire {
namespace {

// Strong, then int8, then nothing: in the last steps residuals empty themselves, first at the
// workers, then up a tree and at the servers.
constexpr std::uint64_t kStepsOfRung = 4;

std::shared_ptr<const CodecLadder> downwards(std::vector<std::string> codecs) {
  const std::size_t top = codecs.size() - 1;
  return std::make_shared<CodecLadder>(
      CodecLadder{.codecs = std::move(codecs), .rung = [top](std::uint64_t step) {
                    return top - std::min<std::size_t>(top, (step - 1) / kStepsOfRung);
                  }});
}

Job ladder_job(const TestedExchange& exchange, int workers) {
  Job job = suite_job(exchange, "fp32", workers);
  job.ladder = exchange.sends == Sends::kSums ? downwards({"fp32", "int8:ef=on"})
                                              : downwards({"fp32", "int8:ef=on", "3lc", "topk"});
  return job;
}

class Ladder : public testing::TestWithParam<TestedExchange> {};

TEST_P(Ladder, LosesNothingFromOneCodecToTheNext) {
  for (const int workers : {1, 2, 4}) {
    if (workers % GetParam().workers_divide_by != 0) continue;
    const Job job = ladder_job(GetParam(), workers);
    const Behaviour behaviour{
        .steps = job.ladder->codecs.size() * kStepsOfRung, .before_step = {}, .gradient = {}};
    const Outcome outcome = run_job(job, behaviour);
    expect_no_errors(outcome);
    const auto expected = reference(job, behaviour, behaviour.steps);
    for (const Model& replica : outcome.replicas) {
      expect_equal_bits(replica, outcome.replicas.front());
      for (std::size_t tensor = 0; tensor < replica.size(); ++tensor) {
        for (std::size_t i = 0; i < replica[tensor].size(); ++i) {
          ASSERT_NEAR(replica[tensor][i], expected[tensor][i], 2e-5) << workers << " workers";
        }
      }
    }
  }
}

TEST_P(Ladder, SendsWhatTheCodecOfTheStepSends) {
  Job job = ladder_job(GetParam(), 2);
  const auto bytes = [&](std::size_t rung) {
    job.ladder = std::make_shared<CodecLadder>(
        CodecLadder{.codecs = job.ladder->codecs, .rung = [rung](std::uint64_t) { return rung; }});
    return run_job(job).counters.front().pushed_bytes;
  };
  const auto alone = [&](const std::string& codec) {
    Job fixed = job;
    fixed.ladder.reset();
    fixed.push_codec = fixed.pull_codec = codec;
    return run_job(fixed).counters.front().pushed_bytes;
  };
  for (const std::size_t rung : {0, 1}) EXPECT_EQ(bytes(rung), alone(job.ladder->codecs[rung]));
}

TEST(LadderOfCodecs, MayHaveOthersForWhatServersSend) {
  Job job = make_job(2, 1, "fp32");
  job.exchange = "gradient-server";
  const std::vector<std::string> pushed{"3lc", "3lc:s=1.75"};
  const std::vector<std::string> pulled{"int8", "3lc:ef=off"};
  for (const std::size_t rung : {0, 1}) {
    job.ladder = std::make_shared<CodecLadder>(CodecLadder{
        .codecs = pushed, .rung = [rung](std::uint64_t) { return rung; }, .pull_codecs = pulled});
    const Outcome of_ladder = run_job(job);
    Job fixed = job;
    fixed.ladder.reset();
    fixed.push_codec = pushed[rung];
    fixed.pull_codec = pulled[rung];
    const Outcome alone = run_job(fixed);
    EXPECT_EQ(of_ladder.counters.front().pulled_bytes, alone.counters.front().pulled_bytes);
    expect_equal_bits(of_ladder.replicas.front(), alone.replicas.front());
  }
  job.ladder = std::make_shared<CodecLadder>(CodecLadder{
      .codecs = pushed, .rung = [](std::uint64_t) { return 0; }, .pull_codecs = {"int8"}});
  expect_error(ErrorCode::kInvalidArgument, "2 codecs and 1 pull codec;",
               [&] { server_nodes(job); });
}

std::vector<TestedExchange> exchanges_with_ladders() {
  std::vector<TestedExchange> all;
  for (const TestedExchange& exchange : kTestedExchanges) {
    if (exchange.sends == Sends::kGradients || exchange.sends == Sends::kSums) {
      all.push_back(exchange);
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, Ladder, testing::ValuesIn(exchanges_with_ladders()), exchange_name);

TEST(LadderOfCodecs, KeepsWhatAnInputThatIsNotFiniteCannotTake) {
  Job job = make_job(1, {}, "fp32");
  job.ladder = downwards({"fp32", "3lc"});
  Outcome outcome = run_job(job, {.steps = 8, .before_step = {}, .gradient = {}});
  const Model expected = outcome.replicas.front();
  // In the first step of fp32 a tensor holds a NaN; what 3lc kept of it comes in the next.
  outcome = run_job(job, {.steps = 8,
                          .before_step = {},
                          .gradient = [](int, std::uint64_t step, std::vector<float>& values) {
                            if (step == kStepsOfRung + 1) values[0] = NAN;
                          }});
  expect_no_errors(outcome);
  for (std::size_t tensor = 0; tensor < expected.size(); ++tensor) {
    EXPECT_TRUE(std::isnan(outcome.replicas.front()[tensor][0]));
    for (std::size_t i = 1; i < expected[tensor].size(); ++i) {
      ASSERT_NEAR(outcome.replicas.front()[tensor][i], expected[tensor][i], 1e-5);
    }
  }
}

TEST(LadderOfCodecs, IsRefusedWhereWorkersAreNotAtTheSameStep) {
  const auto refused = [](const std::function<void(Job&)>& change) {
    Job job = make_job(4, {}, "fp32");
    job.ladder = downwards({"fp32", "3lc"});
    change(job);
    expect_error(ErrorCode::kInvalidArgument, "codecs take turns", [&] { server_nodes(job); });
  };
  refused([](Job& job) { job.backup_workers = 1; });
  refused([](Job& job) { job.staleness = 2; });
  refused([](Job& job) { job.local_steps = 2; });
  refused([](Job& job) {
    job.local_updates = 2;
    job.fragments = 2;
  });
  refused([](Job& job) { job.exchange = "weight-average"; });
  refused([](Job& job) { job.exchange = "gradient-server:scaler-sharing=on"; });
  Job job = make_job(4, 0, "fp32");
  job.exchange = "ring";
  job.ladder = downwards({"fp32", "3lc"});
  expect_error(ErrorCode::kInvalidArgument, "codec 3lc does not fit exchange ring",
               [&] { server_nodes(job); });
}

TEST(LadderOfCodecs, HasACodecForEveryStep) {
  Job job = make_job(1, {}, "fp32");
  const auto use = [&](std::function<std::size_t(std::uint64_t)> rung) {
    job.ladder = std::make_shared<CodecLadder>(
        CodecLadder{.codecs = {"fp32", "int8"}, .rung = std::move(rung)});
  };
  use({});
  expect_error(ErrorCode::kInvalidArgument, "no rung()", [&] { server_nodes(job); });
  for (const std::size_t missing : {std::size_t{2}, ~std::size_t{0}}) {
    use([&](std::uint64_t step) { return step == 3 ? missing : 0; });
    const Outcome outcome = run_job(job);
    EXPECT_NE(outcome.errors.front().find(fmt::format("rung {} in step 3", missing)),
              std::string::npos)
        << outcome.errors.front();
  }
}

TEST(LadderOfCodecs, SaysHowManyStepsARoundOfLocalUpdatesHas) {
  Job job = make_job(2, {}, "fp32");
  job.local_updates = 4;
  const auto with = [&](std::vector<int> steps, bool knows_ends) {
    CodecLadder ladder{.codecs = {"fp32", "3lc"},
                       .rung = [](std::uint64_t) { return std::size_t{0}; },
                       .steps = std::move(steps)};
    if (knows_ends) ladder.last_step = [](std::uint64_t exchange) { return exchange; };
    job.ladder = std::make_shared<const CodecLadder>(std::move(ladder));
    server_nodes(job);
  };
  with({1, 4}, true);
  with({2, 2}, true);
  const auto refused = [&](std::vector<int> steps, bool knows_ends, const char* why) {
    expect_error(ErrorCode::kInvalidArgument, why, [&] { with(std::move(steps), knows_ends); });
  };
  const char* const divisor = "steps for each of its codecs; give each codec a divisor of 4";
  refused({}, true, divisor);
  refused({1}, true, divisor);
  refused({1, 3}, true, divisor);
  refused({0, 4}, true, divisor);
  refused({1, 4}, false, divisor);
  job.local_updates = 0;
  refused({1, 1}, true, "only in a job with local updates");
  refused({1, 1}, false, "only in a job with local updates");
}

}  // namespace
}  // namespace tersewire
