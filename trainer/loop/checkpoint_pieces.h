// A node's checkpoint, put together from what lives on the node and taken apart again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "tersewire/communicator.h"
#include "trainer/files/checkpoint.h"
#include "trainer/files/exchange_pieces.h"
#include "trainer/loop/descent.h"
#include "trainer/models/network.h"

namespace tersewire::trainer {

// A copy.
NodeCheckpoint::Array array_of(const Network::Parameter& parameter);

// Puts a node's arrays together.
class CheckpointWriter {
 public:
  // Of a node of `job`, which must outlive it.
  CheckpointWriter(int rank, std::uint64_t step, const Job& job);

  void add(const std::string& group, const Part& part, std::span<const float> values);
  void add_parameters(const std::string& group, const std::vector<Network::Parameter>& parameters);
  // `before` stands before the names of its buffers.
  void add_descent(const Descent& descent, const Part& part, const std::string& before = "");
  void add_exchange(const NodeState& state, const std::vector<Part>& parts) {
    trainer::add_exchange(checkpoint_, state, job_, parts);
  }
  void add_fact(const std::string& name, const std::string& text);

  [[nodiscard]] NodeCheckpoint take() { return std::move(checkpoint_); }

 private:
  const Job& job_;
  NodeCheckpoint checkpoint_;
};

// Numbers as a fact, and back to the bit. Throws kDataLoss for another text.
std::string text_of(const std::deque<double>& numbers);
std::deque<double> doubles_in(const std::string& text);

// What the node of this rank said; empty where it was not in the job.
std::string fact_in(const JobCheckpoint& checkpoint, int rank, const std::string& name);

// Finds in a job's checkpoint what a node of the job that goes on needs. Functions throw
// kFailedPrecondition, naming the tensor, where something is missing or of another size.
class CheckpointReader {
 public:
  // For a node of `job`, whose tensors and codecs are those of the job that made the checkpoint,
  // and whose numbers of workers and servers may be others. Both must outlive it.
  CheckpointReader(const JobCheckpoint& checkpoint, const Job& job);

  [[nodiscard]] std::uint64_t step() const { return checkpoint_.step(); }
  [[nodiscard]] int nodes() const { return static_cast<int>(checkpoint_.nodes.size()); }

  // The residuals of the node of this rank, read now. Any thread.
  [[nodiscard]] NodeState exchange_of(int rank) const { return exchange_.state_of(rank); }
  // Of a worker; others' stand for one that has none of its own.
  void read_parameters(const std::string& group, int worker,
                       const std::vector<Network::Parameter>& parameters) const;
  // What servers had of a part.
  void read_part(const std::string& group, const Part& part, std::span<float> values) const;
  // Of the part that a server owned, or that `worker` or another had: after so many steps of its
  // own, `before` as in CheckpointWriter.
  void read_descent(Descent& descent, const Part& part, int worker, std::uint64_t steps,
                    const std::string& before = "") const;
  [[nodiscard]] std::string fact(int rank, const std::string& name) const {
    return fact_in(checkpoint_, rank, name);
  }

 private:
  // Values of a tensor.
  struct Wanted {
    const std::string& group;
    const std::string& tensor;
    std::size_t elems;  // of the whole tensor
    const char* noun;   // what of the job must be as it was
  };
  // Those from `begin` on: that worker's or, where it has none, the first that there are, put
  // together from the parts that nodes have.
  void read(const Wanted& wanted, std::size_t begin, int worker, std::span<float> out) const;
  // Reads what one array has of them, from the first on, and says how many that were.
  [[nodiscard]] std::size_t read_some(const Wanted& wanted, std::size_t elem, int worker,
                                      std::span<float> out) const;

  const JobCheckpoint& checkpoint_;
  const Job& job_;
  ExchangeReader exchange_;
};

}  // namespace tersewire::trainer
