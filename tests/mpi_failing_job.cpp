// A job of three nodes over mpi in which one rank fails; tests/mpi_failures_test.py starts it.
// Usage: mpirun -n 3 mpi_failing_job HOW RANK EXCHANGE
//   die    RANK is killed
//   stall  RANK is stopped, which nobody is told of
//   abort  RANK ends the job with a sentence while another is busy and calls nothing
//
// Each rank prints its process number, and what it ended with: "RANK code CODE: SENTENCE".
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tersewire/tersewire.h"

namespace tersewire {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kFailingStep = 3;
constexpr std::uint64_t kSteps = 1000000;

struct Failure {
  std::string how;
  int rank;
  std::string exchange;
};

Job make_job(const std::string& exchange) {
  Job job;
  job.tensors = {{"weight", {1000}, TensorKind::kDense}};
  job.exchange = exchange;
  job.push_codec = job.pull_codec = "int8";
  job.deadline = 2s;
  job.workers = 2;
  if (server_nodes(job) == 0) job.workers = 3;
  return job;
}

Update copy_the_mean() {
  return [](std::size_t, std::span<const float> mean, std::span<float> delta) {
    std::copy(mean.begin(), mean.end(), delta.begin());
  };
}

void fail_as_told(const Failure& failure, Transport& end) {
  if (failure.how == "die") std::raise(SIGKILL);
  if (failure.how == "stall") {
    std::raise(SIGSTOP);
    std::_Exit(1);  // it was continued to be ended
  }
  end.abort("the disk is full");
  throw Error(ErrorCode::kResourceExhausted, "the disk is full");
}

void maybe_fail(const Failure& failure, Transport& end, std::uint64_t step) {
  if (step == kFailingStep && end.rank() == failure.rank) fail_as_told(failure, end);
}

// The other worker, which has pushed what the failing one waits for to get to its step.
void maybe_be_busy(const Failure& failure, Transport& end, std::uint64_t step) {
  if (failure.how != "abort" || step != kFailingStep - 1 || end.rank() == failure.rank) return;
  std::this_thread::sleep_for(60s);
}

void run_worker(const Job& job, const Failure& failure, Transport& end) {
  const auto communicator =
      make_communicator(job, end, workers_own_model(job) ? copy_the_mean() : Update());
  std::vector<float> values(1000);
  const std::vector<float> gradient(1000, 1.0F);
  for (auto step = communicator->begin_step(); step < kSteps; step = communicator->begin_step()) {
    communicator->pull(0, values);
    maybe_fail(failure, end, step);
    communicator->push(0, gradient);
    maybe_be_busy(failure, end, step);
  }
}

void run_node(const Failure& failure, Transport& end) {
  const Job job = make_job(failure.exchange);
  if (end.rank() < job.workers) return run_worker(job, failure, end);
  std::uint64_t step = 0;
  run_server(job, end,
             [&](std::size_t tensor, std::span<const float> mean, std::span<float> delta) {
               maybe_fail(failure, end, ++step);
               copy_the_mean()(tensor, mean, delta);
             });
}

int run(const Failure& failure) {
  const auto end = join_mpi_network(60s);
  std::printf("%d pid %d\n", end->rank(), getpid());
  std::fflush(stdout);
  try {
    run_node(failure, *end);
  } catch (const Error& error) {
    end->abort(error.what());
    std::printf("%d code %d: %s\n", end->rank(), static_cast<int>(error.code()), error.what());
    std::fflush(stdout);
  }
  return 1;
}

}  // namespace
}  // namespace tersewire

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  try {
    return tersewire::run({argv[1], std::atoi(argv[2]), argv[3]});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
