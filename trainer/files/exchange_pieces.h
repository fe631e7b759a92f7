// What a node's exchange keeps, as arrays of its checkpoint, and found there again.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tersewire/communicator.h"
#include "trainer/files/checkpoint.h"

namespace tersewire::trainer {

void add_values(NodeCheckpoint& checkpoint, const std::string& group, const TensorInfo& tensor,
                const Part& part, std::span<const float> values);

// Of a node of `job`, which has these parts.
void add_exchange(NodeCheckpoint& checkpoint, const NodeState& state, const Job& job,
                  const std::vector<Part>& parts);

// Finds it for the nodes of a job that goes on.
class ExchangeReader {
 public:
  // `job`'s tensors and codecs are those of the job that made the checkpoint, and its numbers of
  // workers and servers may be others. Both must outlive this. Throws kFailedPrecondition where the
  // checkpoint is of another exchange, and what redistribute() throws.
  ExchangeReader(const JobCheckpoint& checkpoint, const Job& job);

  // The residuals of the node of this rank, read now. Any thread.
  [[nodiscard]] NodeState state_of(int rank) const;

 private:
  [[nodiscard]] NodeState state_in(const StoredNode& node) const;

  const JobCheckpoint& checkpoint_;
  Job made_by_;
  std::vector<Part> parts_;  // of the job that made it
  // By rank of the job that goes on, where its nodes' places are not those of the one that made it.
  std::vector<NodeState> redistributed_;
};

}  // namespace tersewire::trainer
