// A job with everything chosen: how its tensors are cut into parts, which codec each part travels
// with, which server owns it, and which others it shares its messages with.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "aggregator_tree.h"
#include "tersewire/codec.h"
#include "tersewire/communicator.h"
#include "tersewire/message.h"

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

// A job's parts, the server of each as its place among the servers (none where the job has no
// servers to spread them over), and which of Job::fragments it is in.
struct PartTable {
  std::vector<Part> parts;  // by number
  std::vector<std::size_t> servers;
  std::vector<std::size_t> fragments;
};

// A job with everything chosen that its texts leave open; the same on every node.
struct Placement {
  Job job;
  ExchangeOptions options;
  int servers = 0;                      // the ranks from job.workers on
  std::vector<Part> parts;              // by number
  std::vector<std::size_t> first_part;  // by tensor, and behind the last one all of them
  std::vector<std::shared_ptr<const Codec>> push_codecs;  // by part
  std::vector<std::shared_ptr<const Codec>> pull_codecs;
  std::vector<bool> follows;   // by part: whether pushes are differences (followed.h)
  std::vector<int> owners;     // by part, as ranks
  std::vector<TreeNode> tree;  // by rank; empty for exchanges without aggregators
  // Parts whose messages go the same way travel together.
  std::vector<std::vector<std::size_t>> buckets;
  std::vector<std::size_t> bucket_of;  // by part
  std::size_t bucket_bytes = 0;        // Job::bucket_bytes, or what stands for it
  // By part, which of Job::fragments it is in, and how many parts each of these has.
  std::vector<std::size_t> fragment_of;
  std::vector<std::size_t> fragment_parts;
  std::size_t longest_message = 0;  // most_message_bytes(), which goes through all parts

  [[nodiscard]] std::size_t parts_of(std::size_t tensor) const {
    return first_part[tensor + 1] - first_part[tensor];
  }
  // The part that a frame is of, if the job has it.
  [[nodiscard]] std::optional<std::size_t> find(const Frame& frame) const;
  // The part by its tensor and its place in it, as frames say it.
  [[nodiscard]] std::uint32_t place_in_tensor(std::size_t part) const {
    return static_cast<std::uint32_t>(part - first_part[parts[part].tensor]);
  }
  // The longest frame of a part that is pushed, and that is pulled.
  [[nodiscard]] std::size_t most_pushed_bytes(std::size_t part) const {
    return push_codecs[part]->max_encoded_bytes(parts[part].elems);
  }
  [[nodiscard]] std::size_t most_pulled_bytes(std::size_t part) const;
  // No message of the job is longer, a report of the trained model by its owner included.
  [[nodiscard]] std::size_t most_message_bytes() const;
  // What a bucket takes in the longest pull of one step.
  [[nodiscard]] std::size_t most_pulled_of_bucket(std::size_t bucket) const;
  // More than ever waits for a node that goes on: an exchange has few steps under way at once.
  [[nodiscard]] std::size_t most_waiting_bytes() const {
    return std::max(std::size_t{1} << 30, 8 * longest_message);
  }
  // Whether these ranks are a worker and its server on one node: a message from one to the other
  // never sees the network.
  [[nodiscard]] bool share_node(int worker, int server) const {
    return job.servers == Job::kColocated && server - job.workers == worker;
  }
  // "tensor 'NAME'", or "part 2 of tensor 'NAME'" where that has several; for sentences.
  [[nodiscard]] std::string name(std::size_t part) const;
};

// Servers that do not wait make no further version while some worker that computes lacks as many
// bytes of versions as so many of the longest: what they must keep, and send at once.
inline constexpr std::size_t kMostVersionsBehind = 8;

// The least that a server is to own, and twice as much the shortest tensor that is cut for balance.
inline constexpr std::size_t kLeastPartElems = 256;

// How many servers can have a part each.
std::size_t most_owners(const Job& job);

// Cuts tensors into parts of Job::part_values at most, and spreads these over so many servers: each
// from the largest on goes to the server that holds least, and is cut where that would hold more
// than its share. With 0 servers parts are cut alone. Each fragment of a server is as a server of
// its own, so that no link carries more in one turn than in another. Every node comes to the same
// answer.
PartTable cut_tensors(const Job& job, std::size_t servers);

// Parts, from the last on, in buckets of so many bytes or a part more (the last of a key may be
// smaller), each of parts with the same key.
std::vector<std::vector<std::size_t>> make_buckets(std::size_t bucket_bytes,
                                                   const std::vector<Part>& parts,
                                                   const std::vector<std::uint64_t>& keys);

// What the encoder of a part is for on the node of this rank.
EncoderContext encoder_context(const Placement& placement, std::size_t part, int rank);
// That encoder; `codecs` are those of its direction, by part.
std::unique_ptr<Encoder> encoder_for(const Placement& placement,
                                     const std::vector<std::shared_ptr<const Codec>>& codecs,
                                     std::size_t part, int rank);

}  // namespace tersewire
