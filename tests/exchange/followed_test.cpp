// Exchanges whose pushes are differences (ef=21): who averages them adds them up.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <thread>

#include "exchange_suite.h"
#include "expect_error.h"

namespace tersewire {
namespace {

constexpr const char* kCodec = "3lc:ef=21,block=64";

const TestedExchange kAllGather{"all-gather", std::nullopt, Sends::kGradients, one_error};
const TestedExchange kColocated{"gradient-server", Job::kColocated, Sends::kGradients, two_errors};

const Update kNone = [](const Part&, std::span<const float>, std::span<float>) {
  throw std::logic_error("who takes means needs no update");
};

// What is pulled is exact, so that what was pushed shows.
Job job_of(const TestedExchange& exchange, int workers = 3) {
  Job job = suite_job(exchange, kCodec, workers);
  job.pull_codec = "fp32";
  job.checksum_steps = 0;
  job.part_values = Job::kWholeTensors;
  return job;
}

using Values = std::vector<float>;
using GradientOf = std::function<Values(int worker, std::uint64_t step, std::size_t tensor)>;

// By step and tensor, worker 0's means; all workers have the same.
std::vector<Model> means_of(const Job& job, std::uint64_t steps, const GradientOf& gradient_of) {
  const auto ends = make_in_process_network(job.workers);
  std::vector<std::vector<Model>> found(static_cast<std::size_t>(job.workers));
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < found.size(); ++rank) {
    threads.emplace_back([&, rank] {
      const auto worker = make_communicator(job, *ends[rank], kNone);
      for (std::uint64_t step = 1; step <= steps; ++step) {
        worker->begin_step();
        Model& means = found[rank].emplace_back(zeros(job));
        for (std::size_t i = means.size(); i-- > 0;) {
          worker->push(i, gradient_of(static_cast<int>(rank), step, i));
        }
        for (std::size_t i = means.size(); i-- > 0;) worker->mean(i, means[i]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& of_rank : found) {
    for (std::size_t step = 0; step < steps; ++step) {
      for (std::size_t i = 0; i < of_rank[step].size(); ++i) {
        for (std::size_t j = 0; j < of_rank[step][i].size(); ++j) {
          const float mine = of_rank[step][i][j];
          const float first = found[0][step][i][j];
          EXPECT_TRUE(mine == first || (std::isnan(mine) && std::isnan(first)));
        }
      }
    }
  }
  return found[0];
}

GradientOf usual(const Job& job) {
  return [&job](int worker, std::uint64_t step, std::size_t tensor) {
    return gradient(job, worker, step, tensor);
  };
}

// What a worker's codec follows, by itself, over these steps.
Model followed_of(const Job& job, int worker, const std::vector<std::uint64_t>& steps,
                  const GradientOf& gradient_of) {
  Model followed = zeros(job);
  for (std::size_t i = 0; i < followed.size(); ++i) {
    const auto encoder = make_codec(kCodec)->make_encoder(followed[i].size());
    for (const std::uint64_t step : steps) {
      Bytes payload;
      const Encoded made = encoder->encode(gradient_of(worker, step, i), step, payload);
      decode_add(made.codec, payload, 1, followed[i]);
    }
  }
  return followed;
}

void expect_mean_of(const Job& job, const Model& mean, const std::vector<std::uint64_t>& steps,
                    const GradientOf& gradient_of) {
  Model expected = zeros(job);
  for (int worker = 0; worker < job.workers; ++worker) {
    const Model followed = followed_of(job, worker, steps, gradient_of);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      for (std::size_t j = 0; j < expected[i].size(); ++j) {
        expected[i][j] += followed[i][j] / static_cast<float>(job.workers);
      }
    }
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    for (std::size_t j = 0; j < expected[i].size(); ++j) {
      ASSERT_NEAR(mean[i][j], expected[i][j], 1e-5) << "tensor " << i << ", value " << j;
    }
  }
}

class Followers : public testing::TestWithParam<TestedExchange> {};

INSTANTIATE_TEST_SUITE_P(All, Followers, testing::Values(kAllGather, kColocated), exchange_name);

TEST_P(Followers, TakeTheMeanOfWhatIsFollowed) {
  const Job job = job_of(GetParam());
  const auto means = means_of(job, 6, usual(job));
  for (std::uint64_t step = 1; step <= 6; ++step) {
    std::vector<std::uint64_t> steps(step);
    std::iota(steps.begin(), steps.end(), 1);
    expect_mean_of(job, means[step - 1], steps, usual(job));
  }
}

TEST_P(Followers, OfOneWorkerToo) {
  const Job job = job_of(GetParam(), 1);
  const auto means = means_of(job, 3, usual(job));
  expect_mean_of(job, means[2], {1, 2, 3}, usual(job));
}

TEST_P(Followers, ComeToGradientsThatStay) {
  const Job job = job_of(GetParam());
  const GradientOf same = [&](int worker, std::uint64_t, std::size_t tensor) {
    return gradient(job, worker, 1, tensor);
  };
  const auto means = means_of(job, 60, same);
  for (std::size_t i = 0; i < job.tensors.size(); ++i) {
    Values mean(job.tensors[i].elems(), 0.0F);
    for (int worker = 0; worker < job.workers; ++worker) {
      const Values one = same(worker, 1, i);
      for (std::size_t j = 0; j < mean.size(); ++j) mean[j] += one[j] / 3;
    }
    for (std::size_t j = 0; j < mean.size(); ++j) EXPECT_NEAR(means[59][i][j], mean[j], 1e-4);
  }
}

// Steps that are sent whole: exact, and not part of what is followed.
TEST_P(Followers, WarmUpStepsAreExact) {
  Job job = job_of(GetParam());
  job.warm_up_steps = 2;
  const auto means = means_of(job, 5, usual(job));
  for (std::size_t i = 0; i < job.tensors.size(); ++i) {
    for (std::size_t j = 0; j < job.tensors[i].elems(); ++j) {
      float mean = 0;
      for (int worker = 0; worker < 3; ++worker) mean += gradient(job, worker, 2, i)[j] / 3;
      EXPECT_NEAR(means[1][i][j], mean, 1e-6);
    }
  }
  expect_mean_of(job, means[4], {3, 4, 5}, usual(job));
}

// One worker's NaN reaches everyone once, and nothing of it stays.
TEST_P(Followers, ForgetWhatIsNotFinite) {
  for (const bool raw_from_all : {false, true}) {
    Job job = job_of(GetParam());
    job.raw_from_all = raw_from_all;
    const GradientOf with_nan = [&](int worker, std::uint64_t step, std::size_t tensor) {
      Values values = gradient(job, worker, step, tensor);
      if (worker == 1 && step == 3) values[4] = std::numeric_limits<float>::quiet_NaN();
      return values;
    };
    const auto means = means_of(job, 5, with_nan);
    for (const Values& mean : means[2]) EXPECT_TRUE(std::isnan(mean[4]));
    if (raw_from_all) {
      float mean = 0;
      for (int worker = 0; worker < 3; ++worker) mean += gradient(job, worker, 3, 0)[5] / 3;
      EXPECT_NEAR(means[2][0][5], mean, 1e-6);
      expect_mean_of(job, means[4], {1, 2, 4, 5}, usual(job));
    }
    for (const Values& mean : means[4]) {
      for (const float value : mean) EXPECT_TRUE(std::isfinite(value));
    }
  }
}

// What servers send is encoded with ef=on: nothing that they send is a difference.
TEST(Followed, IsWhatIsPushedAlone) {
  for (const char* exchange : {"parameter-server", "gradient-server"}) {
    Job job = suite_job({exchange, 1, Sends::kGradients, two_errors}, kCodec, 2);
    EXPECT_EQ(followed_parts(job), std::vector<bool>(job_parts(job).size(), true));
    job.push_codec = "fp32";  // and pulls with ef=21
    EXPECT_EQ(followed_parts(job), std::vector<bool>(job_parts(job).size(), false));
  }
}

TEST(Followed, NeedsToHearOfEveryGradient) {
  const auto refused = [](const Job& job, const char* why) {
    expect_error(ErrorCode::kInvalidArgument, why, [&] { job_parts(job); });
  };
  Job job = suite_job({"parameter-server", 1, Sends::kGradients, two_errors}, kCodec, 3);
  job.backup_workers = 1;
  refused(job, "a server does not receive every gradient");
  job.backup_workers = 0;
  job.checksum_steps = 0;
  job.staleness = 2;
  refused(job, "a server does not receive every gradient");
  job = suite_job({"aggregator-tree:fan-in=2", std::nullopt, Sends::kGradients, one_error}, kCodec,
                  3);
  refused(job, "an aggregator does not receive every gradient");
  job = suite_job(kAllGather, kCodec, 3);
  job.local_updates = 4;
  refused(job, "local updates send none");
  job = suite_job(kAllGather, "3lc", 3);
  job.ladder = std::make_shared<const CodecLadder>(
      CodecLadder{.codecs = {"int8", kCodec}, .rung = [](std::uint64_t) { return 0; }});
  refused(job, "which no other codec can continue");
}

}  // namespace
}  // namespace tersewire
