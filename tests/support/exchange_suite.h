// Every exchange with every codec: two tables, a small job of both, and what has to come of it.
// Shared by the tests over threads and over processes.
#pragma once

#include <bit>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "exchange_test_support.h"

namespace tersewire {

// What an exchange sends, and with it which codecs it takes.
enum class Sends { kGradients, kSums, kWeights, kTernary };

struct TestedExchange {
  const char* text;
  std::optional<int> servers;
  Sends sends;
  // How many times a codec's largest error for one gradient the mean may be off.
  double (*errors)(int workers);
  int workers_divide_by = 1;
  bool raw_from_all = false;
};

// What is compressed on its way to a server or worker, and on the way back too.
inline double one_error(int /*workers*/) { return 1; }
inline double two_errors(int /*workers*/) { return 2.1; }  // the second of what the first widened
// Up a tree of aggregators with two children each, 8 workers at most, and back.
inline double errors_of_levels(int /*workers*/) { return 4.5; }
// Of weights, which grow up to the number of steps.
inline double errors_of_weights(int /*workers*/) { return 3.5; }
// A sum of h gradients is encoded after hop h, the last one for everybody.
inline double errors_of_hops(int workers) { return 1.05 * (workers + 1) / 2; }

inline const std::vector<TestedExchange> kTestedExchanges{
    {"parameter-server", 2, Sends::kGradients, two_errors},
    {"parameter-server", Job::kColocated, Sends::kGradients, two_errors},
    {"gradient-server", 2, Sends::kGradients, two_errors},
    {"gradient-server:scaler-sharing=on", 2, Sends::kTernary, two_errors},
    {"gradient-server:scaler-sharing=on", Job::kColocated, Sends::kTernary, two_errors},
    {"aggregator-tree:fan-in=2", std::nullopt, Sends::kGradients, errors_of_levels},
    {"all-gather", std::nullopt, Sends::kGradients, one_error},
    {"ring", std::nullopt, Sends::kSums, errors_of_hops},
    {"hierarchical-ring:group=2", std::nullopt, Sends::kSums, errors_of_hops, 2},
    {"hierarchical-ring:group=2,top=tree", 2, Sends::kSums, errors_of_hops, 2},
    {"parameter-server", 2, Sends::kGradients, two_errors, 1, true},
    {"ring", std::nullopt, Sends::kSums, errors_of_hops, 1, true},
    {"weight-average", std::nullopt, Sends::kWeights, errors_of_weights},
};

enum class Check {
  kBounded,   // each encoding is off by at most `error` times the largest value
  kDrained,   // all but `error` has arrived, when no gradients have followed for a while
  kUnbiased,  // errors cancel out over the steps, to `error` times the sum's norm
};

struct TestedCodec {
  const char* text;
  std::vector<Sends> fits;
  Check check;
  std::uint64_t steps;
  double error;
};

inline const std::vector<Sends> kAll{Sends::kGradients, Sends::kSums, Sends::kWeights};
inline const std::vector<Sends> kNoWeights{Sends::kGradients, Sends::kSums};
inline const std::vector<Sends> kNoSums{Sends::kGradients, Sends::kWeights};
inline const std::vector<Sends> kGradientsAlone{Sends::kGradients};

// Every codec there is.
inline const std::vector<TestedCodec> kTestedCodecs{
    {"fp32", kAll, Check::kBounded, 3, 0},
    {"fp16", kAll, Check::kBounded, 3, 0x1p-11},
    {"bf16", kAll, Check::kBounded, 3, 0x1p-9},
    {"int8", kAll, Check::kBounded, 3, 1.0 / 254},
    {"inceptionn", kAll, Check::kBounded, 3, 0x1p-10},
    {"truncate", kNoSums, Check::kBounded, 3, 0x1p-7},
    {"oland-raj:bits=8", kNoSums, Check::kBounded, 3, 0x1p-8},
    {"3lc", kGradientsAlone, Check::kDrained, 60, 1e-5},
    {"3lc:mode=paper", kGradientsAlone, Check::kDrained, 60, 1e-5},
    {"topk:fraction=0.25", kGradientsAlone, Check::kDrained, 20, 1e-5},
    // Four times a gradient, and three times back, are rounded coarser than once.
    {"dryden:fraction=0.25", kGradientsAlone, Check::kDrained, 60, 2e-5},
    {"adacomp:bin=9", kGradientsAlone, Check::kDrained, 120, 0.02},
    {"local-selection:bin=7", kGradientsAlone, Check::kDrained, 120, 0.06},
    {"mqe1bit", kGradientsAlone, Check::kDrained, 60, 0.05},
    {"signsgd", kGradientsAlone, Check::kDrained, 60, 0.1},
    {"qsgd:levels=127", kNoWeights, Check::kUnbiased, 60, 0.02},
    {"terngrad:clip=off", {Sends::kGradients, Sends::kTernary}, Check::kUnbiased, 100, 0.2},
    {"stoch3:clip=off,ef=off", {Sends::kGradients, Sends::kTernary}, Check::kUnbiased, 100, 0.2},
};

inline bool fits(const TestedExchange& exchange, const TestedCodec& codec) {
  return std::ranges::find(codec.fits, exchange.sends) != codec.fits.end();
}

// Names a test's parameter where it fails.
inline void PrintTo(const TestedExchange& exchange, std::ostream* out) {
  *out << exchange.text << (exchange.servers == Job::kColocated ? ", colocated" : "")
       << (exchange.raw_from_all ? ", raw from all" : "");
}

// The name of a test with such a parameter.
inline std::string exchange_name(const testing::TestParamInfo<TestedExchange>& info) {
  std::string name = info.param.text;
  if (info.param.servers == Job::kColocated) name += "_colocated";
  if (info.param.raw_from_all) name += "_raw_from_all";
  std::ranges::replace_if(
      name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
}

// Lengths that nothing divides; in the largest jobs some of a ring's blocks are empty.
inline Job suite_job(const TestedExchange& exchange, const std::string& codec, int workers) {
  Job job;
  job.tensors = {{"first.weight", {13, 5}, TensorKind::kDense},
                 {"first.bias", {7}, TensorKind::kBias},
                 {"last.weight", {31}, TensorKind::kDense}};
  job.exchange = exchange.text;
  job.workers = workers;
  job.servers = exchange.servers;
  job.push_codec = job.pull_codec = codec;
  job.policy = "";
  job.raw_from_all = exchange.raw_from_all;
  job.bucket_bytes = 200;
  job.deadline = job.progress_limit = 20s;
  return job;
}

// Which gradients show what a codec does.
inline Behaviour suite_behaviour(const TestedCodec& codec) {
  constexpr std::uint64_t kGradientSteps = 3;
  const auto change = [&codec](int /*worker*/, std::uint64_t step, std::vector<float>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (codec.check == Check::kDrained && step > kGradientSteps) values[i] = 0;
      // So that the sum outgrows what is random in it.
      if (codec.check == Check::kUnbiased)
        values[i] = std::copysign(values[i], i % 2 == 0 ? 1.0F : -1.0F);
      // Short enough that sums are exact in any order.
      if (codec.error == 0 && codec.check == Check::kBounded) {
        values[i] = std::rint(values[i] * 256) / 256;
      }
    }
  };
  return {.steps = codec.steps, .before_step = {}, .gradient = change};
}

// Parameters after so many steps of plain gradient descent, without any exchange.
inline std::vector<std::vector<double>> reference(const Job& job, const Behaviour& behaviour,
                                                  std::uint64_t steps) {
  std::vector<std::vector<double>> sums;
  for (std::size_t tensor = 0; tensor < job.tensors.size(); ++tensor) {
    std::vector<double>& sum = sums.emplace_back(job.tensors[tensor].elems(), 0.0);
    for (std::uint64_t step = 1; step <= steps; ++step) {
      for (int worker = 0; worker < job.workers; ++worker) {
        auto values = gradient(job, worker, step, tensor);
        if (behaviour.gradient) behaviour.gradient(worker, step, values);
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] -= values[i];
      }
    }
    for (double& value : sum) value /= job.workers;
  }
  return sums;
}

inline double largest(const std::vector<double>& values) {
  double found = 0;
  for (const double value : values) found = std::max(found, std::abs(value));
  return found;
}

inline double norm(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

// How far a value may be from the reference, where errors do not cancel out.
inline double tolerance(const TestedExchange& exchange, const TestedCodec& codec, int workers) {
  // A tree has more residuals in a row, each of which holds something back.
  if (codec.check == Check::kDrained) {
    return codec.error * std::max(1.0, exchange.errors(workers) / two_errors(workers));
  }
  // With a power of 2 of workers their weight is exact as well.
  if (codec.error == 0 && std::has_single_bit(static_cast<unsigned>(workers))) return 0;
  return codec.error * exchange.errors(workers) * static_cast<double>(codec.steps) + 1e-6;
}

inline void expect_like_reference(const TestedExchange& exchange, const TestedCodec& codec,
                                  const Job& job, const Model& model) {
  const auto expected = reference(job, suite_behaviour(codec), codec.steps);
  for (std::size_t tensor = 0; tensor < model.size(); ++tensor) {
    std::vector<double> off(model[tensor].begin(), model[tensor].end());
    for (std::size_t i = 0; i < off.size(); ++i) off[i] -= expected[tensor][i];
    if (codec.check == Check::kUnbiased) {
      EXPECT_LE(norm(off), codec.error * norm(expected[tensor])) << "tensor " << tensor;
    } else {
      EXPECT_LE(largest(off), tolerance(exchange, codec, job.workers)) << "tensor " << tensor;
    }
  }
}

}  // namespace tersewire
