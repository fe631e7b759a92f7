// A job over mpi in which one rank fails; tests/exchange/mpi_failures_test.py starts it.
// Usage: mpirun -n NODES mpi_failing_job HOW RANK EXCHANGE WORKERS
//   die    RANK is killed
//   stall  RANK is stopped, which nobody is told of
//   busy   RANK computes for ten times the deadline, and the job ends well
//   hang   RANK computes without end, for longer than the progress limit
//   long   RANK sends a message that is longer than any of the job can be
//   abort  RANK ends the job with a sentence while another is busy and calls nothing
//
// Each rank prints its process number, and what it ended with: "RANK code CODE: SENTENCE".
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "faulty_transports.h"
#include "tersewire/tersewire.h"

namespace tersewire {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kFailingStep = 3;
constexpr int kFailingMessage = 7;  // of a server
constexpr std::uint64_t kSteps = 1000000;
constexpr std::uint64_t kStepsOfABusyJob = 5;
constexpr auto kDeadline = 2s;
constexpr auto kForEver = 10min;  // longer than the test waits

struct Failure {
  std::string how;
  int rank;
};

Job make_job(const std::string& how, const std::string& exchange, int workers) {
  Job job;
  job.tensors = {{"weight", {1000}, TensorKind::kDense}};
  job.exchange = exchange;
  job.workers = workers;
  job.push_codec = job.pull_codec = "int8";
  job.deadline = kDeadline;
  if (how == "hang") job.progress_limit = 4s;
  return job;
}

Update copy_the_mean() {
  return [](const Part&, std::span<const float> mean, std::span<float> delta) {
    std::copy(mean.begin(), mean.end(), delta.begin());
  };
}

void fail_as_told(const Failure& failure, Transport& end) {
  if (failure.how == "die") std::raise(SIGKILL);
  if (failure.how == "stall") {
    std::raise(SIGSTOP);
    std::_Exit(1);  // it was continued to be ended
  }
  if (failure.how == "busy") return std::this_thread::sleep_for(10 * kDeadline);
  if (failure.how == "hang") return std::this_thread::sleep_for(kForEver);
  if (failure.how == "long") {
    constexpr std::size_t kBytes = std::size_t{17} << 20;
    return end.send((end.rank() + 1) % end.size(), std::make_shared<const Bytes>(kBytes));
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
  std::this_thread::sleep_for(kForEver);
}

void run_worker(const Job& job, const Failure& failure, Transport& end, const Update& update) {
  const auto communicator = make_communicator(job, end, update);
  std::vector<float> values(1000);
  const std::vector<float> gradient(1000, 1.0F);
  const std::uint64_t steps = failure.how == "busy" ? kStepsOfABusyJob : kSteps;
  for (auto step = communicator->begin_step(); step <= steps; step = communicator->begin_step()) {
    communicator->pull(0, values);
    maybe_fail(failure, end, step);
    communicator->push(0, gradient);
    maybe_be_busy(failure, end, step);
  }
  const std::span<float> all(values);
  communicator->finish({&all, 1});
}

// A server's end, which fails when so many messages have come.
class FailingEnd final : public OwningTransport {
 public:
  FailingEnd(std::unique_ptr<Transport> inner, Failure failure)
      : OwningTransport(std::move(inner)), failure_(std::move(failure)) {}

  std::optional<Incoming> receive(std::chrono::milliseconds timeout) override {
    auto incoming = OwningTransport::receive(timeout);
    if (incoming && ++messages_ == kFailingMessage) fail_as_told(failure_, *this);
    return incoming;
  }

 private:
  Failure failure_;
  int messages_ = 0;
};

void run_node(const Job& job, const Failure& failure, Transport& end) {
  const Update update = needs_update(job, end.rank()) ? copy_the_mean() : Update();
  if (end.rank() < job.workers) return run_worker(job, failure, end, update);
  run_server(job, end, update);
}

std::unique_ptr<Transport> join(const Job& job, const Failure& failure) {
  auto end = join_mpi_network({60s});
  if (end->rank() < job.workers || end->rank() != failure.rank) return end;
  return std::make_unique<FailingEnd>(std::move(end), failure);
}

int run(const Job& job, const Failure& failure) {
  const auto end = join(job, failure);
  std::printf("%d pid %d\n", end->rank(), getpid());
  std::fflush(stdout);
  try {
    run_node(job, failure, *end);
    std::printf("%d ended well\n", end->rank());
    std::fflush(stdout);
    return 0;
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
  if (argc != 5) return 2;
  try {
    return tersewire::run(tersewire::make_job(argv[1], argv[3], std::atoi(argv[4])),
                          {argv[1], std::atoi(argv[2])});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
