// Exchanges over threads as ranks: a small job, and what it leaves behind.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tersewire/tersewire.h"

namespace tersewire {

using namespace std::chrono_literals;
using Model = std::vector<std::vector<float>>;

inline Job make_job(int workers, std::optional<int> servers, const std::string& codec) {
  Job job;
  job.tensors = {{"first.weight", {37, 11}, TensorKind::kDense},
                 {"first.bias", {11}, TensorKind::kBias},
                 {"last.weight", {1003}, TensorKind::kDense}};
  job.workers = workers;
  job.servers = servers;
  job.push_codec = job.pull_codec = codec;
  job.policy = "size<20:fp32";
  job.deadline = job.progress_limit = 20s;
  return job;
}

// With as many servers as the exchange needs.
inline Job job_for(const std::string& exchange, int workers, const std::string& codec) {
  Job job = make_job(workers, {}, codec);
  job.exchange = exchange;
  return job;
}

inline Model zeros(const Job& job) {
  Model model;
  for (const TensorInfo& tensor : job.tensors) model.emplace_back(tensor.elems(), 0.0F);
  return model;
}

inline std::vector<std::span<float>> spans(Model& model) { return {model.begin(), model.end()}; }

inline float gradient_value(int worker, std::uint64_t step, std::size_t tensor, std::size_t i) {
  std::uint64_t hash =
      (static_cast<std::uint64_t>(worker) << 40) + (step << 24) + (tensor << 20) + i;
  hash = (hash ^ hash >> 31) * 0x9E3779B97F4A7C15U;
  hash = (hash ^ hash >> 29) * 0xBF58476D1CE4E5B9U;
  const auto uniform = static_cast<float>((hash >> 32) % 2001) / 1000.0F - 1.0F;
  return uniform * uniform * uniform;
}

inline std::vector<float> gradient(const Job& job, int worker, std::uint64_t step,
                                   std::size_t tensor) {
  std::vector<float> values(job.tensors[tensor].elems());
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = gradient_value(worker, step, tensor, i);
  }
  return values;
}

// Whether a job has ended with an error, or this node has left it.
inline bool is_over(const Transport& end) {
  try {
    return end.peer(end.rank()).gone.has_value();
  } catch (const Error&) {
    return true;
  }
}

// Waits until a worker, whose own thread receives, has taken messages of so many bytes, or the job
// is over. `end` is any of the network's.
inline void wait_until_taken(const Communicator& worker, const Transport& end,
                             std::uint64_t bytes) {
  try {
    while (worker.counters().pulled_bytes < bytes) {
      static_cast<void>(end.peer(end.rank()));
      std::this_thread::sleep_for(1ms);
    }
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kAborted);
  }
}

// What a job left behind.
struct Outcome {
  std::vector<Model> replicas;
  Model global;
  std::vector<Counters> counters;
  std::vector<std::uint64_t> bytes_sent;  // by rank, as the transport counts them
  std::vector<std::uint64_t> bytes_received;
  std::vector<std::string> errors;  // by rank, empty where it ended well
};

struct Behaviour {
  std::uint64_t steps = 5;
  // Called before each worker's step.
  std::function<void(int worker, std::uint64_t step)> before_step;
  // Changes a gradient before it is pushed.
  std::function<void(int worker, std::uint64_t step, std::vector<float>&)> gradient;
  ThreadPool* pool = nullptr;  // of every node
};

// Plain gradient descent with rate 1, so that deltas are minus the mean gradients.
inline Update descend(Model& global) {
  return [&global](const Part& part, std::span<const float> mean, std::span<float> delta) {
    for (std::size_t i = 0; i < mean.size(); ++i) {
      delta[i] = -mean[i];
      global[part.tensor][part.begin + i] += delta[i];
    }
  };
}

// The update of a worker's node: of its own model, or of the one that all servers share.
inline Update update_of(const Job& job, int rank, Model& global, Model& own) {
  if (!needs_update(job, rank)) return {};
  return descend(exchange_traits(job.exchange).workers_own_model ? own : global);
}

inline void run_worker(const Job& job, Transport& transport, const Behaviour& behaviour,
                       Outcome& outcome, std::uint64_t last_step) {
  const auto rank = static_cast<std::size_t>(transport.rank());
  Model& replica = outcome.replicas[rank];
  Model own = zeros(job);
  const auto communicator = make_communicator(
      job, transport, update_of(job, transport.rank(), outcome.global, own), behaviour.pool);
  for (auto step = communicator->begin_step(); step <= last_step;
       step = communicator->begin_step()) {
    if (behaviour.before_step) behaviour.before_step(transport.rank(), step);
    for (std::size_t i = 0; i < replica.size(); ++i) communicator->pull(i, replica[i]);
    for (std::size_t i = replica.size(); i-- > 0;) {
      auto values = gradient(job, transport.rank(), step, i);
      if (behaviour.gradient) behaviour.gradient(transport.rank(), step, values);
      communicator->push(i, values);
    }
  }
  communicator->finish(spans(replica));
  outcome.counters[rank] = communicator->counters();
}

// Before anyone ran.
inline Outcome empty_outcome(const Job& job) {
  const auto nodes = static_cast<std::size_t>(job.workers + server_nodes(job));
  Outcome outcome;
  outcome.global = zeros(job);
  outcome.replicas.assign(static_cast<std::size_t>(job.workers), zeros(job));
  outcome.counters.resize(nodes);
  outcome.errors.resize(nodes);
  return outcome;
}

// What the node of this rank does of a job.
inline void run_node(const Job& job, Transport& end, const Behaviour& behaviour, Outcome& outcome) {
  const auto rank = static_cast<std::size_t>(end.rank());
  try {
    if (rank < outcome.replicas.size()) {
      run_worker(job, end, behaviour, outcome, behaviour.steps);
    } else {
      outcome.counters[rank] =
          run_server(job, end, needs_update(job, end.rank()) ? descend(outcome.global) : Update(),
                     behaviour.pool);
    }
  } catch (const std::exception& error) {
    outcome.errors[rank] = error.what();
  }
}

inline Outcome run_job_over(const std::vector<std::unique_ptr<Transport>>& ends, const Job& job,
                            const Behaviour& behaviour) {
  Outcome outcome = empty_outcome(job);
  std::vector<std::thread> threads;
  for (const auto& end : ends) {
    threads.emplace_back([&] { run_node(job, *end, behaviour, outcome); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& end : ends) {
    outcome.bytes_sent.push_back(end->bytes_sent());
    outcome.bytes_received.push_back(end->bytes_received());
  }
  return outcome;
}

inline Outcome run_job(const Job& job, const Behaviour& behaviour = {}) {
  return run_job_over(make_in_process_network(job.workers + server_nodes(job)), job, behaviour);
}

inline void expect_no_errors(const Outcome& outcome) {
  for (const std::string& error : outcome.errors) EXPECT_EQ(error, "");
}

inline void expect_equal_bits(const Model& a, const Model& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].size(), b[i].size());
    EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(a[i])), std::as_bytes(std::span(b[i]))))
        << "tensor " << i;
  }
}

// Gradients for five steps, then zeros, so that what the residuals hold drains: each step of 3lc
// leaves at most s / 2 of it. In the end replicas, the servers' model where they own it, and the
// plain sum agree.
inline void expect_everything_pushed_arrives(const Job& job) {
  constexpr std::uint64_t kGradientSteps = 5;
  const auto stop_early = [](int, std::uint64_t step, std::vector<float>& values) {
    if (step > kGradientSteps) std::ranges::fill(values, 0.0F);
  };
  const Outcome outcome =
      run_job(job, {.steps = kGradientSteps + 500, .before_step = {}, .gradient = stop_early});
  expect_no_errors(outcome);
  for (const Model& replica : outcome.replicas) expect_equal_bits(outcome.replicas[0], replica);
  for (std::size_t tensor = 0; tensor < job.tensors.size(); ++tensor) {
    std::vector<float> sum(job.tensors[tensor].elems(), 0.0F);
    for (std::uint64_t step = 1; step <= kGradientSteps; ++step) {
      for (int worker = 0; worker < job.workers; ++worker) {
        const auto values = gradient(job, worker, step, tensor);
        for (std::size_t i = 0; i < sum.size(); ++i) {
          sum[i] -= values[i] / static_cast<float>(job.workers);
        }
      }
    }
    for (std::size_t i = 0; i < sum.size(); ++i) {
      ASSERT_NEAR(outcome.replicas[0][tensor][i], sum[i], 1e-4);
      if (!exchange_traits(job.exchange).workers_own_model) {
        ASSERT_NEAR(outcome.global[tensor][i], sum[i], 1e-4);
      }
    }
  }
}

// Whatever the order in which messages arrive.
inline void expect_a_run_repeats(const Job& job) {
  const auto jitter = [](int worker, std::uint64_t step) {
    std::this_thread::sleep_for(
        std::chrono::microseconds((static_cast<unsigned>(worker) * 37 + step * 91) % 500));
  };
  const Outcome calm = run_job(job);
  const Outcome jittered = run_job(job, {.steps = 5, .before_step = jitter, .gradient = {}});
  expect_no_errors(jittered);
  expect_equal_bits(calm.global, jittered.global);
  expect_equal_bits(calm.replicas[0], jittered.replicas[0]);
}

}  // namespace tersewire
