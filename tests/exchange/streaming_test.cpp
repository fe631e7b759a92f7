// Local updates of which fragments take turns, and whose results are taken later.
#include <cmath>
#include <exception>
#include <future>

#include "../../src/communicator/place_job.h"
#include "exchange_test_support.h"
#include "expect_error.h"

namespace tersewire {
namespace {

// Averaging with this rate at the owners of the model.
Update averaging(float rate) {
  return [rate](const Part&, std::span<const float> mean, std::span<float> delta) {
    std::ranges::transform(mean, delta.begin(), [rate](float value) { return -rate * value; });
  };
}

constexpr float kRate = 0.5F;

// A step of plain descent with rate 1 by each worker itself.
void descend_alone(const Job& job, int worker, std::uint64_t step, std::size_t tensor,
                   std::vector<float>& parameters) {
  const std::vector<float> values = gradient(job, worker, step, tensor);
  for (std::size_t i = 0; i < values.size(); ++i) parameters[i] -= values[i];
}

void pull_all(Communicator& worker, Model& replica) {
  for (std::size_t i = 0; i < replica.size(); ++i) worker.pull(i, replica[i]);
}

void take_step(const Job& job, int rank, Communicator& worker, Model& replica) {
  const std::uint64_t step = worker.begin_step();
  pull_all(worker, replica);
  for (std::size_t i = replica.size(); i-- > 0;) {
    descend_alone(job, rank, step, i, replica[i]);
    worker.push(i, replica[i]);
  }
}

Outcome run_streaming(const Job& job, std::uint64_t steps) {
  const auto ends = make_in_process_network(job.workers + server_nodes(job));
  Outcome outcome = empty_outcome(job);
  std::vector<std::thread> nodes;
  for (const auto& end : ends) {
    nodes.emplace_back([&, rank = end->rank()] {
      const auto number = static_cast<std::size_t>(rank);
      const Update update = needs_update(job, rank) ? averaging(kRate) : Update();
      try {
        if (rank >= job.workers) {
          run_server(job, *end, update);
          return;
        }
        Model& replica = outcome.replicas[number];
        const auto worker = make_communicator(job, *end, update);
        for (std::uint64_t step = 1; step <= steps; ++step) take_step(job, rank, *worker, replica);
        worker->finish(spans(replica));
      } catch (const std::exception& error) {
        outcome.errors[number] = error.what();
      }
    });
  }
  for (std::thread& node : nodes) node.join();
  return outcome;
}

// The same by what the options say, in double precision and without any exchange.
class Reference {
 public:
  explicit Reference(const Job& job)
      : job_(job),
        placement_(place_job(job)),
        turn_(job.steps_a_round() / static_cast<std::uint64_t>(job.fragments)),
        delay_(static_cast<std::uint64_t>(job.delay)),
        shared_(values()),
        own_(static_cast<std::size_t>(job.workers), values()) {}

  std::vector<std::vector<double>> after(std::uint64_t steps) {
    for (std::uint64_t step = 1; step <= steps; ++step) {
      if (step > 1 + delay_ && (step - 1 - delay_) % turn_ == 0) take(step - 1 - delay_);
      descend(step);
      if (step % turn_ == 0) exchange(fragment_after(step));
    }
    if (steps % job_.steps_a_round() == 0) return shared_;
    const std::uint64_t last = steps / turn_ * turn_;
    if (last > 0 && steps < last + 1 + delay_) take(last);
    const std::uint64_t had_theirs = steps % job_.steps_a_round() / turn_;
    for (std::uint64_t i = had_theirs; i < static_cast<std::uint64_t>(job_.fragments); ++i) {
      exchange(i);
    }
    return shared_;
  }

 private:
  using Values = std::vector<std::vector<double>>;

  [[nodiscard]] Values values() const {
    Values model;
    for (const TensorInfo& tensor : job_.tensors) model.emplace_back(tensor.elems(), 0.0);
    return model;
  }
  [[nodiscard]] std::uint64_t fragment_after(std::uint64_t step) const {
    return (step / turn_ - 1) % static_cast<std::uint64_t>(job_.fragments);
  }
  template <typename Task>
  void for_values(std::uint64_t fragment, const Task& task) {
    for (const Part& part : placement_->parts) {
      if (placement_->fragment_of[part.number] != fragment) continue;
      for (std::size_t i = part.begin; i < part.begin + part.elems; ++i) task(part.tensor, i);
    }
  }
  void descend(std::uint64_t step) {
    for (int worker = 0; worker < job_.workers; ++worker) {
      Values& own = own_[static_cast<std::size_t>(worker)];
      for (std::size_t tensor = 0; tensor < own.size(); ++tensor) {
        for (std::size_t i = 0; i < own[tensor].size(); ++i) {
          own[tensor][i] -= gradient_value(worker, step, tensor, i);
        }
      }
    }
  }
  void exchange(std::uint64_t fragment) {
    for_values(fragment, [&](std::size_t tensor, std::size_t i) {
      double sum = 0;
      for (const Values& own : own_) sum += shared_[tensor][i] - own[tensor][i];
      shared_[tensor][i] -= kRate * sum / job_.workers;
    });
    begun_with_ = own_;
  }
  void take(std::uint64_t after_step) {
    for_values(fragment_after(after_step), [&](std::size_t tensor, std::size_t i) {
      for (std::size_t worker = 0; worker < own_.size(); ++worker) {
        double& own = own_[worker][tensor][i];
        own = shared_[tensor][i] + own - begun_with_[worker][tensor][i];
      }
    });
  }

  const Job& job_;
  std::shared_ptr<const Placement> placement_;
  std::uint64_t turn_;
  std::uint64_t delay_;
  Values shared_;
  std::vector<Values> own_;
  std::vector<Values> begun_with_;  // own_ when the last exchange began
};

Job streaming_job(const std::string& exchange, int workers, int local_updates, int fragments,
                  int delay = 0) {
  Job job = job_for(exchange, workers, "fp32");
  job.part_values = 256;
  job.policy = "";
  job.local_updates = local_updates;
  job.fragments = fragments;
  job.delay = delay;
  job.checksum_steps = 1;
  return job;
}

class StreamingTest : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Exchanges, StreamingTest,
                         testing::Values("parameter-server", "gradient-server",
                                         "aggregator-tree:fan-in=2", "all-gather", "ring",
                                         "hierarchical-ring:group=2",
                                         "hierarchical-ring:group=2,top=tree"));

// After whole rounds, within one, and before the last turn's result is due.
TEST_P(StreamingTest, WorkersShareWhatTheOptionsSay) {
  const std::vector<Job> jobs{
      streaming_job(GetParam(), 4, 6, 3), streaming_job(GetParam(), 4, 6, 1, 4),
      streaming_job(GetParam(), 4, 6, 2, 2)};
  for (Job job : jobs) {
    for (const bool colocated : {false, true}) {
      if (colocated && job.exchange != "parameter-server") continue;
      if (colocated) job.servers = Job::kColocated;
      for (const std::uint64_t steps : {18, 19, 20, 21, 16, 2}) {
        SCOPED_TRACE(testing::Message() << job.fragments << " fragments, delay " << job.delay
                                        << ", " << steps << " steps");
        const Outcome outcome = run_streaming(job, steps);
        expect_no_errors(outcome);
        const auto expected = Reference(job).after(steps);
        for (const Model& replica : outcome.replicas) {
          expect_equal_bits(outcome.replicas[0], replica);
        }
        for (std::size_t tensor = 0; tensor < expected.size(); ++tensor) {
          for (std::size_t i = 0; i < expected[tensor].size(); ++i) {
            ASSERT_NEAR(outcome.replicas[0][tensor][i], expected[tensor][i], 2e-5);
          }
        }
      }
    }
  }
}

// Values that are not finite travel as they are, agreed on among workers, or not.
TEST_P(StreamingTest, FragmentsAgreeOnWhatTravelsRaw) {
  Job job = streaming_job(GetParam(), 2, 4, 2, 1);
  if (job.exchange == "aggregator-tree:fan-in=2") job.workers = 3;
  job.raw_from_all = true;
  const Outcome outcome = run_streaming(job, 8);
  expect_no_errors(outcome);
  for (const Model& replica : outcome.replicas) expect_equal_bits(outcome.replicas[0], replica);
}

// What one link has to carry at once, in bytes.
TEST(Streaming, ATurnTakesItsShareOfARound) {
  const auto most_in_a_step = [](int fragments) {
    Job job = streaming_job("all-gather", 1, 8, fragments);
    job.checksum_steps = 0;
    job.workers = 2;
    job.part_values = 64;
    const auto ends = make_in_process_network(2);
    std::vector<std::unique_ptr<Communicator>> workers;
    std::vector<Model> replicas(2, zeros(job));
    for (const auto& end : ends) workers.push_back(make_communicator(job, *end, averaging(kRate)));
    std::uint64_t before = 0;
    std::uint64_t most = 0;
    for (int step = 1; step <= 16; ++step) {
      for (const int rank : {0, 1}) {
        take_step(job, rank, *workers[static_cast<std::size_t>(rank)],
                  replicas[static_cast<std::size_t>(rank)]);
      }
      const std::uint64_t pushed = workers[0]->counters().pushed_bytes;
      most = std::max(most, pushed - before);
      before = pushed;
    }
    std::thread other([&] { workers[1]->finish(spans(replicas[1])); });
    workers[0]->finish(spans(replicas[0]));
    other.join();
    return most;
  };
  const auto whole = static_cast<double>(most_in_a_step(1));
  EXPECT_LE(static_cast<double>(most_in_a_step(2)), 0.55 * whole);
  EXPECT_LE(static_cast<double>(most_in_a_step(4)), 0.30 * whole);
}

// Nobody waits for it before its time: worker 0 computes on alone for as long as the delay says.
TEST(Streaming, AnExchangeHidesBehindTheDelay) {
  constexpr int kUpdates = 6;
  constexpr int kDelay = 4;
  Job job = streaming_job("all-gather", 2, kUpdates, 1, kDelay);
  job.checksum_steps = 0;
  const auto ends = make_in_process_network(2);
  const auto first = make_communicator(job, *ends[0], averaging(kRate));
  const auto second = make_communicator(job, *ends[1], averaging(kRate));
  Model replica = zeros(job);
  Model other = zeros(job);
  for (int step = 1; step <= kUpdates + kDelay; ++step) take_step(job, 0, *first, replica);
  for (int step = 1; step <= kUpdates + kDelay; ++step) take_step(job, 1, *second, other);
  EXPECT_NE(replica[2], other[2]);
  first->begin_step();
  const Model before = replica;
  pull_all(*first, replica);
  EXPECT_NE(replica[2], before[2]);
  EXPECT_LT(first->counters().wait_seconds, 1.0) << "what it pulled had been sent";
  std::thread last([&] { second->finish(spans(other)); });
  first->finish(spans(replica));
  last.join();
  expect_equal_bits(replica, other);
}

TEST(Streaming, WhatWasLostIsNoMoreThanARound) {
  for (const int fragments : {1, 2}) {
    const Job job = streaming_job("all-gather", 2, 4, fragments);
    const auto ends = make_in_process_network(2);
    std::string sentence;
    std::promise<void> as_far;
    std::thread survivor([&] {
      Model replica = zeros(job);
      const auto worker = make_communicator(job, *ends[0], averaging(kRate));
      try {
        for (int step = 1; step <= 9; ++step) take_step(job, 0, *worker, replica);
        as_far.set_value();
        for (;;) take_step(job, 0, *worker, replica);
      } catch (const Error& error) {
        sentence = error.what();
      }
    });
    {
      Model replica = zeros(job);
      const auto worker = make_communicator(job, *ends[1], averaging(kRate));
      for (int step = 1; step <= 9; ++step) take_step(job, 1, *worker, replica);
      as_far.get_future().wait();
    }
    survivor.join();
    // Of two fragments the second had its turn after step 8, and the first after step 6.
    const std::string words = fragments == 1 ? "what they learned up to step 8," : "up to step 6,";
    EXPECT_NE(sentence.find("worker 1 left the job"), std::string::npos) << sentence;
    EXPECT_NE(sentence.find(words + " and no more than a round after it is lost"),
              std::string::npos)
        << sentence;
  }
}

void expect_refused(const Job& job, const std::string& words) {
  expect_error(ErrorCode::kInvalidArgument, words, [&] { server_nodes(job); });
}

TEST(Streaming, ThatMakesNoSenseIsRefused) {
  expect_refused(streaming_job("ring", 2, 4, 0), "at least 1 fragment, not 0");
  expect_refused(streaming_job("ring", 2, 4, 2, -1), "at least 0 steps, not -1");
  expect_refused(streaming_job("ring", 2, 0, 2), "this job makes none");
  expect_refused(streaming_job("ring", 2, 0, 1, 3), "this job makes none");
  expect_refused(streaming_job("ring", 2, 5, 2),
                 "2 fragments cannot take turns of equal length in 5");
  expect_refused(streaming_job("ring", 2, 8, 2, 4),
                 "below a turn of 4 steps (8 local updates / 2 fragments)");
  expect_refused(streaming_job("ring", 2, 70, 70), "no more than 5 parts");
  Job whole = streaming_job("ring", 2, 4, 4);
  whole.part_values = Job::kWholeTensors;
  expect_refused(whole, "no more than 3 parts");
  Job job = streaming_job("parameter-server", 3, 8, 2);
  job.backup_workers = 1;
  expect_refused(job, "use 1 fragment, or 0 backup workers");
  job = streaming_job("gradient-server:scaler-sharing=on", 2, 8, 2);
  job.push_codec = "terngrad";
  expect_refused(job, "scaler sharing agrees on all tensors at once");
}

// Every owner's share of one fragment is about that of another.
TEST(Streaming, FragmentsAreEvenAtEveryServer) {
  Job job = streaming_job("parameter-server", 4, 8, 4);
  job.tensors.clear();
  for (int i = 0; i < 40; ++i) {
    job.tensors.push_back(
        {"t" + std::to_string(i), {static_cast<std::uint64_t>(100 + 17 * i)}, TensorKind::kDense});
  }
  job.servers = 2;
  const auto placement = place_job(job);
  std::vector<std::vector<std::size_t>> elems(2, std::vector<std::size_t>(4, 0));
  for (const Part& part : placement->parts) {
    const auto owner = static_cast<std::size_t>(placement->owners[part.number] - job.workers);
    elems[owner][placement->fragment_of[part.number]] += part.elems;
  }
  for (const auto& of_owner : elems) {
    const auto total = static_cast<double>(of_owner[0] + of_owner[1] + of_owner[2] + of_owner[3]);
    EXPECT_LT(static_cast<double>(*std::ranges::max_element(of_owner)), 0.3 * total);
  }
  for (const auto& bucket : placement->buckets) {
    for (const std::size_t part : bucket) {
      EXPECT_EQ(placement->fragment_of[part], placement->fragment_of[bucket[0]]);
    }
  }
}

}  // namespace
}  // namespace tersewire
