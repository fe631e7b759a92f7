// tersewire bench exchange: what a step of distributed training costs under each codec.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/bench/exchange_bench.h"
#include "apps/bench/model_tensors.h"
#include "apps/cli/commands.h"
#include "apps/cli/failures.h"
#include "apps/cli/job_options.h"
#include "apps/cli/output.h"
#include "apps/files/read_file.h"
#include "tersewire/counted.h"
#include "tersewire/transports.h"

namespace tersewire::apps {
namespace {

using Json = nlohmann::ordered_json;
using Network = std::vector<std::unique_ptr<Transport>>;

constexpr const char* kBenchExchangeExamples = R"(Examples:
  tersewire bench exchange --model lenet --workers 4 --codec 3lc:s=1.75
  tersewire bench exchange --model resnet110 --compute-ms 30 --codec 3lc --codec int8 --rate 100mbit
  tersewire bench exchange --model alexnet --scale 0.1 --exchange ring --codec inceptionn:bound=2^-10
  tersewire bench exchange --model alexnet --scale 0.1 --servers 1 --policy '' \
      --codec inceptionn:bound=2^-10 --pull-codec fp32
  sudo lab/netlab run --nodes 11 --rate 100mbit -- \
      tersewire bench exchange --transport mpi --workers 10 --compute-ms 30 --json
Every codec is a design, for both directions unless --pull-codec says what servers send, run one
after the other over the same network, the baseline first. Computation is waiting, so that many
workers fit on few cores: a third of it in the forward pass, two in the backward pass, spread evenly
over the weights. Bytes are per step, counted at a worker's end of the transport, mean over workers;
step time is worker 0's, the median; hidden is how much of the exchange computation hides,
T + (step at T = 0) - step, as a share of the smaller of the two, for which each design runs without
computation first; the ceiling is the speedup if only computation took time. Busiest is the bytes
that the busiest node sends or receives, the larger of the two; wire is the calculated time for them
on a link of --rate.)";

struct ExchangeFlags {
  bench::ExchangeBenchConfig config;
  double compute_ms = 0;
  std::string baseline = "fp32";
  std::string rate;
  std::vector<std::string> gradients;
  bool json = false;
};

Floats recorded_gradients(const std::vector<std::string>& files) {
  Floats values;
  for (const std::string& file : files) {
    const Floats more = load_npy_floats(file);
    values.insert(values.end(), more.begin(), more.end());
  }
  if (!files.empty() && values.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                shown(files.front()) + ": it has no values to replay; name a larger array");
  }
  return values;
}

std::optional<double> modelled_rate(const bench::ExchangeBenchConfig& config) {
  const double rate = choose_transport(config.transport).links.bits_per_second;
  return rate > 0 ? std::optional(rate) : std::nullopt;
}

// How long a link takes for what the busiest node sends or receives, by its rate.
std::optional<double> wire_seconds(const bench::ExchangeBenchConfig& config,
                                   const bench::ExchangeBenchRow& row) {
  const auto rate = modelled_rate(config);
  if (!rate) return std::nullopt;
  return row.busiest_bytes * 8 / *rate;
}

Json rows_json(const bench::ExchangeBenchConfig& config,
               const std::vector<bench::ExchangeBenchRow>& rows) {
  const std::string transport = choose_transport(config.transport).name;
  Json settings;
  trainer::visit_exchange_settings(config.job,
                                   [&](const trainer::Setting& setting, const auto& member) {
                                     settings[trainer::json_key_of(setting)] = setting_json(member);
                                   });
  Json list = Json::array();
  for (const bench::ExchangeBenchRow& row : rows) {
    Json json = settings;
    json.update({{"model", config.model},
                 {"slowest", config.slowest},
                 {"codec", row.codec},
                 {"pull_codec", row.pull_codec},
                 {"transport", transport},
                 {"bits_per_second", optional_json(modelled_rate(config))},
                 {"warm_up_steps", config.warm_up_steps},
                 {"steps", config.steps},
                 {"step_seconds_median", row.step_seconds_median},
                 {"push_bytes", row.push_bytes},
                 {"pull_bytes", row.pull_bytes},
                 {"codec_seconds", row.codec_seconds},
                 {"busiest_bytes", row.busiest_bytes},
                 {"wire_seconds", optional_json(wire_seconds(config, row))},
                 {"compute_seconds", config.compute_seconds},
                 {"exchange_seconds", optional_json(row.exchange_seconds)},
                 {"hidden", optional_json(row.hidden)},
                 {"speedup", optional_json(row.speedup)},
                 {"ceiling", optional_json(row.ceiling)},
                 {"total_sent_bytes", row.total_sent_bytes},
                 {"peak_memory_bytes", row.peak_memory_bytes}});
    list.push_back(std::move(json));
  }
  return list;
}

std::string name_of(const bench::ExchangeBenchRow& row) {
  return row.codec == row.pull_codec ? row.codec : row.codec + " / " + row.pull_codec;
}

std::string milliseconds(const std::optional<double>& seconds) {
  return seconds ? fmt::format("{:.2f}", *seconds * 1e3) : "-";
}

std::string rows_text(const bench::ExchangeBenchConfig& config,
                      const std::vector<bench::ExchangeBenchRow>& rows) {
  std::size_t values = 0;
  for (const TensorInfo& tensor : bench::model_tensors(config.model, config.scale)) {
    values += tensor.elems();
  }
  std::string text = fmt::format(
      "{}, {}; {}, {}, transport {}; {} after {}, {:g} ms of computation\n", config.model,
      counted(values, "value"), config.job.exchange, counted(config.job.workers, "worker"),
      config.transport, counted(config.steps, "step"), config.warm_up_steps,
      config.compute_seconds * 1e3);
  std::size_t width = 5;
  for (const bench::ExchangeBenchRow& row : rows) width = std::max(width, name_of(row).size());
  text += fmt::format("{:<{}} {:>10} {:>8} {:>8} {:>12} {:>12} {:>12} {:>10} {:>10} {:>8} {:>9}\n",
                      "codec", width, "step ms", "speedup", "ceiling", "push bytes", "pull bytes",
                      "busiest", "codec ms", "wire ms", "hidden", "peak MiB");
  for (const bench::ExchangeBenchRow& row : rows) {
    text += fmt::format(
        "{:<{}} {:>10.2f} {:>8} {:>8} {:>12.0f} {:>12.0f} {:>12.0f} {:>10.2f} {:>10} {:>8} "
        "{:>9.0f}\n",
        name_of(row), width, row.step_seconds_median * 1e3, two_decimals(row.speedup),
        two_decimals(row.ceiling), row.push_bytes, row.pull_bytes, row.busiest_bytes,
        row.codec_seconds * 1e3, milliseconds(wire_seconds(config, row)), two_decimals(row.hidden),
        static_cast<double>(row.peak_memory_bytes) / (1 << 20));
  }
  return text;
}

void run_nodes(const ExchangeFlags& flags, const Network& network) {
  for (const std::string& codec : flags.config.codecs) codec_argument(codec);
  if (flags.config.baseline) codec_argument(*flags.config.baseline);
  if (flags.config.pull_codec) codec_argument(*flags.config.pull_codec);
  as_usage([&] { bench::check_exchange_bench(flags.config, network.front()->size()); });
  const auto rows =
      bench::bench_exchange(flags.config, recorded_gradients(flags.gradients), network);
  if (network.front()->rank() != 0) return;
  print(flags.json ? json_text(rows_json(flags.config, rows)) + "\n"
                   : rows_text(flags.config, rows));
}

void run_bench_exchange(ExchangeFlags flags) {
  bench::ExchangeBenchConfig& config = flags.config;
  config.compute_seconds = flags.compute_ms / 1e3;
  config.baseline = flags.baseline == "none" ? std::nullopt : std::optional(flags.baseline);
  config.transport = transport_argument(config.transport, flags.rate);
  const Network network = as_usage([&] { return bench::join_exchange_bench(config); });
  const bool tells = network.front()->rank() == 0 || !choose_transport(config.transport).launched;
  try {
    run_nodes(flags, network);
  } catch (const std::exception& error) {
    network.front()->abort(error.what());
    if (!tells && told_by_rank_0(error)) throw ToldElsewhere();
    throw;
  }
}

}  // namespace

void add_bench_exchange_command(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand(
      "exchange", "Measure a whole job's steps: time and bytes, next to a baseline's");
  command->footer(kBenchExchangeExamples);
  auto flags = std::make_shared<ExchangeFlags>();
  bench::ExchangeBenchConfig& config = flags->config;
  const auto option = [&](const char* name, auto& value, const std::string& help) {
    return command->add_option(name, value, help)->capture_default_str();
  };
  option("--model", config.model, fmt::format("{}", fmt::join(bench::model_names(), ", ")));
  option("--scale", config.scale,
         "Scale the number of values of every tensor by this, above 0 and up to 1");
  const SettingOptions setting(*command);
  trainer::visit_exchange_settings(config.job, setting);
  option("--codec", config.codecs, "Codec for both directions; several are measured in turn");
  command->add_option("--pull-codec", config.pull_codec,
                      "Codec for what servers send, with each --codec [the same]");
  option("--baseline", flags->baseline, "Codec that speedups are relative to, or none");
  setting(trainer::setting_named("policy"), config.job.policy);
  option("--compute-ms", flags->compute_ms, "Milliseconds of computation per step")
      ->check(CLI::Range(0.0, 1e8));
  setting(trainer::setting_named("slowest"), config.slowest);
  option("--steps", config.steps, "Steps to measure")
      ->check(CLI::Range(std::uint64_t{1}, trainer::kMostSteps));
  option("--warm-up", config.warm_up_steps, "Steps before the measured ones")
      ->check(CLI::Range(std::uint64_t{0}, trainer::kMostSteps));
  command->add_option(
      "--gradients", flags->gradients,
      "Replay the values of these .npy files [synthetic, distributed like real gradients]");
  option("--seed", config.job.seed, "Seed of the gradients and codecs");
  option(
      "--transport", config.transport,
      "in-process (threads; in-process:rate=20mbit,delay=40ms,jitter=5ms,loss=0.1%,seed=1 models "
      "links), mpi (processes that mpirun starts), or grpc (as for 'tersewire train')");
  command->add_option("--rate", flags->rate, "The same as rate=RATE in --transport");
  setting(trainer::setting_named("deadline"), config.job.deadline);
  command->add_flag("--json", flags->json, "Print JSON");
  command->callback([flags, command] {
    if (command->count("--transport") == 0) check_launcher(flags->config.transport);
    run_bench_exchange(*flags);
  });
}

}  // namespace tersewire::apps
