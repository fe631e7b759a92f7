// A job with everything chosen: which codec each tensor travels with, which server owns it, and
// which others it shares its messages with.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "aggregator_tree.h"
#include "tersewire/codec.h"
#include "tersewire/communicator.h"

namespace tersewire {

// What adds up the sums of a ring's groups.
enum class RingTop { kRing, kTree };

// What the text of an exchange says beyond its name.
struct ExchangeOptions {
  bool scaler_sharing = false;        // gradient-server
  int fan_in = 4;                     // aggregator-tree: children of an aggregator, at most
  std::uint64_t average_every = 1;    // weight-average: steps between two exchanges of weights
  bool average_asynchronous = false;  // weight-average: with one worker at a time
  int group = 1;                      // ring: workers in each group of a ring
  RingTop top = RingTop::kRing;       // ring
};

// A job with everything chosen that its texts leave open; the same on every node.
struct Placement {
  Job job;
  ExchangeOptions options;
  int servers = 0;                                        // the ranks from job.workers on
  std::vector<std::shared_ptr<const Codec>> push_codecs;  // by tensor
  std::vector<std::shared_ptr<const Codec>> pull_codecs;
  std::vector<int> owners;     // by tensor, as ranks
  std::vector<TreeNode> tree;  // by rank; empty for exchanges without aggregators
  // Tensors whose messages go the same way travel together.
  std::vector<std::vector<std::size_t>> buckets;
  std::vector<std::size_t> bucket_of;  // by tensor
};

// Spreads tensors over servers: each, from the largest on, goes to the server that holds least.
// Ties go to the lower number, so that every node comes to the same answer.
std::vector<int> place_tensors(const Job& job, int servers);

// Tensors, from the last on, in buckets of Job::bucket_bytes or a tensor more (the last of a key
// may be smaller), each of tensors with the same key.
std::vector<std::vector<std::size_t>> make_buckets(const Job& job,
                                                   const std::vector<std::uint64_t>& keys);

// What the encoder of a tensor is for on the node of this rank.
EncoderContext encoder_context(const Job& job, std::size_t tensor, int rank);

}  // namespace tersewire
