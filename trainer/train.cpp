#include "trainer/train.h"

#include <chrono>
#include <cmath>
#include <exception>

#include "tersewire/error.h"
#include "trainer/descent.h"
#include "trainer/local_nodes.h"

namespace tersewire::trainer {
namespace {

constexpr const char* kMpi = "mpi";

}  // namespace

std::uint64_t steps_for_epochs(double epochs, std::size_t images, std::size_t workers,
                               std::size_t batch) {
  const double a_step = static_cast<double>(workers) * static_cast<double>(batch);
  const double steps = std::ceil(epochs * static_cast<double>(images) / a_step);
  if (!(steps >= 1 && steps < 1e15)) {
    throw Error(ErrorCode::kInvalidArgument,
                "that many epochs make no number of steps that could be run; use a finite number "
                "above 0");
  }
  return static_cast<std::uint64_t>(steps);
}

void check(const TrainConfig& config, const DataSplits& data) {
  if (config.steps < 1) {
    throw Error(ErrorCode::kInvalidArgument, "a job needs at least 1 step");
  }
  server_nodes(config);
  check_descent(config);
  for (const Dataset* images : {&data.train, &data.test}) {
    if (images->image_bytes() == Network::kPixels && images->height == images->width) continue;
    throw Error(ErrorCode::kInvalidArgument, "the images of '" + data.name + "' are " +
                                                 std::to_string(images->height) + " x " +
                                                 std::to_string(images->width) + ", and model " +
                                                 config.model + " takes 28 x 28; use such images");
  }
  // The last worker's shard is the smallest.
  const auto workers = static_cast<std::size_t>(config.workers);
  BatchSampler(data.train.size(), workers, workers - 1, config.batch, config.seed);
}

std::vector<std::unique_ptr<Transport>> join_network(const TrainConfig& config) {
  std::vector<std::unique_ptr<Transport>> ends;
  if (config.transport == kInProcess) {
    ends = make_in_process_network(config.workers + server_nodes(config));
  } else if (config.transport == kMpi) {
    ends.push_back(join_mpi_network(std::chrono::seconds(config.deadline_seconds)));
  } else {
    throw Error(ErrorCode::kInvalidArgument, "there is no transport '" + config.transport +
                                                 "'; use " + kInProcess + " or " + kMpi);
  }
  return ends;
}

int server_nodes(const TrainConfig& config) { return server_nodes(job_of(config)); }

void check_nodes(const TrainConfig& config, int nodes) {
  const int servers = server_nodes(config);
  const int needed = config.workers + servers;
  if (nodes == needed) return;
  const std::string and_servers = servers > 0 ? " and " + std::to_string(servers) + " servers" : "";
  throw Error(ErrorCode::kInvalidArgument,
              std::to_string(config.workers) + " workers" + and_servers + " need " +
                  std::to_string(needed) + " processes, and " + std::to_string(nodes) +
                  " were started; use 'mpirun -n " + std::to_string(needed) +
                  "' or other numbers of them");
}

std::optional<TrainResult> train(const TrainConfig& config, const DataSplits& data,
                                 const TrainHooks& hooks,
                                 std::vector<std::unique_ptr<Transport>> ends) {
  std::unique_ptr<LocalNodes> nodes;
  try {
    check_nodes(config, ends.front()->size());
    check(config, data);
    hold_library_threads();
    nodes = std::make_unique<LocalNodes>(config, data, hooks, ends);
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

TrainResult train(const TrainConfig& config, const DataSplits& data, const TrainHooks& hooks) {
  return *train(config, data, hooks, join_network(config));
}

}  // namespace tersewire::trainer
