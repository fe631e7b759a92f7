#include "trainer/loop/train.h"

#include <fmt/format.h>

#include <cmath>
#include <exception>

#include "tersewire/counted.h"
#include "tersewire/error.h"
#include "tersewire/policy.h"
#include "tersewire/transports.h"
#include "trainer/chooser/codec_pilot.h"
#include "trainer/loop/descent.h"
#include "trainer/loop/local_nodes.h"
#include "trainer/models/models.h"
#include "trainer/settings/rate_gain.h"

namespace tersewire::trainer {
namespace {

// Whether only the model's own tensors tell if the job makes sense: its policy's rules have to be
// met, and whole tensors are few.
bool depends_on_tensors(const TrainConfig& config) {
  return config.job.policy.find(':') != std::string::npos ||
         config.job.part_values == Job::kWholeTensors;
}

// The job, with tensors that any codec and any number of servers is for in its model's place.
Job any_job_of(const TrainConfig& config) {
  std::vector<TensorInfo> tensors;
  for (const char* const name : {"first.weight", "middle.weight", "last.weight"}) {
    tensors.push_back(
        {.name = name, .shape = {std::uint64_t{1} << 40U}, .kind = TensorKind::kDense});
  }
  return job_of(config, std::move(tensors));
}

// Without libtorch, if possible.
Job quick_job_of(const TrainConfig& config) {
  return depends_on_tensors(config) ? job_of(config) : any_job_of(config);
}

std::string text_of(const SampleKind& kind, bool with_classes) {
  const std::string classes = with_classes ? std::to_string(kind.classes) : "";
  if (kind.text) return with_classes ? "text of " + classes + " different characters" : "text";
  std::string text;
  for (const std::int64_t side : kind.shape) {
    text += (text.empty() ? "" : " x ") + std::to_string(side);
  }
  return with_classes ? text + " in " + classes + " classes" : text;
}

const SampleKind& takes_of(const TrainConfig& config) { return model_info(config.model).takes; }

// The samples that the model takes with this data, whose classes it tells apart.
SampleKind taken(const TrainConfig& config, const SampleKind& data) {
  SampleKind takes = takes_of(config);
  if (takes.text && data.text && takes.shape.empty()) takes.shape = data.shape;
  takes.classes = config.classes > 0 ? config.classes : data.classes;
  return takes;
}

void check_fit(const TrainConfig& config, const DataSplits& data) {
  const SampleKind takes = taken(config, data.train->kind());
  for (const auto& samples : {data.train, data.test}) {
    if (samples->kind() == takes) continue;
    // A model takes as many classes as its data has.
    const bool with_classes =
        samples->kind().text == takes.text && samples->kind().shape == takes.shape;
    throw Error(
        ErrorCode::kInvalidArgument,
        "model " + config.model + " takes samples of " + text_of(takes, with_classes) +
            ", but those of '" + data.name + "' are " + text_of(samples->kind(), with_classes) +
            "; use other data" +
            (config.augment == "none" ? " or another model" : ", another model or --augment none") +
            "; train --help lists them");
  }
}

void check_choosing(const TrainConfig& config) {
  static_cast<void>(budget_bytes_a_day(config.budget));
  if (config.budget.empty() || config.job.push_codec == kAutoCodec) return;
  throw Error(ErrorCode::kInvalidArgument,
              "a budget is kept by choosing codecs, but this job has " + config.job.push_codec +
                  "; use --codec auto, or give no budget");
}

void check_dry_run(const TrainConfig& config, const Job& job) {
  if (config.dry.empty()) return;
  if (job.local_updates > 0 || exchange_traits(job.exchange).averages_weights) {
    throw Error(ErrorCode::kInvalidArgument,
                "a dry run measures gradients, but this job would not send any; use no local "
                "updates, and an exchange other than weight-average");
  }
  for (const std::string& codec : codec_list(config.dry)) {
    choose_codecs(job.policy, codec, job.tensors);
  }
}

void check_job(const TrainConfig& config, const Job& job) {
  static_cast<void>(server_nodes(job));
  check_dry_run(config, job);
}

}  // namespace

std::uint64_t steps_for_epochs(double epochs, std::size_t images, std::size_t workers,
                               std::size_t batch) {
  const double a_step = static_cast<double>(workers) * static_cast<double>(batch);
  const double steps = std::ceil(epochs * static_cast<double>(images) / a_step);
  if (!(steps >= 1 && steps < static_cast<double>(kTooManySteps))) {
    throw Error(ErrorCode::kInvalidArgument,
                "that many epochs do not make a usable number of steps; use a number above 0 that "
                "makes fewer than 10^15 of them");
  }
  return static_cast<std::uint64_t>(steps);
}

std::string not_finite_sentence(std::uint64_t step) {
  return "the loss is not a finite number in step " + std::to_string(step) +
         ": the training has diverged; use a lower --lr, a longer --warm-up or a milder codec, or "
         "--keep-going to continue anyway";
}

DataSplits load_data(const TrainConfig& config) {
  return load_data(config.data, config.job.seed, config.augment, takes_of(config).shape,
                   config.skip_unreadable);
}

void check_settings(const TrainConfig& config) {
  static_cast<void>(model_info(config.model));
  if (config.steps < 1) {
    throw Error(ErrorCode::kInvalidArgument, "a job needs at least 1 step");
  }
  if (!(config.compute_ms >= 0 && config.slowest >= 1)) {
    throw Error(ErrorCode::kInvalidArgument,
                "a step cannot take negative time, nor the last worker's less than the others'; "
                "use a --compute-ms of at least 0 and a --slowest of at least 1");
  }
  if (config.slowest > 1 && !(config.compute_ms > 0)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the last worker's steps are to take {} times --compute-ms, which is "
                            "0; give --compute-ms",
                            config.slowest));
  }
  check_descent(config);
  check_choosing(config);
  if (!depends_on_tensors(config)) check_job(config, any_job_of(config));
}

void check(const TrainConfig& config, const DataSplits& data) {
  check_settings(config);
  check_fit(config, data);
  check_job(config, job_of(config));
  // The last worker's shard is the smallest.
  const auto workers = static_cast<std::size_t>(config.job.workers);
  BatchSampler(data.train->size(), workers, workers - 1, config.batch, config.job.seed);
}

std::vector<std::unique_ptr<Transport>> join_network(const TrainConfig& config) {
  return tersewire::join_network(config.transport, config.job.workers + server_nodes(config),
                                 config.job.wait_limits());
}

std::string default_pull_codec(const TrainConfig& config, const std::string& codec) {
  if (!is_adaptive(config) || !sends_means(config.job)) return codec;
  return codec == kAutoCodec ? kAutoPullWithoutResidual : adaptive_pull_codec(codec);
}

int server_nodes(const TrainConfig& config) { return server_nodes(quick_job_of(config)); }

bool servers_encode(const TrainConfig& config) { return servers_encode(quick_job_of(config)); }

void check_nodes(const TrainConfig& config, int nodes) {
  const int servers = server_nodes(config);
  const int needed = config.job.workers + servers;
  if (nodes == needed) return;
  const std::string and_servers = servers > 0 ? " and " + counted(servers, "server") : "";
  throw Error(ErrorCode::kInvalidArgument,
              "a job of " + counted(config.job.workers, "worker") + and_servers + " takes " +
                  counted(needed, "process", "processes") + ", not " + std::to_string(nodes) +
                  "; use 'mpirun -n " + std::to_string(needed) +
                  "' or change the number of workers or servers");
}

std::optional<TrainResult> train(const TrainConfig& config, const DataSplits& data,
                                 const TrainHooks& hooks,
                                 std::vector<std::unique_ptr<Transport>> ends,
                                 const JobCheckpoint* resume) {
  TrainConfig fitted = config;
  fitted.classes = data.train->kind().classes;
  std::unique_ptr<LocalNodes> nodes;
  try {
    check_nodes(config, ends.front()->size());
    check(config, data);
    hold_library_threads();
    nodes = std::make_unique<LocalNodes>(fitted, data, hooks, ends, resume);
    nodes->run();
  } catch (const std::exception& error) {
    ends.front()->abort(error.what());
    throw;
  }
  const bool is_first = ends.front()->rank() == 0;
  // The other nodes may go: nobody waits for the test.
  ends.clear();
  if (!is_first) return std::nullopt;
  return nodes->result();
}

TrainResult train(const TrainConfig& config, const DataSplits& data, const TrainHooks& hooks,
                  const JobCheckpoint* resume) {
  return *train(config, data, hooks, join_network(config), resume);
}

}  // namespace tersewire::trainer
