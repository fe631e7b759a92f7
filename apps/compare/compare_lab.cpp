#include "apps/compare/compare_lab.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

#include "apps/bench/model_tensors.h"
#include "apps/cli/failures.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/output.h"
#include "apps/cli/progress_line.h"
#include "apps/compare/compare_child.h"
#include "apps/files/new_file.h"
#include "apps/files/read_file.h"
#include "trainer/chooser/codec_chooser.h"
#include "trainer/settings/train_config.h"

namespace tersewire::apps {
namespace {

namespace fs = std::filesystem;

constexpr auto kLookAtLabEvery = std::chrono::milliseconds(50);
// Of netlab: its own failure.
constexpr int kNetlabFailed = 125;

// By the modelled time, before anything is measured and then again. Codecs with a residual send
// little at first: fast steps, which are those of such codecs, are warmed up for longer.
constexpr double kSecondsEach = 15;

// In whole rounds of so many steps.
std::uint64_t steps_for(double step_seconds, std::uint64_t least, std::uint64_t most,
                        std::uint64_t round) {
  const double wanted = std::ceil(kSecondsEach / std::max(step_seconds, 1e-6));
  const double steps = std::clamp(wanted, static_cast<double>(least), static_cast<double>(most));
  return (static_cast<std::uint64_t>(steps) + round - 1) / round * round;
}

// netlab starts it.
fs::path own_program() {
  std::error_code error;
  fs::path path = fs::read_symlink("/proc/self/exe", error);
  if (error) fail_file("/proc/self/exe", "read", error.value());
  return path;
}

class Lab {
 public:
  Lab(const ComparePlan& plan, const std::vector<CellOutcome>& outcomes, fs::path out,
      std::string netlab)
      : plan_(plan),
        out_(std::move(out)),
        netlab_(std::move(netlab)),
        progress_(plan.designs.size() * plan.rates.size()) {
    const auto most = std::ranges::max_element(plan.steps, {}, &StepCount::steps);
    for (const auto& by_steps : means_of(plan, outcomes)) {
      means_.push_back(by_steps[static_cast<std::size_t>(most - plan.steps.begin())]);
    }
  }

  LabSteps measure() {
    LabSteps steps(plan_.designs.size(), std::vector<LabStep>(plan_.rates.size()));
    std::uint64_t done = 0;
    // The baseline first: without it nothing else counts.
    std::vector<std::size_t> order{plan_.baseline};
    for (std::size_t i = 0; i < plan_.designs.size(); ++i) {
      if (i != plan_.baseline) order.push_back(i);
    }
    for (const std::size_t design : order) {
      for (std::size_t rate = 0; rate < plan_.rates.size(); ++rate) {
        show(done++, design, rate);
        steps[design][rate] = step(design, rate);
      }
    }
    return steps;
  }

 private:
  void show(std::uint64_t done, std::size_t design, std::size_t rate) {
    if (netlab_.empty() || !netlab_obstacle_.empty() || !progress_.is_due(done)) return;
    progress_.show(done, fmt::format("lab: {}/{} measured: {} at {}", done,
                                     plan_.designs.size() * plan_.rates.size(),
                                     plan_.designs[design].name, plan_.rates[rate].name));
  }

  LabStep step(std::size_t design, std::size_t rate) {
    const std::string obstacle = obstacle_of(design);
    if (!obstacle.empty()) return refused(obstacle);
    const std::vector<std::string> bench = bench_arguments(design, rate);
    const fs::path file =
        out_ / "lab" / fmt::format("{:02}-{}.json", design + 1, plan_.rates[rate].name);
    if (const auto kept = kept_seconds(file, bench)) return {.seconds = kept, .obstacle = ""};
    if (interrupted || netlab_.empty() || !netlab_obstacle_.empty()) {
      return refused(netlab_obstacle_);
    }
    return run(design, rate, bench, file);
  }

  // Said where somebody asked.
  [[nodiscard]] LabStep refused(const std::string& why) const {
    return {.seconds = {}, .obstacle = netlab_.empty() ? "" : why};
  }

  // Why the bench cannot stand for the design; empty where it can.
  [[nodiscard]] std::string obstacle_of(std::size_t design) const {
    const trainer::TrainConfig& config = plan_.configs[design];
    const auto models = bench::model_names();
    if (std::ranges::find(models, config.model) == models.end()) {
      return fmt::format("'tersewire bench exchange' does not know the tensors of {}",
                         config.model);
    }
    const std::string& name = plan_.designs[design].name;
    if (means_[design].runs == 0 || means_[plan_.baseline].runs == 0) {
      return fmt::format("{} or its baseline has no complete run", name);
    }
    if (exchange_traits(config.job.exchange).averages_weights) {
      return fmt::format("the median step of {} does not average weights", name);
    }
    if (config.job.fragments > 1 || config.job.delay > 0) {
      return fmt::format("'tersewire bench exchange' has no fragments and no delay, unlike {}",
                         name);
    }
    if (!config.later_codec.empty() || config.job.push_codec == trainer::kAutoCodec) {
      return fmt::format("the codec of {} changes during a run", name);
    }
    return "";
  }

  [[nodiscard]] std::vector<std::string> bench_arguments(std::size_t design,
                                                         std::size_t rate) const {
    const trainer::TrainConfig& config = plan_.configs[design];
    const double modelled =
        modelled_step_seconds(means_[design], plan_.rates[rate].bits_per_second);
    const double compute_ms = means_[plan_.baseline].compute_seconds * 1e3;
    const auto deadline = static_cast<std::uint64_t>(std::max(120.0, std::ceil(20 * modelled)));
    // What travels with local updates, and how often, is what travels with as many local steps.
    Job job = config.job;
    job.local_steps = static_cast<int>(job.steps_a_round());
    const auto round = static_cast<std::uint64_t>(job.local_steps);
    if (job.local_updates > 0) {
      job.push_codec = whole_text(job.push_codec, job.local_updates);
      job.pull_codec = whole_text(job.pull_codec, job.local_updates);
    }
    std::vector<std::string> arguments = {
        "bench",
        "exchange",
        "--transport=mpi",
        "--json",
        "--baseline=none",
        "--model=" + config.model,
        "--codec=" + job.push_codec,
        "--pull-codec=" + job.pull_codec,
        fmt::format("--compute-ms={:.3f}", compute_ms),
        fmt::format("--slowest={}", config.slowest),
        fmt::format("--warm-up={}", steps_for(modelled, 2, 100, round)),
        fmt::format("--steps={}", steps_for(modelled, 5, 50, round)),
        fmt::format("--deadline={}", deadline),
        "--policy",
        config.job.policy};
    trainer::visit_exchange_settings(
        std::as_const(job), [&](const trainer::Setting& setting, const auto& member) {
          const std::string value = trainer::setting_value(member);
          if (!value.empty()) arguments.push_back(fmt::format("--{}={}", setting.key, value));
        });
    return arguments;
  }

  static std::optional<double> kept_seconds(const fs::path& file,
                                            const std::vector<std::string>& bench) {
    const auto text = read_file_if_exists(file.string());
    if (!text) return std::nullopt;
    const auto kept = parse_json(*text);
    try {
      if (kept.at("command") != nlohmann::json(bench)) return std::nullopt;
      return kept.at("measured").at("step_seconds_median").get<double>();
    } catch (const nlohmann::json::exception&) {
      return std::nullopt;
    }
  }

  LabStep run(std::size_t design, std::size_t rate, const std::vector<std::string>& bench,
              const fs::path& file) {
    const trainer::TrainConfig& config = plan_.configs[design];
    std::vector<std::string> command = {
        fs::absolute(netlab_),
        "run",
        "--name",
        fmt::format("compare{}", ::getpid()),
        "--nodes",
        std::to_string(config.job.workers + trainer::server_nodes(config)),
        "--rate",
        plan_.rates[rate].name,
        "--",
        own_program().string()};
    command.insert(command.end(), bench.begin(), bench.end());
    const fs::path log =
        out_ / "logs" / fmt::format("lab-{:02}-{}", design + 1, plan_.rates[rate].name);
    const std::string output = log.string() + ".out";
    // So that netlab takes its namespaces away.
    ChildProcess process(command, output, log.string() + ".err", SIGTERM);
    while (!process.exit_status() && !interrupted) std::this_thread::sleep_for(kLookAtLabEvery);
    if (interrupted) {
      process.end();
      return {};
    }
    const auto failed = [&](const std::string& why) {
      return refused(
          fmt::format("{} at {}: {}", plan_.designs[design].name, plan_.rates[rate].name, why));
    };
    const int status = *process.exit_status();
    if (status == kNetlabFailed || status == kNoSuchCommand) {
      netlab_obstacle_ = fmt::format("the lab: {}", process.last_words());
      return refused(netlab_obstacle_);
    }
    if (status != 0) return failed(process.last_words());
    return taken(output, bench, file)
        .value_or(failed(fmt::format("{} does not hold what it measured", output)));
  }

  // What the bench printed, put on record.
  static std::optional<LabStep> taken(const std::string& output,
                                      const std::vector<std::string>& bench, const fs::path& file) {
    const Bytes text = read_file(output);
    const auto rows = parse_json(text);
    try {
      const nlohmann::json& row = rows.at(0);
      LabStep step{.seconds = row.at("step_seconds_median").get<double>(), .obstacle = ""};
      const std::string record = json_text({{"command", bench}, {"measured", row}}) + "\n";
      write_new_file(file.string(), std::as_bytes(std::span(record)));
      return step;
    } catch (const nlohmann::json::exception&) {
      return std::nullopt;
    }
  }

  const ComparePlan& plan_;
  fs::path out_;
  std::string netlab_;
  ProgressLine progress_;
  std::vector<DesignMeans> means_;
  std::string netlab_obstacle_;
};

}  // namespace

LabSteps measure_in_lab(const ComparePlan& plan, const std::vector<CellOutcome>& outcomes,
                        const fs::path& out, const std::string& netlab) {
  return Lab(plan, outcomes, out, netlab).measure();
}

}  // namespace tersewire::apps
