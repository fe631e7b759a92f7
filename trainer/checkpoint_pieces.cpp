#include "trainer/checkpoint_pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "tersewire/error.h"
#include "tersewire/setting_text.h"
#include "trainer/evaluation.h"
#include "trainer/part_values.h"

namespace tersewire::trainer {
namespace {

constexpr const char* kPartValues = "part_values";  // a fact
constexpr char kAt = '@';

using Lists = std::vector<std::vector<float>>;

std::string key_of(const std::string& group, const std::string& tensor) {
  return group + "/" + tensor;
}

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ErrorCode::kFailedPrecondition, sentence);
}

std::string key_of(const std::string& group, const std::vector<TensorInfo>& tensors,
                   const Part& part) {
  const TensorInfo& tensor = tensors[part.tensor];
  const std::string key = key_of(group, tensor.name);
  return part.elems == tensor.elems() ? key : key + kAt + std::to_string(part.begin);
}

// What a key says beyond `tensor`: where the array begins in it; none where it is of another.
std::optional<std::size_t> begin_in(std::string_view key, std::string_view tensor) {
  if (key == tensor) return 0;
  if (!key.starts_with(tensor) || key[tensor.size()] != kAt) return {};
  return parsed_number<std::size_t>(key.substr(tensor.size() + 1));
}

// How the job that made a checkpoint cut its tensors; not at all, where it does not say.
std::size_t part_values_of(const JobCheckpoint& checkpoint) {
  const auto& facts = checkpoint.nodes.front().facts;
  const auto found = facts.find(kPartValues);
  if (found == facts.end()) return Job::kWholeTensors;
  if (const auto values = part_values_in(found->second)) return *values;
  throw Error(ErrorCode::kDataLoss, "the checkpoint's part size '" + found->second +
                                        "' is not a number of values; use another copy of it");
}

std::vector<float> values_in(const StoredArray& array) {
  std::vector<float> values(array.elems);
  array.read(0, values);
  return values;
}

Lists lists_in(const StoredNode& node, const std::string& group, const Job& job,
               const std::vector<Part>& parts) {
  Lists lists(parts.size());
  for (const Part& part : parts) {
    const auto found = node.arrays.find(key_of(group, job.tensors, part));
    if (found != node.arrays.end()) lists[part.number] = values_in(found->second);
  }
  return lists;
}

// `job`, as the one was that made the checkpoint.
Job maker_of(const JobCheckpoint& checkpoint, const Job& job) {
  Job made_by = job;
  made_by.workers = checkpoint.workers;
  made_by.servers = checkpoint.servers;
  made_by.part_values = part_values_of(checkpoint);
  return made_by;
}

}  // namespace

NodeCheckpoint::Array array_of(const Network::Parameter& parameter) {
  const auto values = values_of(parameter);
  return {parameter.shape, {values.begin(), values.end()}};
}

CheckpointWriter::CheckpointWriter(int rank, std::uint64_t step, const Job& job)
    : tensors_(job.tensors) {
  checkpoint_.rank = rank;
  checkpoint_.step = step;
  add_fact(kPartValues, part_values_text(job.part_values));
}

void CheckpointWriter::add(const std::string& group, const Part& part,
                           std::span<const float> values) {
  const TensorInfo& tensor = tensors_[part.tensor];
  const bool whole = part.elems == tensor.elems();
  checkpoint_.arrays[key_of(group, tensors_, part)] = {
      whole ? tensor.shape : std::vector<std::uint64_t>{part.elems},
      {values.begin(), values.end()}};
}

void CheckpointWriter::add_parameters(const std::string& group,
                                      const std::vector<Network::Parameter>& parameters) {
  for (const Network::Parameter& parameter : parameters) {
    checkpoint_.arrays[key_of(group, parameter.name)] = array_of(parameter);
  }
}

void CheckpointWriter::add_descent(const Descent& descent, const Part& part,
                                   const std::string& before) {
  for (const auto& [name, values] : descent.state(part.number).buffers) {
    add(before + name, part, values);
  }
}

void CheckpointWriter::add_exchange(const NodeState& state, const std::vector<Part>& parts) {
  for (const auto& [group, lists] : {std::pair{kPushedGroup, &state.pushed},
                                     {kPulledGroup, &state.pulled},
                                     {kAccumulatedGroup, &state.accumulated},
                                     {kSharedGroup, &state.shared},
                                     {kFollowedGroup, &state.followed}}) {
    for (const Part& part : parts) {
      if (!(*lists)[part.number].empty()) add(group, part, (*lists)[part.number]);
    }
  }
}

void CheckpointWriter::add_fact(const std::string& name, const std::string& text) {
  checkpoint_.facts[name] = text;
}

std::string text_of(const std::deque<double>& numbers) {
  return fmt::format("{}", fmt::join(numbers, " "));
}

std::deque<double> doubles_in(const std::string& text) {
  std::deque<double> numbers;
  const char* at = text.c_str();
  for (char* end = nullptr; *at != '\0'; at = end) {
    numbers.push_back(std::strtod(at, &end));  // reads infinities and NaN, too
    if (end == at) break;
  }
  if (*at == '\0') return numbers;
  throw Error(ErrorCode::kDataLoss,
              "the checkpoint's '" + text + "' are not numbers; use another copy of it");
}

CheckpointReader::CheckpointReader(const JobCheckpoint& checkpoint, const Job& job)
    : checkpoint_(checkpoint),
      job_(job),
      made_by_(maker_of(checkpoint, job)),
      parts_(job_parts(made_by_)) {
  const int nodes = made_by_.workers + server_nodes(made_by_);
  if (std::ssize(checkpoint.nodes) != nodes) {
    refuse("the checkpoint has " + std::to_string(checkpoint.nodes.size()) +
           " nodes, but its job has " + std::to_string(nodes) +
           "; resume with the exchange that it was made with");
  }
  // Who has the same place goes on with what it had.
  if (!checkpoint.reordered && made_by_.workers == job.workers &&
      server_nodes(made_by_) == server_nodes(job) && parts_ == job_parts(job) &&
      part_servers(made_by_) == part_servers(job)) {
    return;
  }
  std::vector<NodeState> states;
  for (const StoredNode& node : checkpoint.nodes) states.push_back(state_in(node));
  redistributed_ = redistribute(states, made_by_, job);
}

NodeState CheckpointReader::state_in(const StoredNode& node) const {
  return {.step = node.step,
          .pushed = lists_in(node, kPushedGroup, made_by_, parts_),
          .pulled = lists_in(node, kPulledGroup, made_by_, parts_),
          .accumulated = lists_in(node, kAccumulatedGroup, made_by_, parts_),
          .shared = lists_in(node, kSharedGroup, made_by_, parts_),
          .followed = lists_in(node, kFollowedGroup, made_by_, parts_)};
}

NodeState CheckpointReader::exchange_of(int rank) const {
  const auto number = static_cast<std::size_t>(rank);
  return redistributed_.empty() ? state_in(checkpoint_.nodes[number]) : redistributed_[number];
}

void CheckpointReader::read(const Wanted& wanted, std::size_t begin, int worker,
                            std::span<float> out) const {
  for (std::size_t at = 0; at < out.size();) {
    at += read_some(wanted, begin + at, worker, out.subspan(at));
  }
}

std::size_t CheckpointReader::read_some(const Wanted& wanted, std::size_t elem, int worker,
                                        std::span<float> out) const {
  const std::string name = key_of(wanted.group, wanted.tensor);
  const auto first = static_cast<std::size_t>(worker % checkpoint_.workers);
  for (std::size_t i = 0; i < checkpoint_.nodes.size(); ++i) {
    const auto& arrays = checkpoint_.nodes[i == 0 ? first : i == first ? 0 : i].arrays;
    for (auto array = arrays.lower_bound(name);
         array != arrays.end() && array->first.starts_with(name); ++array) {
      const std::size_t elems = array->second.elems;
      if (array->first == name && elems != wanted.elems) {
        refuse("the checkpoint's '" + name + "' has " + std::to_string(elems) + " values, but " +
               std::to_string(wanted.elems) +
               " are needed; resume with the model that it was made from");
      }
      const auto begin = begin_in(array->first, name);
      if (!begin || elem < *begin || elem - *begin >= elems) continue;
      const std::size_t count = std::min(out.size(), elems - (elem - *begin));
      array->second.read(elem - *begin, out.first(count));
      return count;
    }
  }
  refuse("the checkpoint has no '" + name + "'; resume with the " + wanted.noun);
}

void CheckpointReader::read_parameters(const std::string& group, int worker,
                                       const std::vector<Network::Parameter>& parameters) const {
  for (const Network::Parameter& parameter : parameters) {
    read({group, parameter.name, parameter.elems, "model that it was made from"}, 0, worker,
         values_of(parameter));
  }
}

void CheckpointReader::read_part(const std::string& group, const Part& part,
                                 std::span<float> values) const {
  const TensorInfo& tensor = job_.tensors[part.tensor];
  read({group, tensor.name, tensor.elems(), "model that it was made from"}, part.begin, 0, values);
}

void CheckpointReader::read_descent(Descent& descent, const Part& part, int worker,
                                    std::uint64_t steps, const std::string& before) const {
  PartDescentState state = descent.state(part.number);
  state.steps = steps;
  for (auto& [name, buffer] : state.buffers) {
    const TensorInfo& tensor = job_.tensors[part.tensor];
    read({before + name, tensor.name, tensor.elems(), "optimizer that it was made with"},
         part.begin, worker, buffer);
  }
  descent.resume(part.number, state);
}

std::string fact_in(const JobCheckpoint& checkpoint, int rank, const std::string& name) {
  const auto number = static_cast<std::size_t>(rank);
  if (number >= checkpoint.nodes.size()) return {};
  const auto& facts = checkpoint.nodes[number].facts;
  const auto found = facts.find(name);
  return found == facts.end() ? std::string() : found->second;
}

}  // namespace tersewire::trainer
