#include "trainer/loop/checkpoint_pieces.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "tersewire/error.h"
#include "trainer/loop/evaluation.h"

namespace tersewire::trainer {
namespace {

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ErrorCode::kFailedPrecondition, sentence);
}

}  // namespace

NodeCheckpoint::Array array_of(const Network::Parameter& parameter) {
  const auto values = values_of(parameter);
  return {parameter.shape, {values.begin(), values.end()}};
}

CheckpointWriter::CheckpointWriter(int rank, std::uint64_t step, const Job& job) : job_(job) {
  checkpoint_.rank = rank;
  checkpoint_.step = step;
}

void CheckpointWriter::add(const std::string& group, const Part& part,
                           std::span<const float> values) {
  add_values(checkpoint_, group, job_.tensors[part.tensor], part, values);
}

void CheckpointWriter::add_parameters(const std::string& group,
                                      const std::vector<Network::Parameter>& parameters) {
  for (const Network::Parameter& parameter : parameters) {
    checkpoint_.arrays[array_key(group, parameter.name)] = array_of(parameter);
  }
}

void CheckpointWriter::add_descent(const Descent& descent, const Part& part,
                                   const std::string& before) {
  for (const auto& [name, values] : descent.state(part.number).buffers) {
    add(before + name, part, values);
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
    : checkpoint_(checkpoint), job_(job), exchange_(checkpoint, job) {}

void CheckpointReader::read(const Wanted& wanted, std::size_t begin, int worker,
                            std::span<float> out) const {
  for (std::size_t at = 0; at < out.size();) {
    at += read_some(wanted, begin + at, worker, out.subspan(at));
  }
}

std::size_t CheckpointReader::read_some(const Wanted& wanted, std::size_t elem, int worker,
                                        std::span<float> out) const {
  const std::string name = array_key(wanted.group, wanted.tensor);
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
