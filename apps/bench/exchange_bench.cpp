#include "apps/bench/exchange_bench.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <fstream>
#include <functional>
#include <string_view>
#include <system_error>
#include <thread>
#include <type_traits>

#include "apps/bench/gradient_source.h"
#include "apps/bench/model_tensors.h"
#include "apps/bench/round_transport.h"
#include "apps/bench/waiting_worker.h"
#include "tersewire/counted.h"
#include "tersewire/error.h"
#include "tersewire/transports.h"
#include "trainer/settings/train_config.h"

namespace tersewire::bench {
namespace {

// What a node tells the others about a design; the measures are a worker's.
struct NodeReport {
  WorkerMeasures worker;
  std::uint64_t sent_bytes = 0;
  std::uint64_t received_bytes = 0;
  std::uint64_t peak_memory_bytes = 0;
};

std::string packed(const NodeReport& report) {
  static_assert(std::is_trivially_copyable_v<NodeReport>);
  std::string text(sizeof(report), '\0');
  std::memcpy(text.data(), &report, sizeof(report));
  return text;
}

NodeReport unpacked(const std::string& text, std::size_t rank) {
  NodeReport report;
  if (text.size() != sizeof(report)) {
    throw Error(
        ErrorCode::kDataLoss,
        fmt::format("rank {} sent something other than the report that is due; start the same "
                    "program on every rank",
                    rank));
  }
  std::memcpy(&report, text.data(), sizeof(report));
  return report;
}

Job job_of(const ExchangeBenchConfig& config, const std::string& push, const std::string& pull) {
  Job job = config.job;
  job.tensors = model_tensors(config.model, config.scale);
  job.push_codec = push;
  job.pull_codec = pull;
  return job;
}

// A job each.
std::vector<Job> designs_of(const ExchangeBenchConfig& config) {
  std::vector<Job> designs;
  const auto add = [&](const std::string& push, const std::string& pull) {
    const bool is_there = std::ranges::any_of(designs, [&](const Job& design) {
      return design.push_codec == push && design.pull_codec == pull;
    });
    if (!is_there) designs.push_back(job_of(config, push, pull));
  };
  if (config.baseline) add(*config.baseline, *config.baseline);
  for (const std::string& codec : config.codecs) add(codec, config.pull_codec.value_or(codec));
  return designs;
}

// What all processes must be started with alike.
std::string arguments_text(const ExchangeBenchConfig& config) {
  std::string text = fmt::format("{} {} {} {} {} {} {} {}", config.model, config.scale,
                                 config.job.policy, config.compute_seconds, config.slowest,
                                 config.warm_up_steps, config.steps, config.job.seed);
  for (const Job& design : designs_of(config)) {
    text += fmt::format(" {} {}", design.push_codec, design.pull_codec);
  }
  trainer::visit_exchange_settings(
      config.job, [&](const trainer::Setting& setting, const auto& member) {
        text += fmt::format(" {}={}", setting.key, trainer::setting_value(member));
      });
  return text;
}

// The largest resident set since forget_peak_memory(), or since the process started.
std::uint64_t peak_memory_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::uint64_t kib = 0;
    if (word == "VmHWM:" && status >> kib) return kib * 1024;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

void forget_peak_memory() { std::ofstream("/proc/self/clear_refs") << "5"; }

// Runs `node` for every end in a thread of its own and waits for all; one that throws ends the job
// for the others. Throws what went wrong first; nodes that were merely told to stop come after.
void run_nodes(const std::vector<std::unique_ptr<Transport>>& ends,
               const std::function<void(Transport&)>& node) {
  std::vector<std::exception_ptr> errors(ends.size());
  const auto failed = [&](std::size_t i, const std::exception& error) {
    errors[i] = std::current_exception();
    ends.front()->abort(error.what());
  };
  std::vector<std::thread> threads;
  try {
    for (std::size_t i = 0; i < ends.size(); ++i) {
      threads.emplace_back([&, i] {
        try {
          node(*ends[i]);
        } catch (const std::exception& error) {
          failed(i, error);
        }
      });
    }
  } catch (const std::system_error& error) {
    failed(ends.size() - 1, error);
  }
  for (std::thread& thread : threads) thread.join();
  const auto told_to_stop = [](const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const Error& e) {
      return e.code() == ErrorCode::kAborted;
    } catch (...) {
      return false;
    }
  };
  std::erase(errors, nullptr);
  if (errors.empty()) return;
  const auto cause = std::ranges::find_if_not(errors, told_to_stop);
  std::rethrow_exception(cause == errors.end() ? errors.front() : *cause);
}

// All designs, as one process runs them.
class Bench {
 public:
  Bench(const ExchangeBenchConfig& config, std::span<const float> recorded)
      : config_(config),
        tensors_(model_tensors(config.model, config.scale)),
        gradients_(recorded.empty() ? GradientSource(tensors_, config.job.seed)
                                    : GradientSource(tensors_, config.job.seed, recorded)) {}

  // One node's part. Rows are made by the process's first.
  void run_node(Transport& end, bool first) {
    RoundTransport transport(end);
    compare(transport.meet(arguments_text(config_), config_.job.wait_limits()));
    for (const Job& design : designs_of(config_)) {
      // What the exchange takes by itself, against which what computation hides of it is measured.
      double exchange_seconds = 0;
      if (config_.compute_seconds > 0) {
        exchange_seconds =
            unpacked(measure(design, 0, transport).front(), 0).worker.step_seconds_median;
      }
      if (first) forget_peak_memory();
      const auto told = measure(design, config_.compute_seconds, transport);
      if (first) add_row(design, told, exchange_seconds);
    }
  }

  [[nodiscard]] std::vector<ExchangeBenchRow> take_rows() { return std::move(rows_); }

 private:
  // One node's part of a design; what all nodes measured.
  std::vector<std::string> measure(const Job& job, double compute_seconds,
                                   RoundTransport& transport) const {
    const std::uint64_t sent_before = transport.bytes_sent();
    const std::uint64_t received_before = transport.bytes_received();
    NodeReport report;
    if (transport.rank() < config_.job.workers) {
      const bool last = transport.rank() == config_.job.workers - 1;
      const WaitingWorkerConfig worker{
          .compute_seconds = compute_seconds * (last ? config_.slowest : 1),
          .warm_up_steps = config_.warm_up_steps,
          .steps = config_.steps};
      report.worker = WaitingWorker(worker, job, gradients_, transport).run();
    } else {
      run_server(job, transport, update_of(job, transport.rank()));
    }
    report.sent_bytes = transport.bytes_sent() - sent_before;
    report.received_bytes = transport.bytes_received() - received_before;
    report.peak_memory_bytes = peak_memory_bytes();
    return transport.meet(packed(report), config_.job.wait_limits());
  }

  void compare(const std::vector<std::string>& arguments) const {
    for (std::size_t rank = 1; rank < arguments.size(); ++rank) {
      if (arguments[rank] == arguments[0]) continue;
      throw Error(
          ErrorCode::kFailedPrecondition,
          fmt::format("rank {} was started with other arguments than rank 0; give all ranks "
                      "the same",
                      rank));
    }
  }

  void add_row(const Job& design, const std::vector<std::string>& told, double exchange_seconds);

  const ExchangeBenchConfig& config_;
  std::vector<TensorInfo> tensors_;
  GradientSource gradients_;
  std::vector<ExchangeBenchRow> rows_;
};

// The one place that says what is hidden.
std::optional<double> hidden_of(double compute_seconds, double exchange_seconds,
                                double step_seconds) {
  const double most = std::min(compute_seconds, exchange_seconds);
  if (!(most > 0)) return std::nullopt;
  return std::clamp((compute_seconds + exchange_seconds - step_seconds) / most, 0.0, 1.0);
}

void Bench::add_row(const Job& design, const std::vector<std::string>& told,
                    double exchange_seconds) {
  ExchangeBenchRow row{.codec = design.push_codec, .pull_codec = design.pull_codec};
  WorkerMeasures sum;
  // Of servers, the measures are 0.
  for (std::size_t rank = 0; rank < told.size(); ++rank) {
    const NodeReport report = unpacked(told[rank], rank);
    sum.push_bytes += report.worker.push_bytes;
    sum.pull_bytes += report.worker.pull_bytes;
    sum.codec_seconds += report.worker.codec_seconds;
    row.total_sent_bytes += report.sent_bytes;
    const auto carried = static_cast<double>(std::max(report.sent_bytes, report.received_bytes));
    row.busiest_bytes = std::max(row.busiest_bytes, carried);
    row.peak_memory_bytes = std::max(row.peak_memory_bytes, report.peak_memory_bytes);
  }
  row.busiest_bytes /= static_cast<double>(config_.warm_up_steps + config_.steps);
  row.push_bytes = sum.push_bytes / config_.job.workers;
  row.pull_bytes = sum.pull_bytes / config_.job.workers;
  row.codec_seconds = sum.codec_seconds / config_.job.workers;
  row.step_seconds_median = unpacked(told.front(), 0).worker.step_seconds_median;
  if (config_.compute_seconds > 0) row.exchange_seconds = exchange_seconds;
  row.hidden = hidden_of(config_.compute_seconds, exchange_seconds, row.step_seconds_median);
  if (config_.baseline) {
    const double baseline =
        rows_.empty() ? row.step_seconds_median : rows_.front().step_seconds_median;
    row.speedup = baseline / row.step_seconds_median;
    if (config_.compute_seconds > 0) row.ceiling = baseline / config_.compute_seconds;
  }
  rows_.push_back(std::move(row));
}

}  // namespace

std::vector<std::unique_ptr<Transport>> join_exchange_bench(const ExchangeBenchConfig& config) {
  return join_network(config.transport,
                      config.job.workers + server_nodes(job_of(config, "fp32", "fp32")),
                      config.job.wait_limits());
}

void check_exchange_bench(const ExchangeBenchConfig& config, int nodes) {
  const auto refuse = [](const std::string& sentence) {
    throw Error(ErrorCode::kInvalidArgument, sentence);
  };
  if (config.steps < 1) refuse("a bench needs at least 1 step");
  if (!(config.compute_seconds >= 0 && config.compute_seconds < 1e6)) {
    refuse("a step's computation must take 0 seconds or more, and fewer than 10^6");
  }
  if (config.slowest > 1 && config.compute_seconds == 0) {
    refuse(
        "the slowest worker's steps are a multiple of --compute-ms, which is 0; give --compute-ms");
  }
  const auto steps_a_round = static_cast<std::uint64_t>(std::max(config.job.local_steps, 1));
  if (config.steps % steps_a_round != 0 || config.warm_up_steps % steps_a_round != 0) {
    refuse(fmt::format(
        "{} steps after {} are not whole rounds of {} local steps; use multiples of that number",
        config.steps, config.warm_up_steps, config.job.local_steps));
  }
  const std::vector<Job> designs = designs_of(config);
  if (designs.empty()) refuse("a bench needs at least one codec");
  for (const Job& job : designs) {
    const int servers = server_nodes(job);
    const int needed = config.job.workers + servers;
    if (nodes != needed) {
      refuse(
          fmt::format("a job of {} and {} with exchange {} takes {}, not {}; use 'mpirun -n {}' or "
                      "change the number of workers or servers",
                      counted(config.job.workers, "worker"), counted(servers, "server"),
                      config.job.exchange, counted(needed, "process", "processes"), nodes, needed));
    }
    // Whatever else the library refuses, it refuses before the first message.
    const auto probe = make_in_process_network(needed);
    make_communicator(job, *probe.front(), update_of(job, 0));
  }
}

std::vector<ExchangeBenchRow> bench_exchange(const ExchangeBenchConfig& config,
                                             std::span<const float> recorded,
                                             const std::vector<std::unique_ptr<Transport>>& ends) {
  try {
    check_exchange_bench(config, ends.front()->size());
    Bench bench(config, recorded);
    run_nodes(ends, [&](Transport& end) { bench.run_node(end, &end == ends.front().get()); });
    return bench.take_rows();
  } catch (const std::exception& error) {
    ends.front()->abort(error.what());
    throw;
  }
}

}  // namespace tersewire::bench
