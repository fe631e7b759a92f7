// What a server has left to do when the last push of a step arrives.
// Usage: last_push CODEC [WORKERS [VALUES]]
//
// All workers of a job push one tensor to one server. When it has had a second for the others, the
// last one's push arrives; how long the pull takes from there is put beside how long decoding one
// push takes, on one core each. Medians of five steps.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "apps/bench/gradient_source.h"
#include "tersewire/tersewire.h"

namespace tersewire::bench {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int kSteps = 5;

// The last worker's end: keeps what it sends until it is let go.
class Gate final : public PassingTransport {
 public:
  using PassingTransport::PassingTransport;

  void send(int to, SharedBytes bytes) override {
    if (open_) return PassingTransport::send(to, std::move(bytes));
    kept_.emplace_back(to, std::move(bytes));
  }
  std::optional<Incoming> receive(std::chrono::milliseconds timeout) override {
    auto message = PassingTransport::receive(timeout);
    if (message) {
      const std::lock_guard lock(mutex_);
      last_arrival_ = message->arrived;
    }
    return message;
  }

  Clock::time_point let_go() {
    const auto now = Clock::now();
    for (auto& [to, bytes] : std::exchange(kept_, {})) end().send(to, std::move(bytes));
    return now;
  }
  void open() { open_ = true; }
  Clock::time_point last_arrival() {
    const std::lock_guard lock(mutex_);
    return last_arrival_;
  }

 private:
  bool open_ = false;
  std::vector<std::pair<int, SharedBytes>> kept_;
  std::mutex mutex_;
  Clock::time_point last_arrival_{};
};

double milliseconds(Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

double decode_milliseconds(const std::string& codec, std::span<const float> gradient) {
  const auto encoder = make_codec(codec)->make_encoder(gradient.size(), {});
  Bytes payload;
  const Encoded encoded = encoder->encode(gradient, 1, payload);
  std::vector<float> sum(gradient.size());
  std::vector<double> times;
  for (int i = 0; i < kSteps; ++i) {
    const auto start = Clock::now();
    decode_add(encoded.codec, payload, 1.0F, sum);
    times.push_back(milliseconds(Clock::now() - start));
  }
  return median(times);
}

double pull_milliseconds(const Job& job, std::span<const float> gradient) {
  auto ends = make_in_process_network(job.workers + 1);
  std::thread server([&] {
    run_server(job, *ends.back(), [](const Part&, std::span<const float> mean, std::span<float> d) {
      std::ranges::copy(mean, d.begin());
    });
  });
  Gate gate(*ends[static_cast<std::size_t>(job.workers) - 1]);
  std::vector<std::unique_ptr<Communicator>> workers;
  for (int rank = 0; rank < job.workers; ++rank) {
    Transport& end = rank + 1 < job.workers ? *ends[static_cast<std::size_t>(rank)] : gate;
    workers.push_back(make_communicator(job, end, {}));
  }
  std::vector<float> replica(gradient.size());
  const std::span<float> all(replica);
  std::vector<double> times;
  for (int step = 0; step < kSteps; ++step) {
    for (const auto& worker : workers) {
      worker->begin_step();
      worker->pull(0, all);
      worker->push(0, gradient);
    }
    std::this_thread::sleep_for(1s);
    const auto arrived = gate.let_go();
    std::this_thread::sleep_for(1s);
    times.push_back(milliseconds(gate.last_arrival() - arrived));
  }
  gate.open();
  std::vector<std::thread> ending;
  for (const auto& worker : workers) {
    ending.emplace_back([&worker, own = replica]() mutable {
      worker->begin_step();
      const std::span<float> parameters(own);
      worker->finish({&parameters, 1});
    });
  }
  for (std::thread& end : ending) end.join();
  server.join();
  return median(times);
}

int run(const std::string& codec, int workers, std::size_t values) {
  Job job;
  job.tensors = {{"gradient", {values}, TensorKind::kDense}};
  job.workers = workers;
  job.push_codec = codec;
  job.pull_codec = "3lc";
  job.policy = "";
  job.checksum_steps = 0;
  job.bucket_bytes = values * sizeof(float);  // or a worker would wait for an answer in its push
  const GradientSource source(job.tensors, 1);
  const auto gradient = source.gradient(0, 0, 1);
  const double pull = pull_milliseconds(job, gradient);
  const double decode = decode_milliseconds(codec, gradient);
  std::printf("%s\n",
              fmt::format("{} workers, {} values, {}: {:.1f} ms from the last push to the last "
                          "pull, {:.1f} ms to decode one push",
                          workers, values, codec, pull, decode)
                  .c_str());
  return 0;
}

}  // namespace
}  // namespace tersewire::bench

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  try {
    const int workers = argc > 2 ? std::stoi(argv[2]) : 64;
    const std::size_t values = argc > 3 ? std::stoull(argv[3]) : 1 << 22;
    return tersewire::bench::run(argv[1], workers, values);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
