// A job whose codecs take turns: what one that chooses decides from measurements, here those of a
// modelled world, that its runs repeat from their decisions, and a later codec.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "expect_error.h"
#include "train_test_support.h"
#include "trainer/chooser/codec_pilot.h"
#include "trainer/loop/later_codec.h"
#include "trainer/loop/local_nodes.h"
#include "trainer/loop/train.h"

namespace tersewire::trainer {
namespace {

constexpr double kUnlimited = 1e13;

Job lenet(const std::string& exchange = "parameter-server", int local_updates = 0) {
  Job job;
  job.tensors = {{"conv1.weight", {20, 1, 5, 5}, TensorKind::kConv},
                 {"conv2.weight", {50, 20, 5, 5}, TensorKind::kConv},
                 {"fc1.weight", {500, 800}, TensorKind::kDense},
                 {"fc2.weight", {10, 500}, TensorKind::kDense}};
  job.workers = 4;
  job.exchange = exchange;
  job.local_updates = local_updates;
  job.ladder = std::make_shared<const CodecLadder>(ladder_for(job));
  return job;
}

// What steps take in truth.
struct World {
  Job job = lenet();
  double compute = 0.04;
  double other = 0;   // waiting for workers that share a processor
  double slower = 1;  // its codecs but fp32
  bool overlaps = true;
  double copies = 1;  // of the model that a worker sends, and is sent
  std::vector<double> more = std::vector<double>(8, 0.0);  // by rung, what no prediction knows

  [[nodiscard]] std::uint64_t steps_a_round(std::size_t rung) const {
    return job.local_updates > 0 ? static_cast<std::uint64_t>(job.ladder->steps[rung]) : 1;
  }
  [[nodiscard]] double step_seconds(std::size_t rung, double rate) const {
    Job one = job;
    one.ladder.reset();
    one.push_codec = one.pull_codec = job.ladder->codecs[rung];
    if (job.local_updates > 0) one.local_updates = job.ladder->steps[rung];
    CodecCost cost = measured_codec(one.push_codec).cost;
    if (rung > 0) cost.encode_seconds *= slower;
    if (rung > 0) cost.decode_seconds *= slower;
    const double apart = overlaps ? 0 : compute;
    return other + more[rung] + apart +
           predict_step(one, {.link = {.bits_per_second = rate},
                              .compute_seconds = compute - apart,
                              .push = cost,
                              .pull = cost})
               .step_seconds;
  }
  [[nodiscard]] MeasuredSteps steps(std::size_t rung, double rate) const {
    double values = 0;
    for (const TensorInfo& tensor : job.tensors) values += static_cast<double>(tensor.elems());
    values *= copies / static_cast<double>(steps_a_round(rung));
    const CodecCost cost = measured_codec(job.ladder->codecs[rung]).cost;
    const double times = rung > 0 ? slower : 1;
    MeasuredSteps measured{.seconds = step_seconds(rung, rate),
                           .encode_seconds = times * cost.encode_seconds * values,
                           .decode_seconds = times * cost.decode_seconds * values,
                           .pushed_bytes = values * cost.bits / 8,
                           .pulled_bytes = values * cost.bits / 8,
                           .pushed_values = values,
                           .pulled_values = values};
    measured.wait_seconds = std::max(
        measured.seconds - compute - measured.encode_seconds - measured.decode_seconds, 0.0);
    return measured;
  }
  [[nodiscard]] double best(double rate) const {
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t rung = 0; rung < job.ladder->codecs.size(); ++rung) {
      least = std::min(least, step_seconds(rung, rate));
    }
    return least;
  }
};

using RateOf = std::function<double(std::uint64_t step)>;

struct Course {
  std::vector<std::size_t> rungs;  // by step, from 1 on
  CodecDecisions decisions;
  double seconds = 0;
};

// As CodecPilot does.
Course follow(const World& world, const RateOf& rate, std::uint64_t steps,
              std::optional<double> budget = {}) {
  CodecChooser chooser(world.job, budget, world.overlaps);
  Course course;
  course.rungs = {0};
  std::map<std::pair<std::size_t, double>, double> seconds;  // of a step, by rung and rate
  std::uint64_t next_look = 2;
  for (std::uint64_t step = 1; step <= steps; ++step) {
    if (step == next_look) {
      const auto outcome = chooser.look(step, world.steps(chooser.rung(), rate(step - 1)));
      if (outcome.measured > 0) course.decisions.back().measured = outcome.measured;
      if (outcome.decision) course.decisions.push_back(*outcome.decision);
      next_look += chooser.exchanges_to_look(step, chooser.has_moved()) *
                   chooser.steps_a_round(chooser.rung());
    }
    course.rungs.push_back(chooser.rung());
    const auto [known, is_new] = seconds.try_emplace({chooser.rung(), rate(step)});
    if (is_new) known->second = world.step_seconds(chooser.rung(), rate(step));
    course.seconds += known->second;
  }
  return course;
}

RateOf always(double rate) {
  return [rate](std::uint64_t) { return rate; };
}

TEST(CodecChooser, IsNearlyAsFastAsTheBestCodecAtEveryRate) {
  for (const auto& [other, overlaps] :
       {std::pair{0.0, true}, std::pair{0.02, true}, std::pair{0.0, false}}) {
    World world;
    world.other = other;
    world.overlaps = overlaps;
    for (const double rate : {1e6, 1e7, 5e7, 1e8, 3e8, 1e9, kUnlimited}) {
      const Course course = follow(world, always(rate), 1000);
      const std::size_t last = course.rungs.back();
      EXPECT_LE(world.step_seconds(last, rate), 1.06 * world.best(rate)) << rate << " " << other;
      EXPECT_LE(course.seconds, 1.1 * 1000 * world.best(rate)) << rate << " " << other;
      EXPECT_LE(course.seconds, 1.03 * 1000 * world.step_seconds(0, rate)) << rate << " " << other;
    }
  }
}

TEST(CodecChooser, CompressesWhereTheLinkIsSlowAndNotWhereItIsFast) {
  const World world;
  EXPECT_EQ(follow(world, always(1e6), 100).rungs.back(), world.job.ladder->codecs.size() - 1);
  EXPECT_EQ(follow(world, always(kUnlimited), 100).rungs.back(), 0U);
  // What is not clear from one step is decided after some more.
  EXPECT_EQ(follow(world, always(1e6), 100).rungs[2], world.job.ladder->codecs.size() - 1);
  const Course at_once = follow(world, always(3e9), 100);
  EXPECT_LT(world.step_seconds(0, 3e9), 2 * world.best(3e9));
  EXPECT_GT(world.step_seconds(0, 3e9), 1.1 * world.best(3e9));
  EXPECT_EQ(at_once.rungs[11], 0U);
  EXPECT_GT(at_once.rungs[12], 0U);
}

TEST(CodecChooser, FollowsALinkWithin50StepsBothWays) {
  World world;
  world.compute = 0.4;
  const auto rate = [](std::uint64_t step) { return step <= 200 || step > 400 ? 1e8 : 5e6; };
  const Course course = follow(world, rate, 600);
  for (const std::uint64_t step : {200, 250, 400, 450, 600}) {
    EXPECT_LE(world.step_seconds(course.rungs[step], rate(step)), 1.06 * world.best(rate(step)))
        << step;
  }
  EXPECT_GT(course.rungs[250], course.rungs[200]);
  EXPECT_EQ(course.rungs[450], course.rungs[200]);
  // One rung at a time, but for the first looks.
  for (std::size_t step = 13; step < course.rungs.size(); ++step) {
    EXPECT_LE(std::max(course.rungs[step], course.rungs[step - 1]) -
                  std::min(course.rungs[step], course.rungs[step - 1]),
              1U);
  }
}

TEST(CodecChooser, TriesALighterCodecThatIsPredictedToBeAlmostAsFast) {
  World world;
  world.compute = 0.012;
  constexpr double kRate = 5e9;
  const std::size_t predicted = follow(world, always(kRate), 400).rungs.back();
  ASSERT_GT(predicted, 1U);
  for (std::size_t rung = 2; rung < world.job.ladder->codecs.size(); ++rung)
    world.more[rung] = 0.004;
  const Course course = follow(world, always(kRate), 1000);
  EXPECT_LT(world.step_seconds(1, kRate), world.step_seconds(predicted, kRate) / 1.1);
  // It looks whether the stronger one pays again, ever less often.
  EXPECT_EQ(course.rungs.back(), 1U);
  EXPECT_LE(course.seconds, 1.1 * 1000 * world.step_seconds(1, kRate));
  EXPECT_TRUE(std::ranges::any_of(course.decisions, [](const CodecDecision& each) {
    return each.sentence.find("int8:ef=on has not been measured yet") != std::string::npos;
  }));
}

TEST(CodecChooser, KnowsASlowLinkStillWhenTwoStrongCodecsAreAlike) {
  World world;
  world.compute = 1;
  constexpr double kRate = 5e6;
  CodecChooser chooser(world.job, {});
  chooser.begin(1, true);
  std::uint64_t step = 1;
  const auto look = [&] { chooser.look(++step, world.steps(chooser.rung(), kRate)); };
  look();
  ASSERT_EQ(chooser.rung(), 2U);  // the link was seen by what int8 waited for it
  look();
  EXPECT_NEAR(chooser.bits_per_second() / kRate, 1, 0.5);
  ASSERT_EQ(chooser.rung(), 3U);
  // Which happens to bring nothing.
  MeasuredSteps no_faster = world.steps(3, kRate);
  const double more = 1.01 * world.steps(2, kRate).seconds - no_faster.seconds;
  no_faster.seconds += more;
  no_faster.wait_seconds += more;
  chooser.look(++step, no_faster);
  ASSERT_EQ(chooser.rung(), 2U);
  for (int k = 0; k < 3; ++k) {
    look();
    EXPECT_GE(chooser.rung(), 2U);
    EXPECT_LT(chooser.bits_per_second(), 10 * kRate);
  }
}

TEST(CodecChooser, TakesLocalUpdatesWhereTheJobMayAndTheLinkNeedsThem) {
  World world;
  world.job = lenet("all-gather", 10);
  world.overlaps = false;
  const CodecLadder& ladder = *world.job.ladder;
  EXPECT_EQ(ladder.codecs, (std::vector<std::string>{"fp32", "int8:ef=on", "3lc", "3lc:s=1.75",
                                                     "3lc", "3lc:s=1.75"}));
  EXPECT_EQ(ladder.steps, (std::vector<int>{1, 1, 1, 1, 10, 10}));
  for (const double rate : {1e5, 1e6, 1e7, 1e8, 1e9, kUnlimited}) {
    const Course course = follow(world, always(rate), 2000);
    const std::size_t last = course.rungs.back();
    EXPECT_LE(world.step_seconds(last, rate), 1.06 * world.best(rate)) << rate;
    EXPECT_LE(course.seconds, 1.1 * 2000 * world.best(rate) + world.step_seconds(0, rate) +
                                  30 * world.step_seconds(3, rate))
        << rate;
    for (const CodecDecision& each : course.decisions) {
      ASSERT_GT(each.local_updates, 0);
      EXPECT_EQ((each.step - 1) % static_cast<std::uint64_t>(each.local_updates), 0U);
    }
  }
  const Course slow = follow(world, always(1e5), 100);
  EXPECT_EQ(slow.rungs.back(), 5U);
  EXPECT_EQ(slow.rungs[2], 3U);
  EXPECT_EQ(slow.rungs[10], 3U);  // until a longer round can begin
  ASSERT_GT(slow.decisions.size(), 1U);
  EXPECT_TRUE(slow.decisions[1].sentence.starts_with("step 11: "));
  EXPECT_NE(slow.decisions[1].sentence.find("from 3lc:s=1.75 to 3lc once in 10 steps"),
            std::string::npos)
      << slow.decisions[1].sentence;
  EXPECT_EQ(follow(world, always(kUnlimited), 100).rungs.back(), 0U);
}

TEST(CodecChooser, DoesNotTakeWaitingForOtherReasonsForTheLinks) {
  World world;
  world.other = 0.04;  // as long as computation
  const Course course = follow(world, always(kUnlimited), 400);
  EXPECT_EQ(course.rungs.back(), 0U);
  EXPECT_LE(std::ranges::count_if(course.rungs, [](std::size_t rung) { return rung > 0; }), 8);
}

TEST(CodecChooser, SwitchesItselfOffWhereCodecsCostMoreThanTheySave) {
  World world;
  world.slower = 40;
  CodecChooser chooser(world.job, {});
  chooser.begin(2, true);
  std::uint64_t step = 1;
  for (int look = 0; look < 6; ++look) chooser.look(++step, world.steps(chooser.rung(), 1e10));
  EXPECT_EQ(chooser.rung(), 0U);
}

TEST(CodecChooser, ComesBackFromACodecThatDidNotPayAndSaysSo) {
  const World world;
  CodecChooser chooser(world.job, {});
  chooser.begin(0, true);
  MeasuredSteps slow = world.steps(0, 1e8);
  const auto there = chooser.look(10, slow);
  ASSERT_TRUE(there.decision);
  EXPECT_EQ(there.decision->codec, world.job.ladder->codecs[1]);
  EXPECT_GT(there.decision->expected, 1.05);
  MeasuredSteps slower = world.steps(1, 1e8);
  slower.seconds = 1.1 * slow.seconds;  // whatever the reason
  slower.wait_seconds += slower.seconds - world.steps(1, 1e8).seconds;
  const auto back = chooser.look(14, slower);
  EXPECT_NEAR(back.measured, 1 / 1.1, 1e-9);
  ASSERT_TRUE(back.decision);
  EXPECT_EQ(back.decision->codec, "fp32");
  EXPECT_NE(
      back.decision->sentence.find("step 14: with int8:ef=on a step is 0.91 times as fast, not "),
      std::string::npos)
      << back.decision->sentence;
  // Not at once again, though the link seems to take as long as before.
  EXPECT_FALSE(chooser.look(18, slow).decision);
  EXPECT_EQ(chooser.rung(), 0U);
}

TEST(CodecChooser, SaysWhatItExpectsAndWhy) {
  const Course course = follow(World(), always(1e8), 100);
  ASSERT_FALSE(course.decisions.empty());
  const CodecDecision& first = course.decisions.front();
  EXPECT_EQ(first.step, 2U);
  EXPECT_TRUE(first.sentence.starts_with("step 2: the link takes 9"));
  EXPECT_NE(first.sentence.find("of a step; from fp32 to 3lc"), std::string::npos);
  EXPECT_NEAR(first.expected, first.measured, 0.3 * first.measured);
}

TEST(CodecChooser, KeepsABudgetWhereAWorkerSendsSeveralCopies) {
  World world;
  const auto bytes_of_day = [&](std::size_t rung) {
    const MeasuredSteps steps = world.steps(rung, kUnlimited);
    return (steps.pushed_bytes + steps.pulled_bytes) / steps.seconds * 86400;
  };
  const double budget = 1.05 * bytes_of_day(1);
  world.copies = 7;
  const Course course = follow(world, always(kUnlimited), 200, budget);
  EXPECT_GT(course.rungs.back(), 1U);
  EXPECT_LE(bytes_of_day(course.rungs.back()), budget);
}

TEST(CodecChooser, KeepsABudgetByTheLightestCodecThatDoes) {
  const World world;
  const auto of_day = [&](std::size_t rung) {
    const MeasuredSteps steps = world.steps(rung, kUnlimited);
    return (steps.pushed_bytes + steps.pulled_bytes) / steps.seconds * 86400;
  };
  for (std::size_t rung = 1; rung < world.job.ladder->codecs.size(); ++rung) {
    const Course course = follow(world, always(kUnlimited), 200, 1.05 * of_day(rung));
    EXPECT_EQ(course.rungs.back(), rung);
  }
  const Course course = follow(world, always(kUnlimited), 200, 0.5 * of_day(3));
  EXPECT_EQ(course.rungs.back(), 3U);
  EXPECT_NE(course.decisions.back().sentence.find("nothing that auto may choose stays within the"),
            std::string::npos);
  EXPECT_EQ(std::ranges::count_if(course.decisions,
                                  [](const CodecDecision& each) {
                                    return each.sentence.find("nothing that auto") !=
                                           std::string::npos;
                                  }),
            1);
}

TEST(CodecLadderFor, IsOfCodecsThatFitTheExchange) {
  EXPECT_EQ(lenet("ring").ladder->codecs, (std::vector<std::string>{"fp32", "int8:ef=on"}));
  EXPECT_EQ(lenet("ring", 4).ladder->codecs,
            (std::vector<std::string>{"fp32", "int8:ef=on", "int8:ef=on"}));
  EXPECT_EQ(lenet("ring", 4).ladder->steps, (std::vector<int>{1, 1, 4}));
  EXPECT_EQ(lenet("ring", 1).ladder->steps, (std::vector<int>{1, 1}));
  EXPECT_EQ(lenet("all-gather").ladder->codecs,
            (std::vector<std::string>{"fp32", "int8:ef=on", "3lc", "3lc:s=1.75"}));
}

TEST(Budget, IsBytesADay) {
  EXPECT_EQ(budget_bytes_a_day(""), std::nullopt);
  EXPECT_EQ(budget_bytes_a_day("2GB/day"), 2e9);
  EXPECT_EQ(budget_bytes_a_day("0.5TB/day"), 5e11);
  for (const char* bad : {"2GB", "GB/day", "-1GB/day", "0GB/day", "2 GB/day", "nanGB/day"}) {
    expect_error(ErrorCode::kInvalidArgument, "is not a budget; write 2GB/day",
                 [&] { budget_bytes_a_day(bad); });
  }
}

TEST(CodecDecisions, GoIntoACheckpointAndBack) {
  const CodecDecisions all{{.step = 1, .codec = "fp32", .sentence = "step 1: begins"},
                           {.step = 12,
                            .codec = "3lc:s=1.75",
                            .local_updates = 5,
                            .expected = 3.1,
                            .measured = 2.9,
                            .sentence = "step 12: more"}};
  const CodecDecisions read = decisions_in(text_of(all));
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(text_of(read), text_of(all));
  EXPECT_EQ(read[1].measured, 2.9);
  EXPECT_EQ(read[1].local_updates, 5);
  EXPECT_TRUE(decisions_in("").empty());
  for (const char* bad : {"1", "{}", "[1]", "[", R"([{"codec":"fp32"}])", R"([{"step":1}])",
                          R"([{"step":2,"codec":"fp32"},{"step":2,"codec":"3lc"}])",
                          R"([{"step":1,"codec":"fp32","local_updates":3000000000}])",
                          "1\tfp32\t0\t0\t0\tas an older version wrote it\n", "1\tfp32\t0\n"}) {
    expect_error(ErrorCode::kDataLoss, "are damaged", [&] { decisions_in(bad); });
  }
}

TEST(DecidedRungs, KnowWhichStepsAnExchangeIsFor) {
  const Job job = lenet("all-gather", 10);
  DecidedRungs rungs(*job.ladder);
  EXPECT_EQ(rungs.last_step(0), 0U);
  EXPECT_EQ(rungs.exchange_of(1), 1U);
  rungs.add({.first = 1, .last = 5, .rung = 0});
  rungs.add({.first = 6, .last = 10, .rung = 3});
  rungs.add({.first = 11, .last = 13, .rung = 5});
  rungs.add({.first = 14, .last = 14, .rung = 1});
  EXPECT_EQ(rungs.last_step(10), 10U);
  EXPECT_EQ(rungs.last_step(11), 20U);
  EXPECT_EQ(rungs.last_step(13), 40U);
  EXPECT_EQ(rungs.last_step(14), 41U);
  for (const auto& [step, exchange] :
       {std::pair{5, 5}, {10, 10}, {11, 11}, {20, 11}, {21, 12}, {40, 13}, {41, 14}, {42, 15}}) {
    EXPECT_EQ(rungs.exchange_of(static_cast<std::uint64_t>(step)),
              static_cast<std::uint64_t>(exchange))
        << step;
  }
  expect_error(ErrorCode::kFailedPrecondition, "for exchange 15",
               [&] { static_cast<void>(rungs.last_step(15)); });
  // Each node of a process hears of all.
  rungs.add({.first = 11, .last = 13, .rung = 5});
  EXPECT_EQ(rungs.last_step(14), 41U);
}

// Runs.
constexpr std::uint64_t kSteps = 24;
constexpr std::uint64_t kBetween = 8;

TrainConfig auto_job(const std::string& exchange = "parameter-server",
                     std::optional<int> servers = {}) {
  TrainConfig config;
  config.model = "small-mlp";
  config.job.workers = 3;
  config.job.servers = servers;
  config.steps = kSteps;
  config.batch = 4;
  config.job.exchange = exchange;
  config.job.push_codec = config.job.pull_codec = kAutoCodec;
  return config;
}

// Over every kind of rung, changing within and at the ends of what is saved.
CodecDecisions decided(const std::string& exchange) {
  if (exchange == "ring")
    return {{.step = 1, .codec = "int8:ef=on"},
            {.step = 6, .codec = "fp32"},
            {.step = 9, .codec = "int8:ef=on"},
            {.step = 17, .codec = "fp32"}};
  return {{.step = 1, .codec = "3lc"},         {.step = 5, .codec = "int8:ef=on"},
          {.step = 7, .codec = "fp32"},        {.step = 9, .codec = "3lc"},
          {.step = 13, .codec = "3lc:s=1.75"}, {.step = 20, .codec = "fp32"}};
}

TEST(AutoCodec, RepeatsToTheBitFromItsDecisions) {
  for (const auto& [exchange, servers] :
       {std::pair<std::string, std::optional<int>>{"parameter-server", 2},
        {"parameter-server", Job::kColocated},
        {"aggregator-tree:fan-in=2", {}},
        {"all-gather", {}},
        {"ring", {}}}) {
    SCOPED_TRACE(exchange);
    const TrainConfig config = auto_job(exchange, servers);
    const CodecDecisions replay = decided(exchange);
    TrainHooks hooks;
    std::vector<std::string> codecs;
    hooks.replay = &replay;
    hooks.on_step = [&](const StepReport& report) { codecs.push_back(report.codec); };
    const TrainResult once = train(config, small_data(), hooks);
    EXPECT_EQ(train(config, small_data(), hooks).parameters_checksum, once.parameters_checksum);
    EXPECT_EQ(codecs[4], replay[1].step == 5 ? replay[1].codec : replay[0].codec);
    EXPECT_EQ(codecs[kSteps - 1], "fp32");
    // And the decisions are what makes it.
    CodecDecisions other = replay;
    other.pop_back();
    hooks.replay = &other;
    EXPECT_NE(train(config, small_data(), hooks).parameters_checksum, once.parameters_checksum);
  }
}

TEST(AutoCodec, RepeatsItsOwnDecisions) {
  const TrainConfig config = auto_job();
  CodecDecisions made;
  TrainHooks hooks;
  hooks.on_decision = [&](const CodecDecisions& all) { made = all; };
  const TrainResult once = train(config, small_data(), hooks);
  ASSERT_FALSE(made.empty());
  EXPECT_EQ(made.front().step, 1U);
  EXPECT_EQ(made.front().codec, "fp32");
  hooks = {};
  hooks.replay = &made;
  EXPECT_EQ(train(config, small_data(), hooks).parameters_checksum, once.parameters_checksum);
}

// A job that may make 4 local updates.
TrainConfig rarer(TrainConfig config) {
  config.job.local_updates = 4;
  config.outer = "sgd:lr=0.9";
  return config;
}

CodecDecisions decided_rarer(const std::string& exchange) {
  if (exchange == "ring")
    return {{.step = 1, .codec = "fp32", .local_updates = 1},
            {.step = 5, .codec = "int8:ef=on", .local_updates = 4},
            {.step = 13, .codec = "int8:ef=on", .local_updates = 1}};
  return {{.step = 1, .codec = "3lc", .local_updates = 1},
          {.step = 5, .codec = "3lc:s=1.75", .local_updates = 4},
          {.step = 13, .codec = "int8:ef=on", .local_updates = 1},
          {.step = 17, .codec = "3lc", .local_updates = 4}};
}

TEST(AutoCodec, WithLocalUpdatesIsTheSameAsTheyAreOnOneRung) {
  for (const auto& [exchange, servers] :
       {std::pair<std::string, std::optional<int>>{"parameter-server", 2},
        {"parameter-server", Job::kColocated},
        {"all-gather", {}}}) {
    SCOPED_TRACE(exchange);
    for (const int steps : {1, 4}) {
      TrainConfig config = rarer(auto_job(exchange, servers));
      config.steps = kSteps - 2;  // within a round
      const CodecDecisions replay{{.step = 1, .codec = "3lc", .local_updates = steps}};
      TrainHooks hooks;
      hooks.replay = &replay;
      const TrainResult chosen = train(config, small_data(), hooks);
      // In rounds of one step the lead of every step.
      config.job.push_codec = config.job.pull_codec = steps == 1 ? "3lc:lead=2" : "3lc";
      config.job.local_updates = steps;
      const TrainResult fixed = train(config, small_data(), {});
      EXPECT_EQ(chosen.parameters_checksum, fixed.parameters_checksum);
      EXPECT_EQ(chosen.worker_counters.pushed_bytes, fixed.worker_counters.pushed_bytes);
    }
  }
}

TEST(AutoCodec, RepeatsToTheBitWhereRoundsChangeTheirLength) {
  for (const auto& [exchange, servers] :
       {std::pair<std::string, std::optional<int>>{"parameter-server", 2},
        {"gradient-server", Job::kColocated},
        {"aggregator-tree:fan-in=2", {}},
        {"all-gather", {}},
        {"ring", {}}}) {
    SCOPED_TRACE(exchange);
    const TrainConfig config = rarer(auto_job(exchange, servers));
    const CodecDecisions replay = decided_rarer(exchange);
    TrainHooks hooks;
    std::vector<std::string> codecs;
    hooks.replay = &replay;
    hooks.on_step = [&](const StepReport& report) { codecs.push_back(report.codec); };
    const TrainResult once = train(config, small_data(), hooks);
    EXPECT_EQ(train(config, small_data(), hooks).parameters_checksum, once.parameters_checksum);
    EXPECT_EQ(codecs[4], replay[1].codec);
    EXPECT_EQ(codecs[12], replay[2].codec);
    // 4 exchanges, 2, and those of the rest.
    const TrainResult longer = [&] {
      CodecDecisions other = replay;
      other.resize(1);
      hooks.replay = &other;
      return train(config, small_data(), hooks);
    }();
    EXPECT_LT(once.worker_counters.pushed_values, longer.worker_counters.pushed_values);
  }
}

TEST(AutoCodec, DecidesOnLocalUpdatesByItself) {
  TrainConfig config = rarer(auto_job("all-gather"));
  config.steps = 60;
  CodecDecisions made;
  TrainHooks hooks;
  hooks.on_decision = [&](const CodecDecisions& all) { made = all; };
  config.transport = "in-process:rate=200kbit";
  const TrainResult once = train(config, small_data(), hooks);
  ASSERT_GT(made.size(), 1U);
  EXPECT_EQ(made.front().codec, "fp32");
  EXPECT_EQ(made.back().local_updates, 4) << made.back().sentence;
  config.transport = "in-process";
  hooks = {};
  hooks.replay = &made;
  EXPECT_EQ(train(config, small_data(), hooks).parameters_checksum, once.parameters_checksum);
}

// Calls go_on(checkpoint, its step, the checksum without one) for two steps of a run.
void go_on_from_checkpoints(
    TrainConfig config, TrainHooks hooks,
    const std::function<void(const JobCheckpoint&, std::uint64_t, const std::string&)>& go_on) {
  config.job.state_steps = kBetween;
  Checkpoints saved(config);
  hooks.on_checkpoint = saved.hooks().on_checkpoint;
  const TrainResult whole = train(config, small_data(), hooks);
  for (const std::uint64_t step : {kBetween, 2 * kBetween}) {
    go_on(saved.after(step), step, whole.parameters_checksum);
  }
}

void goes_on_to_the_bit(TrainConfig config, const CodecDecisions& replay) {
  TrainHooks hooks;
  hooks.replay = &replay;
  go_on_from_checkpoints(
      config, hooks,
      [&](const JobCheckpoint& checkpoint, std::uint64_t step, const std::string& checksum) {
        config.job.state_steps = kBetween;
        EXPECT_EQ(train(config, small_data(), hooks, &checkpoint).parameters_checksum, checksum)
            << step;
        // Without them it goes on deciding, from the codec that it had.
        CodecDecisions made;
        TrainHooks deciding;
        deciding.on_decision = [&](const CodecDecisions& all) { made = all; };
        train(config, small_data(), deciding, &checkpoint);
        ASSERT_GE(made.size(), replay.size());
        EXPECT_EQ(text_of(CodecDecisions(made.begin(), made.begin() + 2)),
                  text_of(CodecDecisions(replay.begin(), replay.begin() + 2)));
      });
}

TEST(AutoCodec, GoesOnFromACheckpointToTheBit) {
  for (const std::string exchange : {"parameter-server", "ring"}) {
    SCOPED_TRACE(exchange);
    goes_on_to_the_bit(auto_job(exchange), decided(exchange));
  }
}

TEST(AutoCodec, GoesOnFromACheckpointToTheBitWhereRoundsChangeTheirLength) {
  for (const auto& [exchange, servers] :
       {std::pair<std::string, std::optional<int>>{"parameter-server", 2},
        {"gradient-server", Job::kColocated},
        {"all-gather", {}},
        {"ring", {}}}) {
    SCOPED_TRACE(exchange);
    goes_on_to_the_bit(rarer(auto_job(exchange, servers)), decided_rarer(exchange));
  }
}

TEST(AutoCodec, GoesOnWithOtherNumbersOfNodesWhereRoundsChangeTheirLength) {
  for (const auto& [exchange, servers] :
       {std::pair<std::string, std::optional<int>>{"parameter-server", 2}, {"all-gather", {}}}) {
    SCOPED_TRACE(exchange);
    const CodecDecisions replay = decided_rarer(exchange);
    TrainHooks hooks;
    hooks.replay = &replay;
    TrainConfig config = rarer(auto_job(exchange, servers));
    go_on_from_checkpoints(
        config, hooks,
        [&](const JobCheckpoint& checkpoint, std::uint64_t step, const std::string&) {
          config.job.workers = 2;
          if (servers) config.job.servers = 1;
          const TrainResult result = train(config, small_data(), hooks, &checkpoint);
          EXPECT_EQ(result.resumed_after, step);
          EXPECT_EQ(result.steps, kSteps);
        });
  }
}

void expect_refused(TrainConfig config, const std::string& part,
                    const std::function<void(TrainConfig&)>& change) {
  change(config);
  expect_error(ErrorCode::kInvalidArgument, part, [&] { check(config, small_data()); });
}

TEST(AutoCodec, IsRefusedWhereItMakesNoSense) {
  const auto refused = [](const std::string& part,
                          const std::function<void(TrainConfig&)>& change) {
    expect_refused(auto_job(), part, change);
  };
  refused("use another exchange than weight-average",
          [](TrainConfig& config) { config.job.exchange = "weight-average"; });
  refused("codecs take turns", [](TrainConfig& config) { config.job.local_steps = 5; });
  refused("an outer optimizer's momentum needs rounds of equal length", [](TrainConfig& config) {
    config.job.local_updates = 4;
    config.outer = "nesterov";
  });
  refused("codecs take turns", [](TrainConfig& config) {
    config.job.local_updates = 4;
    config.job.fragments = 2;
  });
  refused("codecs take turns", [](TrainConfig& config) { config.job.backup_workers = 1; });
  refused("codec auto chooses for both directions",
          [](TrainConfig& config) { config.job.pull_codec = "fp32"; });
  refused("a budget is kept by choosing codecs", [](TrainConfig& config) {
    config.budget = "2GB/day";
    config.job.push_codec = config.job.pull_codec = "3lc";
  });
  refused("is not a budget", [](TrainConfig& config) { config.budget = "much"; });
  const CodecDecisions unknown{{.step = 1, .codec = "topk"}};
  TrainHooks hooks;
  hooks.replay = &unknown;
  expect_error(ErrorCode::kInvalidArgument, "the decisions name codec topk",
               [&] { train(auto_job(), small_data(), hooks); });
  const CodecDecisions within_a_round{{.step = 1, .codec = "fp32", .local_updates = 1},
                                      {.step = 4, .codec = "3lc", .local_updates = 4}};
  hooks.replay = &within_a_round;
  expect_error(ErrorCode::kInvalidArgument, "do not begin and end with rounds of 4 steps",
               [&] { train(rarer(auto_job()), small_data(), hooks); });
  expect_error(ErrorCode::kInvalidArgument, "the decisions name codec fp32 with 1 local updates",
               [&] { train(auto_job(), small_data(), hooks); });
  const CodecDecisions late{{.step = 2, .codec = "fp32"}};
  hooks.replay = &late;
  expect_error(ErrorCode::kInvalidArgument, "do not begin with step 1",
               [&] { train(auto_job(), small_data(), hooks); });
}

// A job with a later codec, after half of its steps, and the decisions that come to the same.
struct Turn {
  TrainConfig config;
  CodecDecisions decisions;
};

Turn turn(TrainConfig config, int local_updates = 0) {
  const bool ring = config.job.exchange == "ring";
  const std::string first = ring ? "fp32" : "3lc";
  const std::string later = ring ? "int8:ef=on" : "3lc:s=1.75";
  config.job.push_codec = config.job.pull_codec = first;
  config.later_codec = "50%:" + later;
  return {.config = std::move(config),
          .decisions = {{.step = 1, .codec = first, .local_updates = local_updates},
                        {.step = 13, .codec = later, .local_updates = local_updates}}};
}

void comes_to_what_is_decided(const Turn& turn, const char* auto_pull = kAutoCodec) {
  TrainHooks hooks;
  std::vector<std::string> codecs;
  hooks.on_step = [&](const StepReport& report) { codecs.push_back(report.codec); };
  const TrainResult result = train(turn.config, small_data(), hooks);
  EXPECT_EQ(codecs[11], turn.decisions[0].codec);
  EXPECT_EQ(codecs[12], turn.decisions[1].codec);
  TrainConfig chosen = turn.config;
  chosen.later_codec.clear();
  chosen.job.push_codec = kAutoCodec;
  chosen.job.pull_codec = auto_pull;
  hooks = {};
  hooks.replay = &turn.decisions;
  EXPECT_EQ(train(chosen, small_data(), hooks).parameters_checksum, result.parameters_checksum);
}

TEST(LaterCodec, TakesTheFirstOnesPlaceAsIfThatHadBeenDecided) {
  for (const auto& [exchange, servers] :
       {std::pair<std::string, std::optional<int>>{"parameter-server", 2},
        {"gradient-server", Job::kColocated},
        {"all-gather", {}},
        {"ring", {}}}) {
    SCOPED_TRACE(exchange);
    comes_to_what_is_decided(turn(auto_job(exchange, servers)));
    if (exchange != "ring") comes_to_what_is_decided(turn(rarer(auto_job(exchange, servers)), 4));
  }
}

// Whatever that of the first is, unless it was named.
TEST(LaterCodec, HasItsOwnDefaultForWhatServersSend) {
  const auto turns_to = [](const std::string& optimizer, const std::string& first,
                           const std::string& later) {
    TrainConfig config = auto_job("gradient-server");
    config.optimizer = optimizer;
    config.learning_rate = 0.001;
    config.job.push_codec = config.job.pull_codec = first;
    config.later_codec = "50%:" + later;
    return Turn{.config = std::move(config),
                .decisions = {{.step = 1, .codec = first}, {.step = 13, .codec = later}}};
  };
  comes_to_what_is_decided(turns_to("adam", "fp32", "3lc"), kAutoPullWithoutResidual);
  comes_to_what_is_decided(turns_to("adam", "3lc", "3lc:s=1.75"));  // which was named
  comes_to_what_is_decided(turns_to("sgd", "fp32", "3lc"));
}

// Means of its 3lc, whether decided on or not, are then those of a job that has that codec alone.
TEST(LaterCodec, KeepsNoResidualOfMeansWhereTheFirstHasNone) {
  Turn without = turn(auto_job("gradient-server"));
  without.config.job.pull_codec = "3lc:ef=off";
  comes_to_what_is_decided(without, kAutoPullWithoutResidual);
  const auto checksum = [](const TrainConfig& config, const CodecDecisions* replay = nullptr) {
    TrainHooks hooks;
    hooks.replay = replay;
    return train(config, small_data(), hooks).parameters_checksum;
  };
  EXPECT_NE(checksum(without.config), checksum(turn(auto_job("gradient-server")).config));
  TrainConfig chosen = auto_job("gradient-server");
  chosen.job.pull_codec = kAutoPullWithoutResidual;
  const CodecDecisions throughout{{.step = 1, .codec = "3lc"}};
  TrainConfig alone = chosen;
  alone.job.push_codec = "3lc";
  alone.job.pull_codec = "3lc:ef=off";
  EXPECT_EQ(checksum(chosen, &throughout), checksum(alone));
}

TEST(LaterCodec, GoesOnFromACheckpointToTheBit) {
  TrainConfig without = turn(auto_job("gradient-server")).config;
  without.job.pull_codec = "3lc:ef=off";
  for (const TrainConfig& config : {turn(auto_job()).config, turn(auto_job("ring")).config,
                                    turn(rarer(auto_job("all-gather"))).config, without}) {
    SCOPED_TRACE(config.job.exchange);
    go_on_from_checkpoints(
        config, {},
        [&](const JobCheckpoint& checkpoint, std::uint64_t step, const std::string& checksum) {
          EXPECT_EQ(train(config, small_data(), {}, &checkpoint).parameters_checksum, checksum)
              << step;
        });
  }
}

TEST(LaterCodec, Texts) {
  for (const auto& [text, after, codec] :
       {std::tuple{"40%:3lc:s=1.75", 160U, "3lc:s=1.75"}, std::tuple{"0.4%:topk", 2U, "topk"},
        std::tuple{"399:int8", 399U, "int8"}}) {
    const LaterCodec later = later_codec(text, 400);
    EXPECT_EQ(later.after, after) << text;
    EXPECT_EQ(later.codec, codec) << text;
  }
  for (const std::string text :
       {"3lc", "40%", "40%:", "40:", "0:3lc", "0%:3lc", "100%:3lc", "400:3lc", "-1:3lc", "2.5:3lc",
        "nan:3lc", "nan%:3lc", "40% 3lc"}) {
    expect_error(ErrorCode::kInvalidArgument, "is not a later codec for a job of 400 steps",
                 [&] { later_codec(text, 400); });
  }
}

TEST(LaterCodec, KeepsItsPartOfAnotherJob) {
  EXPECT_EQ(scaled_later_codec("100:3lc:s=1.75", 400), "25%:3lc:s=1.75");
  EXPECT_EQ(scaled_later_codec("0.4%:topk", 400), "0.4%:topk");
  EXPECT_EQ(later_codec(scaled_later_codec("133:int8", 399), 3).after, 1U);
  expect_error(ErrorCode::kInvalidArgument, "is not a later codec for a job of 400 steps",
               [&] { scaled_later_codec("400:3lc", 400); });
}

TEST(LaterCodec, IsRefusedWhereItMakesNoSense) {
  const auto refused = [](const std::string& part,
                          const std::function<void(TrainConfig&)>& change) {
    expect_refused(turn(auto_job()).config, part, change);
  };
  refused("codec auto chooses later codecs itself",
          [](TrainConfig& config) { config.job.push_codec = config.job.pull_codec = kAutoCodec; });
  refused("codec auto chooses later codecs itself",
          [](TrainConfig& config) { config.later_codec = "10:auto"; });
  refused("they begin with 3lc and fp32",
          [](TrainConfig& config) { config.job.pull_codec = "fp32"; });
  refused("is for the mean gradients of gradient-server", [](TrainConfig& config) {
    config.later_codec.clear();
    config.job.push_codec = kAutoCodec;
    config.job.pull_codec = kAutoPullWithoutResidual;
  });
  refused("they have 3lc and auto:ef=off", [](TrainConfig& config) {
    config.later_codec.clear();
    config.job.pull_codec = kAutoPullWithoutResidual;
  });
  refused("they begin with 3lc and 3lc:s=1.75,ef=off",
          [](TrainConfig& config) { config.job.pull_codec = "3lc:s=1.75,ef=off"; });
  refused("codecs take turns", [](TrainConfig& config) { config.job.backup_workers = 1; });
  refused("gzip", [](TrainConfig& config) { config.later_codec = "10:gzip"; });
}

}  // namespace
}  // namespace tersewire::trainer
