// Predictions of step times, against cases worked by hand and the formulas of the papers.
#include "tersewire/predict.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "flows.h"
#include "tersewire/codec.h"
#include "tersewire/error.h"

namespace tersewire {
namespace {

constexpr double kMillion = 1 << 20;
constexpr double kRate = 1e8;
// Seconds of a byte on the link, with its share of the headers.
constexpr double kBeta = 8 / kRate * 1514 / 1448;
constexpr double kAlpha = 0.02;
// Heads of frames and messages are that little of a mebivalue.
constexpr double kHeads = 2e-3;

// So many tensors of 2^20 values, each a bucket of its own unless the whole model is to be one.
Job job_of(const std::string& exchange, int workers, std::size_t tensors = 1) {
  Job job;
  for (std::size_t i = 0; i < tensors; ++i) {
    job.tensors.push_back({.name = "fc" + std::to_string(i),
                           .shape = {1 << 10, 1 << 10},
                           .kind = TensorKind::kDense});
  }
  job.exchange = exchange;
  job.workers = workers;
  job.push_codec = job.pull_codec = "fp32";
  job.bucket_bytes = 1 << 22;
  return job;
}

// Codecs take no time.
StepConditions conditions(double compute_seconds = 0) {
  const CodecCost free{.bits = 32};
  return {.link = {.bits_per_second = kRate, .latency_seconds = kAlpha},
          .compute_seconds = compute_seconds,
          .push = free,
          .pull = free};
}

constexpr double kBytes = 4 * kMillion;  // of one tensor in fp32

void expect_about(double seconds, double expected) {
  EXPECT_NEAR(seconds, expected, kHeads * expected);
}

TEST(Flows, AreServedInTheOrderOfTheirArrival) {
  // The second finds server 0 busy until 3, and takes 4 of server 1, free already, meanwhile.
  const std::vector<Flow> flows = {{.ready_seconds = 1, .stages = {{{{0, 2}}, 0.5}, {{{1, 1}}, 0}}},
                                   {.ready_seconds = 2, .stages = {{{{0, 1}, {1, 4}}, 0.25}}}};
  // 1 + 2 + 0.5, then behind the other's 2 + 4 on server 1; 2 + 4 + 0.25.
  EXPECT_EQ(ends_of(flows, 2), (std::vector<double>{7, 6.25}));
}

// Half each from 1 on, until the shorter one has had its 2; the longer one then has 1 left.
TEST(Flows, MayShareAServer) {
  const std::vector<Flow> flows = {{.ready_seconds = 0, .stages = {{{{0, 4}}, 0.5}}},
                                   {.ready_seconds = 1, .stages = {{{{0, 2}}, 0}}}};
  EXPECT_EQ(ends_of(flows, 1, 1), (std::vector<double>{6.5, 5}));
  EXPECT_EQ(ends_of(flows, 1, 0), (std::vector<double>{4.5, 6}));
}

TEST(Flows, WithoutStagesEndWhenTheyBegin) {
  EXPECT_EQ(ends_of({{.ready_seconds = 3, .stages = {}}}, 0), std::vector<double>{3});
}

// INCEPTIONN, section VII: 2 (p - 1) alpha + 2 (p - 1) / p n beta.
TEST(PredictStep, ARingTakesWhatItsFormulaSays) {
  for (const int p : {2, 4, 8}) {
    const double expected = 2 * (p - 1) * kAlpha + 2.0 * (p - 1) / p * kBytes * kBeta;
    expect_about(predict_step(job_of("ring", p), conditions()).step_seconds, expected);
  }
}

// Its third term, with the decoding of the second loop and the owner's own: 2 p - 1 blocks.
TEST(PredictStep, ARingsCodecIsPaidHopByHop) {
  StepConditions costly = conditions();
  costly.push->decode_seconds = 1e-8;
  const double expected = 7.0 / 4 * kMillion * 1e-8;
  EXPECT_NEAR(predict_step(job_of("ring", 4), costly).codec_seconds, expected, 1e-9);
}

// Pushes through the server's link, then pulls.
TEST(PredictStep, AServersLinkCarriesEveryWorkers) {
  const double expected = 2 * (kAlpha + 5 * kBytes * kBeta);
  const StepPrediction step = predict_step(job_of("parameter-server", 5), conditions());
  expect_about(step.step_seconds, expected);
  expect_about(step.busiest_bytes, 5 * kBytes * 1514 / 1448);
  expect_about(step.sent_bytes, kBytes * 1514 / 1448);
  expect_about(step.received_bytes, kBytes * 1514 / 1448);
}

// The second bucket is pushed while the first is pulled.
TEST(PredictStep, BucketsFollowEachOther) {
  const double expected = 2 * kAlpha + 3 * 5 * kBytes * kBeta;
  expect_about(predict_step(job_of("parameter-server", 5, 2), conditions()).step_seconds, expected);
}

// Over MPI both pushes end when all is pushed, and the pulls come after.
TEST(PredictStep, MessagesThatShareALinkAllArriveLate) {
  StepConditions shared = conditions();
  shared.link.is_shared = true;
  const double expected = 2 * kAlpha + 4 * 5 * kBytes * kBeta;
  expect_about(predict_step(job_of("parameter-server", 5, 2), shared).step_seconds, expected);
}

TEST(PredictStep, ColocatedServersShareTheLinks) {
  Job job = job_of("parameter-server", 4, 4);
  job.servers = Job::kColocated;
  const StepPrediction step = predict_step(job, conditions());
  // Each owns one of four: three pushes and three times its pull leave each node.
  expect_about(step.sent_bytes, 6 * kBytes * 1514 / 1448);
  expect_about(step.busiest_bytes, 6 * kBytes * 1514 / 1448);
  EXPECT_GE(step.step_seconds, 6 * kBytes * kBeta);
}

TEST(PredictStep, AllGatherSendsToAllOthers) {
  const double expected = kAlpha + 6 * kBytes * kBeta;
  expect_about(predict_step(job_of("all-gather", 7), conditions()).step_seconds, expected);
}

// Two levels of two children: up twice and down twice, two messages a link each time.
TEST(PredictStep, ATreeIsClimbedLevelByLevel) {
  const double expected = 4 * (kAlpha + 2 * kBytes * kBeta);
  expect_about(predict_step(job_of("aggregator-tree:fan-in=2", 4), conditions()).step_seconds,
               expected);
}

// Groups of 4, 2 of them: 3 hops of a quarter, 2 of an eighth, 3 of a quarter.
TEST(PredictStep, AHierarchicalRingHasFewerHops) {
  const double expected = 8 * kAlpha + (3.0 / 4 + 2.0 / 8 + 3.0 / 4) * kBytes * kBeta;
  expect_about(predict_step(job_of("hierarchical-ring:group=4", 8), conditions()).step_seconds,
               expected);
}

// 3 hops of a quarter, a quarter to the server, whose link carries two groups' four, and back.
TEST(PredictStep, AServerAboveRingsCarriesAGroupsBlocks) {
  const double expected = 8 * kAlpha + (3.0 / 4 + 2 + 2 + 3.0 / 4) * kBytes * kBeta;
  const Job job = job_of("hierarchical-ring:group=4,top=tree", 8);
  expect_about(predict_step(job, conditions()).step_seconds, expected);
}

TEST(PredictStep, AveragesOfWeightsAreSharedByTheirSteps) {
  const double once = kAlpha + 3 * kBytes * kBeta;
  expect_about(predict_step(job_of("weight-average:every=10", 4), conditions()).step_seconds,
               once / 10);
}

TEST(PredictStep, WhoWaitsForNobodyTakesWhatItComputes) {
  const Job job = job_of("weight-average:mode=asynchronous", 4);
  EXPECT_DOUBLE_EQ(predict_step(job, conditions(3)).step_seconds, 3);
  expect_about(predict_step(job, conditions(0.1)).step_seconds, kBytes * kBeta);
}

// Each sends to one other, and decodes what one other sends, however many there are.
TEST(PredictStep, WhoWaitsForNobodyDecodesWhatOneSends) {
  StepConditions costly = conditions();
  costly.push->decode_seconds = 1e-6;
  const auto seconds = [&](int workers) {
    return predict_step(job_of("weight-average:mode=asynchronous", workers), costly).step_seconds;
  };
  EXPECT_NEAR(seconds(64), seconds(2), 0.1 * kMillion * 1e-6);
}

// Nothing leaves before a round trip after the last gradient, and sums of 8 digits take one of 17
// levels each.
TEST(PredictStep, SharedScalersAreAgreedOnFirst) {
  StepConditions ternary = conditions();
  ternary.push->bits = ternary.pull->bits = 1.23;
  Job job = job_of("gradient-server", 8);
  job.push_codec = job.pull_codec = "terngrad";
  const StepPrediction plain = predict_step(job, ternary);
  job.exchange = "gradient-server:scaler-sharing=on";
  const StepPrediction shared = predict_step(job, ternary);
  EXPECT_GT(shared.busiest_bytes, 3 * plain.busiest_bytes);
  const double longer = 8 * (std::log2(17) - 1.23) / 8 * kMillion * kBeta;
  expect_about(shared.step_seconds, plain.step_seconds + 2 * kAlpha + longer);
}

// One exchange in four steps; the other three take what they compute.
TEST(PredictStep, LocalStepsAndUpdatesShareAnExchange) {
  const double every = predict_step(job_of("ring", 4), conditions(0.1)).step_seconds;
  Job job = job_of("ring", 4);
  job.local_steps = 4;
  EXPECT_NEAR(predict_step(job, conditions(0.1)).step_seconds, (every + 3 * 0.1) / 4, 1e-9);
  job.local_steps = 1;
  job.local_updates = 4;
  EXPECT_NEAR(predict_step(job, conditions(0.1)).step_seconds, (every + 3 * 0.1) / 4, 1e-9);
}

// The last layer's gradient is there after a third of the step, the first one's after two; the
// first one's parameters are wanted at once, the last one's a sixth later.
TEST(PredictStep, ComputationHidesWhatItCan) {
  Job job = job_of("all-gather", 2, 2);
  const double wire = kBytes * kBeta;  // 0.35 s a tensor
  StepConditions long_steps = conditions(60);
  long_steps.link.latency_seconds = 0;
  const StepPrediction step = predict_step(job, long_steps);
  // Of the first tensor nothing can be hidden, of the other all.
  EXPECT_NEAR(step.step_seconds, 60 + wire, kHeads * wire);
  EXPECT_EQ(step.wire_seconds, 0);
  EXPECT_NEAR(step.waiting_seconds, wire, kHeads * wire);
}

TEST(PredictStep, PartsAddUp) {
  for (const char* exchange : {"parameter-server", "ring", "all-gather", "aggregator-tree"}) {
    StepConditions measured;
    measured.link = {.bits_per_second = 1e9, .latency_seconds = 1e-3};
    measured.compute_seconds = 0.05;
    Job job = job_of(exchange, 8, 6);
    job.push_codec = job.pull_codec = "int8";
    const StepPrediction step = predict_step(job, measured);
    EXPECT_NEAR(
        step.step_seconds,
        step.compute_seconds + step.codec_seconds + step.wire_seconds + step.waiting_seconds,
        1e-12);
    for (const double part : {step.codec_seconds, step.wire_seconds, step.waiting_seconds}) {
      EXPECT_GE(part, 0) << exchange;
    }
    EXPECT_EQ(step.compute_seconds, 0.05);
    EXPECT_GT(step.codec_seconds, 0) << exchange;
  }
}

TEST(PredictStep, WithoutANetworkToWaitForAStepIsItsComputation) {
  StepConditions fast = conditions(0.5);
  fast.link = {.bits_per_second = 1e18, .latency_seconds = 0};
  for (const char* exchange : {"parameter-server", "ring", "all-gather"}) {
    EXPECT_NEAR(predict_step(job_of(exchange, 4, 3), fast).step_seconds, 0.5, 1e-6) << exchange;
  }
  EXPECT_EQ(predict_step(job_of("all-gather", 1), conditions(0.5)).step_seconds, 0.5);
}

// Two transfers of the model, log2 of 4, before the network has it.
TEST(PredictStep, GpusOfAMachineAddUpFirst) {
  StepConditions machine = conditions();
  machine.gpus_per_node = 4;
  machine.intra_bits_per_second = 1e9;
  const double within = 2 * 8 * kBytes / 1e9;
  const double between = kAlpha + kBytes * kBeta;
  const StepPrediction step = predict_step(job_of("all-gather", 2), machine);
  expect_about(step.step_seconds, within + between);
  expect_about(step.busiest_bytes, kBytes * 1514 / 1448);
}

// What a policy sends otherwise counts as that.
TEST(PredictStep, SmallTensorsTravelAsThePolicySays) {
  Job job = job_of("all-gather", 2);
  job.push_codec = job.pull_codec = "3lc:mode=paper";
  job.policy = "*:fp32";
  StepConditions tiny = conditions();
  tiny.push->bits = tiny.pull->bits = 0.1;
  expect_about(predict_step(job, tiny).sent_bytes, kBytes * 1514 / 1448);
  job.policy = "";
  EXPECT_LT(predict_step(job, tiny).sent_bytes, kBytes / 250);
}

TEST(PredictStep, APolicysCodecCountsWithItsParameters) {
  StepConditions measured;
  measured.link = conditions().link;
  Job job = job_of("parameter-server", 2);
  const auto sent = [&](const char* codec, const char* policy) {
    job.push_codec = job.pull_codec = codec;
    job.policy = policy;
    return predict_step(job, measured).busiest_bytes;
  };
  EXPECT_EQ(sent("int8", "*:3lc:s=2"), sent("3lc:s=2", ""));
  EXPECT_LT(sent("int8", "*:3lc:s=2"), sent("int8", "*:3lc"));
  // What is said of the job's codec is not said of the same one with other parameters.
  measured.push = measured.pull = CodecCost{.bits = 32};
  EXPECT_LT(sent("3lc", "*:3lc:s=2"), sent("3lc", "") / 50);
}

std::string refusal(const Job& job, const StepConditions& wrong) {
  try {
    predict_step(job, wrong);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
}

TEST(PredictStep, RefusesWhatMakesNoSense) {
  const Job job = job_of("ring", 4);
  StepConditions wrong = conditions();
  wrong.link.bits_per_second = 0;
  EXPECT_NE(refusal(job, wrong).find("link rate"), std::string::npos);
  wrong = conditions();
  wrong.link.latency_seconds = -1;
  EXPECT_NE(refusal(job, wrong).find("latency"), std::string::npos);
  wrong = conditions(NAN);
  EXPECT_NE(refusal(job, wrong).find("computation"), std::string::npos);
  wrong = conditions();
  wrong.push->bits = -1;
  EXPECT_NE(refusal(job, wrong).find("bits"), std::string::npos);
  wrong = conditions();
  wrong.gpus_per_node = 2;
  EXPECT_NE(refusal(job, wrong).find("within a machine"), std::string::npos);
  Job long_step = job_of("ring", 4096);
  long_step.bucket_bytes = 1;
  long_step.part_values = 256;
  EXPECT_NE(refusal(long_step, conditions()).find("too long to simulate"), std::string::npos);
  Job sparse = job;
  sparse.push_codec = "3lc";
  EXPECT_NE(refusal(sparse, conditions()).find("every hop"), std::string::npos);
}

// Equations 17 and 15, by hand: 10^9 bits take 0.1 s within a machine and 1 s between two.
TEST(TernGradModel, AddsUpTransfers) {
  const LinkSpeed link{.bits_per_second = 1e9, .latency_seconds = 0.01};
  EXPECT_NEAR(terngrad_step_seconds(Scaling::kWeak, 4, 8, 1.25e8, 2, 1e10, link),
              2 + 0.1 * 2 + 1.01 * 3, 1e-12);
  EXPECT_NEAR(terngrad_step_seconds(Scaling::kStrong, 4, 8, 1.25e8, 2, 1e10, link),
              (2 - 0.1) / 32 + 0.1 + 0.1 * 2 + 1.01 * 3, 1e-12);
  EXPECT_EQ(terngrad_step_seconds(Scaling::kWeak, 1, 1, 1.25e8, 2, 0, link), 2);
  EXPECT_THROW(terngrad_step_seconds(Scaling::kWeak, 0, 1, 1, 1, 1, link), Error);
  EXPECT_THROW(terngrad_step_seconds(Scaling::kWeak, 1, 1, 1, 1, 1, {}), Error);
}

TEST(MeasuredCodecs, AreAllThereAre) {
  for (const CodecDescription& codec : codec_descriptions()) {
    EXPECT_EQ(measured_codec(codec.name).codec, codec.name);
  }
  for (const MeasuredCodec& measured : measured_codecs()) {
    EXPECT_EQ(make_codec(measured.codec)->text().substr(0, 2), measured.codec.substr(0, 2));
    EXPECT_GT(measured.cost.bits, 0);
    EXPECT_LE(measured.cost.bits, 32);
    EXPECT_EQ(measured_codec(make_codec(measured.codec)->text()).codec, measured.codec);
    EXPECT_GT(measured.cost.encode_seconds, 0);
  }
  EXPECT_EQ(measured_codec("3lc:s=1.3").codec, "3lc");
  EXPECT_THROW(measured_codec("4lc"), Error);
}

}  // namespace
}  // namespace tersewire
