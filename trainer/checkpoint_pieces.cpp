#include "trainer/checkpoint_pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "tersewire/error.h"
#include "trainer/evaluation.h"
#include "trainer/part_values.h"

namespace tersewire::trainer {
namespace {

constexpr const char* kPushed = "pushed";
constexpr const char* kPulled = "pulled";
constexpr const char* kAccumulated = "accumulated";
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
  std::size_t begin = 0;
  const auto [end, error] =
      std::from_chars(key.data() + tensor.size() + 1, key.data() + key.size(), begin);
  if (error != std::errc() || end != key.data() + key.size()) return {};
  return begin;
}

// How the job that made a checkpoint cut its tensors; not at all, where it does not say.
std::size_t part_values_of(const JobCheckpoint& checkpoint) {
  const auto& facts = checkpoint.nodes.front().facts;
  const auto found = facts.find(kPartValues);
  if (found == facts.end()) return Job::kWholeTensors;
  if (const auto values = part_values_in(found->second)) return *values;
  throw Error(ErrorCode::kDataLoss, "the checkpoint's parts of '" + found->second +
                                        "' values are no number; use another copy of it");
}

Lists lists_in(const NodeCheckpoint& node, const std::string& group, const Job& job,
               const std::vector<Part>& parts) {
  Lists lists(parts.size());
  for (const Part& part : parts) {
    const auto found = node.arrays.find(key_of(group, job.tensors, part));
    if (found != node.arrays.end()) lists[part.number] = found->second.values;
  }
  return lists;
}

NodeState state_in(const NodeCheckpoint& node, const Job& job, const std::vector<Part>& parts) {
  return {.step = node.step,
          .pushed = lists_in(node, kPushed, job, parts),
          .pulled = lists_in(node, kPulled, job, parts),
          .accumulated = lists_in(node, kAccumulated, job, parts)};
}

// The states of the nodes of `job`, those of servers by the step that they count.
std::vector<NodeState> states_for(const JobCheckpoint& checkpoint, const Job& job) {
  Job made_by = job;
  made_by.workers = checkpoint.workers;
  made_by.servers = checkpoint.servers;
  made_by.part_values = part_values_of(checkpoint);
  const std::vector<Part> parts = job_parts(made_by);
  std::vector<NodeState> states;
  for (const NodeCheckpoint& node : checkpoint.nodes) {
    states.push_back(state_in(node, made_by, parts));
  }
  const int nodes = made_by.workers + server_nodes(made_by);
  if (std::ssize(states) != nodes) {
    refuse("the checkpoint is of " + std::to_string(states.size()) + " nodes, and its job has " +
           std::to_string(nodes) + "; resume with the exchange that it was made with");
  }
  // Who has the same place goes on with what it had.
  if (made_by.workers == job.workers && server_nodes(made_by) == server_nodes(job) &&
      parts == job_parts(job) && part_servers(made_by) == part_servers(job)) {
    return states;
  }
  return redistribute(states, made_by, job);
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

void CheckpointWriter::add_descent(const Descent& descent, const Part& part) {
  for (const auto& [name, values] : descent.state(part.number).buffers) add(name, part, values);
}

void CheckpointWriter::add_exchange(const NodeState& state, const std::vector<Part>& parts) {
  for (const auto& [group, lists] : {std::pair{kPushed, &state.pushed},
                                     {kPulled, &state.pulled},
                                     {kAccumulated, &state.accumulated}}) {
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
              "the checkpoint's '" + text + "' are no numbers; use another copy of it");
}

CheckpointReader::CheckpointReader(const JobCheckpoint& checkpoint, const Job& job)
    : checkpoint_(checkpoint), job_(job), exchange_(states_for(checkpoint, job)) {}

const NodeState& CheckpointReader::exchange_of(int rank) const {
  return exchange_[static_cast<std::size_t>(rank)];
}

void CheckpointReader::read(const Wanted& wanted, std::size_t begin, int worker,
                            std::span<float> out) const {
  for (std::size_t at = 0; at < out.size();) {
    const std::span<const float> found = find(wanted, begin + at, worker);
    const std::size_t count = std::min(found.size(), out.size() - at);
    std::ranges::copy(found.first(count), out.begin() + static_cast<std::ptrdiff_t>(at));
    at += count;
  }
}

std::span<const float> CheckpointReader::find(const Wanted& wanted, std::size_t elem,
                                              int worker) const {
  const std::string name = key_of(wanted.group, wanted.tensor);
  const auto first = static_cast<std::size_t>(worker % checkpoint_.workers);
  for (std::size_t i = 0; i < checkpoint_.nodes.size(); ++i) {
    const auto& arrays = checkpoint_.nodes[i == 0 ? first : i == first ? 0 : i].arrays;
    for (auto array = arrays.lower_bound(name);
         array != arrays.end() && array->first.starts_with(name); ++array) {
      const std::vector<float>& values = array->second.values;
      if (array->first == name && values.size() != wanted.elems) {
        refuse("the checkpoint's '" + name + "' has " + std::to_string(values.size()) +
               " values and " + std::to_string(wanted.elems) +
               " are needed; resume with the model that it was made of");
      }
      const auto begin = begin_in(array->first, name);
      if (!begin || elem < *begin || elem - *begin >= values.size()) continue;
      return std::span(values).subspan(elem - *begin);
    }
  }
  refuse("the checkpoint has no '" + name + "'; resume with the " + wanted.noun);
}

void CheckpointReader::read_parameters(const std::string& group, int worker,
                                       const std::vector<Network::Parameter>& parameters) const {
  for (const Network::Parameter& parameter : parameters) {
    read({group, parameter.name, parameter.elems, "model that it was made of"}, 0, worker,
         values_of(parameter));
  }
}

void CheckpointReader::read_descent(Descent& descent, const Part& part, int worker) const {
  PartDescentState state = descent.state(part.number);
  state.steps = step() / static_cast<std::uint64_t>(job_.local_steps);
  for (auto& [group, buffer] : state.buffers) {
    const TensorInfo& tensor = job_.tensors[part.tensor];
    read({group, tensor.name, tensor.elems(), "optimizer that it was made with"}, part.begin,
         worker, buffer);
  }
  descent.resume(part.number, state);
}

std::string CheckpointReader::fact(int rank, const std::string& name) const {
  const auto number = static_cast<std::size_t>(rank);
  if (number >= checkpoint_.nodes.size()) return {};
  const auto& facts = checkpoint_.nodes[number].facts;
  const auto found = facts.find(name);
  return found == facts.end() ? std::string() : found->second;
}

}  // namespace tersewire::trainer
