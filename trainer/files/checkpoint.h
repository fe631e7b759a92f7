// What a training job would lose in a restart, node by node: saved by each after the same step, and
// given back to a job that goes on from there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tersewire/communicator.h"
#include "tersewire/setting_text.h"

namespace tersewire::trainer {

// Groups of arrays. Beside them are what the optimizer keeps, "momentum" and so on, and "average",
// where the model is owned; and "local-momentum" and so on, what a worker's own optimizer keeps
// where it makes local updates.

// A worker's replica: worker 0's, and all workers' where they may differ or worker 0 may be gone.
inline constexpr const char* kModelGroup = "model";
// Of batch normalization: worker 0's, and all workers' where it may be gone.
inline constexpr const char* kStatisticsGroup = "statistics";
// The values of a part that a server owns.
inline constexpr const char* kServerGroup = "server";
// As in NodeState.
inline constexpr const char* kPushedGroup = "pushed";
inline constexpr const char* kPulledGroup = "pulled";
inline constexpr const char* kAccumulatedGroup = "accumulated";
inline constexpr const char* kSharedGroup = "shared";
inline constexpr const char* kFollowedGroup = "followed";
// Before the names of a worker's own buffers.
inline constexpr const char* kLocal = "local-";

// Whether an array, of a node on which a server owns a part of the model, is that server's.
inline bool is_of_server(const std::string& key) {
  const std::string group = key.substr(0, key.find('/'));
  return group != kModelGroup && group != kStatisticsGroup && group != kPushedGroup &&
         group != kAccumulatedGroup && group != kSharedGroup && !group.starts_with(kLocal);
}

// Names of arrays: GROUP/TENSOR, or GROUP/TENSOR@BEGIN where they are a part of it.
inline std::string array_key(const std::string& group, const std::string& tensor) {
  return group + "/" + tensor;
}
inline std::string array_key(const std::string& group, const TensorInfo& tensor, const Part& part) {
  const std::string key = array_key(group, tensor.name);
  return part.elems == tensor.elems() ? key : key + "@" + std::to_string(part.begin);
}
// Where the array of this key begins in the tensor of that one; none where it is of another.
inline std::optional<std::size_t> begin_in(std::string_view key, std::string_view tensor) {
  if (key == tensor) return 0;
  if (!key.starts_with(tensor) || key[tensor.size()] != '@') return {};
  return parsed_number<std::size_t>(key.substr(tensor.size() + 1));
}

// One node's.
struct NodeCheckpoint {
  struct Array {
    std::vector<std::uint64_t> shape;
    std::vector<float> values;
  };
  using Arrays = std::map<std::string, Array>;

  int rank = 0;
  std::uint64_t step = 0;                    // the last that is in it
  std::map<std::string, std::string> facts;  // what is no array, as texts
  Arrays arrays;
  // Of the server on the node before, in case that dies (server_copy.h). On no disk.
  Arrays copies = {};
};

// An array of a checkpoint, where it is kept.
struct StoredArray {
  std::size_t elems = 0;
  // Puts as many of its values into `values` as that has, from `first` on. Any thread; throws where
  // they cannot be read.
  std::function<void(std::size_t first, std::span<float> values)> read;
};

// One node's, whose arrays are read when they are wanted: a node needs little of what others saved.
struct StoredNode {
  int rank = 0;
  std::uint64_t step = 0;
  std::map<std::string, std::string> facts;
  std::map<std::string, StoredArray> arrays;
};

// A whole job's.
struct JobCheckpoint {
  int workers = 0;
  std::optional<int> servers;     // as Job::servers
  std::vector<StoredNode> nodes;  // by rank
  // Whether what a node owned goes to who owns it now, although its number has not changed: nodes
  // are not in the order that they were in.
  bool reordered = false;

  [[nodiscard]] std::uint64_t step() const { return nodes.front().step; }
};

}  // namespace tersewire::trainer
