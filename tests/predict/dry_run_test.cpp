// Codecs beside a training: what they would send, how often they may look.
#include "tersewire/dry_run.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

#include "expect_error.h"
#include "tersewire/codec.h"

namespace tersewire {
namespace {

const std::vector<TensorInfo> kTensors{
    {.name = "first.weight", .shape = {40, 100}, .kind = TensorKind::kDense},
    {.name = "first.bias", .shape = {100}, .kind = TensorKind::kBias},
    {.name = "last.weight", .shape = {1 << 20, 2}, .kind = TensorKind::kDense}};

std::vector<float> gradient(std::size_t tensor, std::uint64_t step) {
  std::vector<float> values(kTensors[tensor].elems());
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = std::sin(static_cast<float>(i * (tensor + 2) + 7 * step)) * 0.01F;
  }
  return values;
}

void take_steps(DryRun& run, std::uint64_t first, std::uint64_t last) {
  for (std::uint64_t step = first; step <= last; ++step) {
    for (std::size_t tensor = kTensors.size(); tensor-- > 0;) {
      run.look(tensor, step, gradient(tensor, step));
    }
  }
}

TEST(CodecList, KnowsParametersFromCodecs) {
  EXPECT_EQ(codec_list("3lc,adacomp:bin=500,lead=1,int8"),
            (std::vector<std::string>{"3lc", "adacomp:bin=500,lead=1", "int8"}));
  EXPECT_EQ(codec_list("fp32"), std::vector<std::string>{"fp32"});
  EXPECT_EQ(codec_list("lead=1,3lc"), (std::vector<std::string>{"lead=1", "3lc"}));
  EXPECT_EQ(codec_list("3lc,"), (std::vector<std::string>{"3lc", ""}));
}

// One tensor a step at first, from the last to the first.
TEST(DryRun, LooksAtEveryTensorOnce) {
  DryRun run(kTensors, {"fp32", "3lc"}, "*:fp32", 1);
  take_steps(run, 1, 2);
  auto rows = run.rows();
  ASSERT_EQ(rows.size(), 6U);
  EXPECT_EQ(rows[0].looks, 0U);
  EXPECT_EQ(run.totals()[0].looks, 0U);
  EXPECT_GT(rows[2].looks + rows[4].looks, 1U);
  take_steps(run, 3, 3);
  for (const DryRunRow& row : run.rows()) {
    EXPECT_GE(row.looks, 1U);
    EXPECT_EQ(row.bits, 32);
    EXPECT_EQ(row.error, 0);
    EXPECT_EQ(row.residual, 0);
    EXPECT_GT(row.encode_seconds, 0);
    EXPECT_GT(row.decode_seconds, 0);
  }
}

// What it says of a codec's first look is what that codec makes of the gradient.
TEST(DryRun, SaysWhatACodecMakesOfAGradient) {
  DryRun run(kTensors, {"int8:ef=on", "topk:lead=1"}, "size<256:fp32", 5);
  take_steps(run, 1, 3);
  const auto rows = run.rows();
  // Step 3 looked at the first tensor, in one part.
  const std::vector<float> values = gradient(0, 3);
  for (const std::size_t codec : {0U, 1U}) {
    const DryRunRow& row = rows[codec];
    SCOPED_TRACE(row.codec);
    ASSERT_EQ(row.looks, 1U);
    const auto encoder = make_codec(row.codec)->make_encoder(values.size(), {.seed = 5});
    Bytes payload;
    encoder->encode(values, 3, payload);
    EXPECT_EQ(row.bits, 8.0 * static_cast<double>(payload.size()) / 4000);
    double lost = 0;
    double whole = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      lost += std::pow(encoder->residual()[i], 2);
      whole += std::pow(values[i], 2);
    }
    EXPECT_NEAR(row.error, std::sqrt(lost / whole), 1e-6);
    EXPECT_NEAR(row.residual, std::sqrt(lost / whole), 1e-6);
  }
  EXPECT_EQ(rows[2].bits, 32);  // the bias, by the policy
  const auto totals = run.totals();
  ASSERT_EQ(totals.size(), 2U);
  EXPECT_EQ(totals[0].codec, "int8:ef=on");
  EXPECT_NEAR(totals[0].bits, 8, 0.1);
}

// A policy has another codec for small tensors: what is found is of that one.
TEST(DryRun, NamesTheCodecThatWasTried) {
  const DryRun run({kTensors[0], kTensors[1]}, {"3lc", "adacomp"}, "auto", 1);
  const auto rows = run.rows();
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[0].used, "3lc");
  EXPECT_EQ(rows[1].used, "adacomp");
  EXPECT_EQ(rows[2].used, make_codec("int8:ef=on")->text());
  EXPECT_EQ(rows[3].used, make_codec("fp32")->text());
  EXPECT_EQ(rows[3].codec, "adacomp");
  EXPECT_EQ(run.totals()[0].used, "");
}

TEST(DryRun, ShowsItsFindings) {
  DryRunFindings found;
  found.tensors = {{"fc.weight", {40, 100}, TensorKind::kDense},
                   {"bias", {100}, TensorKind::kBias}};
  found.share = 0.0291;
  found.totals = {{.codec = "3lc",
                   .looks = 1,
                   .bits = 1.6,
                   .error = 0.5,
                   .residual = 0.25,
                   .encode_seconds = 2e-9,
                   .decode_seconds = 1e-9},
                  {.codec = "int8", .bits = 8}};
  found.rows = {{.tensor = 0, .codec = "3lc", .looks = 3, .bits = 1.5, .error = 0.512},
                {.tensor = 0, .codec = "int8", .looks = 3, .bits = 8.01, .error = 0.0067},
                {.tensor = 1, .codec = "3lc"},
                {.tensor = 1, .codec = "int8"}};
  EXPECT_EQ(dry_run_table(found),
            "Dry run, 2.91 % of the time:\n"
            "codec    bits   smaller     lost  residual  encode, ns  decode, ns\n"
            "3lc       1.6       20x     50 %      0.25           2           1\n"
            "int8        8        4x      0 %         0           0           0\n"
            "\n"
            "Bits per value, and what was lost:\n"
            "tensor        values looks              3lc             int8\n"
            "fc.weight       4000     3      1.5, 51.2 %     8.01, 0.67 %\n"
            "bias             100     0        0,    0 %        0,    0 %\n");
}

TEST(DryRun, TakesNoMoreThanItsShare) {
  const std::vector<float> values = gradient(0, 1);
  DryRun run({kTensors[0]}, {"3lc", "terngrad", "oland-raj"}, "auto", 1);
  const auto looks = [&] { return run.rows()[0].looks; };
  run.look(0, 1, values);
  // It has taken nearly all of the time so far.
  ASSERT_EQ(looks(), 1U);
  run.look(0, 2, values);
  EXPECT_EQ(looks(), 1U);
  while (looks() == 1) {
    run.look(0, 3, values);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(looks(), 2U);
}

TEST(DryRun, LeavesOutATensorWithoutValues) {
  const TensorInfo empty{.name = "empty", .shape = {0, 7}, .kind = TensorKind::kDense};
  DryRun run({empty, kTensors[0]}, {"3lc", "int8"}, "", 1);
  run.look(0, 1, {});
  run.look(1, 1, gradient(0, 1));
  EXPECT_EQ(run.rows().size(), 2U);
  for (const DryRunRow& total : run.totals()) {
    EXPECT_EQ(total.looks, 1U);
    EXPECT_GT(total.bits, 0);
    EXPECT_TRUE(std::isfinite(total.encode_seconds));
  }
}

TEST(DryRun, LeavesOutWhatIsNotFinite) {
  DryRun run({kTensors[0]}, {"3lc"}, "auto", 1);
  std::vector<float> values = gradient(0, 1);
  values[17] = std::numeric_limits<float>::infinity();
  run.look(0, 1, values);
  EXPECT_EQ(run.rows()[0].looks, 0U);
}

TEST(DryRun, RefusesWhatMakesNoSense) {
  expect_error(ErrorCode::kInvalidArgument, "at least one tensor and one codec",
               [] { DryRun(kTensors, {}, "auto", 1); });
  expect_error(ErrorCode::kInvalidArgument, "4lc", [] { DryRun(kTensors, {"4lc"}, "auto", 1); });
  expect_error(ErrorCode::kInvalidArgument, "bits=N", [] {
    DryRun(kTensors, {"3lc", "oland-raj:bits-from=gradient"}, "auto", 1);
  });
  expect_error(ErrorCode::kInvalidArgument, "bits=N",
               [] { DryRun(kTensors, {"3lc"}, "kind=bias:oland-raj:bits-from=gradient", 1); });
  DryRun run(kTensors, {"3lc"}, "auto", 1);
  expect_error(ErrorCode::kInvalidArgument, "not part of the dry run",
               [&] { run.look(3, 1, gradient(0, 1)); });
  expect_error(ErrorCode::kInvalidArgument, "not part of the dry run",
               [&] { run.look(1, 1, gradient(0, 1)); });
}

}  // namespace
}  // namespace tersewire
