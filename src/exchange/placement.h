// Which server owns which tensor, and which codec it travels with.
#pragma once

#include <memory>
#include <vector>

#include "tersewire/codec.h"
#include "tersewire/communicator.h"

namespace tersewire {

// A job with everything chosen that its texts leave open; the same on every node.
struct Placement {
  Job job;
  std::vector<std::shared_ptr<const Codec>> push_codecs;  // by tensor
  std::vector<std::shared_ptr<const Codec>> pull_codecs;
  std::vector<int> owners;  // by tensor, as ranks
};

// Spreads tensors over servers: each, from the largest on, goes to the server that holds least.
// Ties go to the lower number, so that every node comes to the same answer.
std::vector<int> place_tensors(const Job& job);

// What the encoder of a tensor is for on the node of this rank.
EncoderContext encoder_context(const Job& job, std::size_t tensor, int rank);

}  // namespace tersewire
