#include "trainer/checkpoint_pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "tersewire/error.h"
#include "trainer/evaluation.h"

namespace tersewire::trainer {
namespace {

constexpr const char* kPushed = "pushed";
constexpr const char* kPulled = "pulled";
constexpr const char* kAccumulated = "accumulated";

using Lists = std::vector<std::vector<float>>;

std::string key_of(const std::string& group, const std::string& tensor) {
  return group + "/" + tensor;
}

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ErrorCode::kFailedPrecondition, sentence);
}

Lists lists_in(const NodeCheckpoint& node, const std::string& group,
               const std::vector<TensorInfo>& tensors) {
  Lists lists(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto found = node.arrays.find(key_of(group, tensors[i].name));
    if (found != node.arrays.end()) lists[i] = found->second.values;
  }
  return lists;
}

NodeState state_in(const NodeCheckpoint& node, const std::vector<TensorInfo>& tensors) {
  return {.step = node.step,
          .pushed = lists_in(node, kPushed, tensors),
          .pulled = lists_in(node, kPulled, tensors),
          .accumulated = lists_in(node, kAccumulated, tensors)};
}

// The states of the nodes of `job`, those of servers by the step that they count.
std::vector<NodeState> states_for(const JobCheckpoint& checkpoint, const Job& job) {
  std::vector<NodeState> states;
  for (const NodeCheckpoint& node : checkpoint.nodes) states.push_back(state_in(node, job.tensors));
  Job made_by = job;
  made_by.workers = checkpoint.workers;
  made_by.servers = checkpoint.servers;
  const int nodes = made_by.workers + server_nodes(made_by);
  if (std::ssize(states) != nodes) {
    refuse("the checkpoint is of " + std::to_string(states.size()) + " nodes, and its job has " +
           std::to_string(nodes) + "; resume with the exchange that it was made with");
  }
  // Who has the same place goes on with what it had.
  if (made_by.workers == job.workers && server_nodes(made_by) == server_nodes(job) &&
      tensor_servers(made_by) == tensor_servers(job)) {
    return states;
  }
  return redistribute(states, made_by, job);
}

}  // namespace

NodeCheckpoint::Array array_of(const Network::Parameter& parameter) {
  const auto values = values_of(parameter);
  return {parameter.shape, {values.begin(), values.end()}};
}

void CheckpointWriter::add(const std::string& group, std::size_t tensor,
                           std::span<const float> values) {
  const TensorInfo& info = tensors_[tensor];
  checkpoint_.arrays[key_of(group, info.name)] = {info.shape, {values.begin(), values.end()}};
}

void CheckpointWriter::add_parameters(const std::string& group,
                                      const std::vector<Network::Parameter>& parameters) {
  for (const Network::Parameter& parameter : parameters) {
    checkpoint_.arrays[key_of(group, parameter.name)] = array_of(parameter);
  }
}

void CheckpointWriter::add_descent(const Descent& descent, std::size_t tensor) {
  for (const auto& [name, values] : descent.state(tensor).buffers) add(name, tensor, values);
}

void CheckpointWriter::add_exchange(const NodeState& state) {
  for (const auto& [group, lists] : {std::pair{kPushed, &state.pushed},
                                     {kPulled, &state.pulled},
                                     {kAccumulated, &state.accumulated}}) {
    for (std::size_t i = 0; i < lists->size(); ++i) {
      if (!(*lists)[i].empty()) add(group, i, (*lists)[i]);
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

const std::vector<float>& CheckpointReader::values(const std::string& name, std::size_t elems,
                                                   int worker, const char* noun) const {
  const auto first = static_cast<std::size_t>(worker % checkpoint_.workers);
  for (std::size_t i = 0; i < checkpoint_.nodes.size(); ++i) {
    const auto& arrays = checkpoint_.nodes[i == 0 ? first : i == first ? 0 : i].arrays;
    const auto found = arrays.find(name);
    if (found == arrays.end()) continue;
    const std::vector<float>& values = found->second.values;
    if (values.size() == elems) return values;
    refuse("the checkpoint's '" + name + "' has " + std::to_string(values.size()) + " values and " +
           std::to_string(elems) + " are needed; resume with the model that it was made of");
  }
  refuse("the checkpoint has no '" + name + "'; resume with the " + noun);
}

void CheckpointReader::read_parameters(const std::string& group, int worker,
                                       const std::vector<Network::Parameter>& parameters) const {
  for (const Network::Parameter& parameter : parameters) {
    std::ranges::copy(
        values(key_of(group, parameter.name), parameter.elems, worker, "model that it was made of"),
        parameter.values);
  }
}

void CheckpointReader::read_descent(Descent& descent, std::size_t tensor, int worker) const {
  TensorDescentState state = descent.state(tensor);
  state.steps = step() / static_cast<std::uint64_t>(job_.local_steps);
  for (auto& [group, buffer] : state.buffers) {
    buffer = values(key_of(group, job_.tensors[tensor].name), buffer.size(), worker,
                    "optimizer that it was made with");
  }
  descent.resume(tensor, state);
}

std::string CheckpointReader::fact(int rank, const std::string& name) const {
  const auto number = static_cast<std::size_t>(rank);
  if (number >= checkpoint_.nodes.size()) return {};
  const auto& facts = checkpoint_.nodes[number].facts;
  const auto found = facts.find(name);
  return found == facts.end() ? std::string() : found->second;
}

}  // namespace tersewire::trainer
