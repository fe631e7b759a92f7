// What tests of trainings share: data of a moment, and checkpoints that stay in memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "trainer/data/image_samples.h"
#include "trainer/data/stroke_digits.h"
#include "trainer/files/checkpoint.h"
#include "trainer/loop/train.h"

namespace tersewire::trainer {

inline const DataSplits& small_data() {
  static const DataSplits data{std::make_shared<ImageSamples>(generate_stroke_digits(1, 0, 600)),
                               std::make_shared<ImageSamples>(generate_stroke_digits(1, 600, 100)),
                               "small"};
  return data;
}

inline StoredNode in_memory(NodeCheckpoint node) {
  StoredNode stored{
      .rank = node.rank, .step = node.step, .facts = std::move(node.facts), .arrays = {}};
  for (auto& [name, array] : node.arrays) {
    stored.arrays[name] = {
        .elems = array.values.size(),
        .read = [values = std::move(array.values)](std::size_t first, std::span<float> out) {
          std::ranges::copy(std::span(values).subspan(first, out.size()), out.begin());
        }};
  }
  return stored;
}

// A job's checkpoints, by step.
class Checkpoints {
 public:
  explicit Checkpoints(const TrainConfig& config) : config_(config) {}

  TrainHooks hooks() {
    TrainHooks hooks;
    hooks.on_checkpoint = [this](NodeCheckpoint node) {
      const std::lock_guard lock(mutex_);
      const std::uint64_t step = node.step;
      nodes_[step].push_back(std::move(node));
    };
    return hooks;
  }

  std::vector<NodeCheckpoint> nodes_after(std::uint64_t step) {
    std::vector<NodeCheckpoint> nodes = nodes_.at(step);
    std::ranges::sort(nodes, {}, &NodeCheckpoint::rank);
    return nodes;
  }

  JobCheckpoint after(std::uint64_t step) {
    JobCheckpoint checkpoint{
        .workers = config_.job.workers, .servers = config_.job.servers, .nodes = {}};
    for (NodeCheckpoint& node : nodes_after(step)) {
      checkpoint.nodes.push_back(in_memory(std::move(node)));
    }
    return checkpoint;
  }

 private:
  TrainConfig config_;
  std::mutex mutex_;
  std::map<std::uint64_t, std::vector<NodeCheckpoint>> nodes_;
};

}  // namespace tersewire::trainer
