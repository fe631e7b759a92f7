#include "trainer/hand_over.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "tersewire/error.h"
#include "tersewire/setting_text.h"
#include "trainer/tensor_file.h"

namespace tersewire::trainer {
namespace {

constexpr const char* kStepFact = "step";
// Before the name of an array that holds zeros, and is not sent: its length is a fact.
constexpr const char* kZeros = "zeros/";
// Before the names of those of a server that has died.
constexpr const char* kOrphan = "orphan/";

bool is_of(const std::string& key, const char* group) {
  return key.starts_with(std::string(group) + "/");
}

// Residuals of what a worker sends.
bool is_own(const std::string& key) {
  return is_of(key, kPushedGroup) || is_of(key, kAccumulatedGroup);
}
// Whether a part of the model is this node's server's.
bool has_server(const NodeCheckpoint& node) {
  return std::ranges::any_of(node.arrays,
                             [](const auto& entry) { return is_of(entry.first, kServerGroup); });
}

StoredArray zeros(std::size_t elems) {
  return {.elems = elems, .read = [](std::size_t /*first*/, std::span<float> values) {
            std::ranges::fill(values, 0.0F);
          }};
}

// Lives as long as the node that it is read from.
StoredArray stored(const std::shared_ptr<const NodeCheckpoint>& node,
                   const NodeCheckpoint::Array& array) {
  return {
      .elems = array.values.size(),
      .read = [node, from = std::span(array.values)](std::size_t first, std::span<float> values) {
        std::ranges::copy(from.subspan(first, values.size()), values.begin());
      }};
}

StoredNode stored(const std::shared_ptr<const NodeCheckpoint>& node, int place) {
  StoredNode result{.rank = place, .step = node->step, .facts = node->facts, .arrays = {}};
  for (const auto& [key, array] : node->arrays) result.arrays[key] = stored(node, array);
  return result;
}

StoredNode parsed(ByteView bytes, std::uint64_t step, int place) {
  TensorFile file = parse_tensor_file(bytes, true);
  if (file.facts[kStepFact] != std::to_string(step)) {
    throw Error(ErrorCode::kDataLoss,
                fmt::format("it is of step '{}', not of {}; run one version everywhere",
                            file.facts[kStepFact], step));
  }
  const auto node = std::make_shared<NodeCheckpoint>(
      NodeCheckpoint{.rank = place, .step = step, .facts = file.facts, .arrays = {}});
  for (auto& [key, array] : file.arrays) {
    node->arrays[key] = {std::move(array.shape), std::move(array.values)};
  }
  StoredNode result = stored(node, place);
  for (const auto& [name, text] : node->facts) {
    if (!name.starts_with(kZeros)) continue;
    const auto elems = parsed_number<std::size_t>(text);
    if (!elems || *elems > (std::size_t{1} << 40)) {
      throw Error(
          ErrorCode::kDataLoss,
          fmt::format("its '{}' is '{}', not a length; run one version everywhere", name, text));
    }
    result.arrays[name.substr(std::string_view(kZeros).size())] = zeros(*elems);
  }
  return result;
}

// What servers had that have died is as good as the first node's, which has a server, too.
void adopt_orphans(std::vector<StoredNode>& nodes) {
  const std::size_t prefix = std::string_view(kOrphan).size();
  std::map<std::string, StoredArray> orphans;
  for (StoredNode& node : nodes) {
    const auto first = node.arrays.lower_bound(kOrphan);
    auto last = first;
    for (; last != node.arrays.end() && last->first.starts_with(kOrphan); ++last) {
      orphans[last->first.substr(prefix)] = last->second;
    }
    node.arrays.erase(first, last);
  }
  nodes.front().arrays.merge(orphans);
}

}  // namespace

std::optional<Incoming> WorkersNetwork::receive(std::chrono::milliseconds timeout) {
  if (waiting_.empty()) return PassingTransport::receive(timeout);
  Incoming message = std::move(waiting_.front());
  waiting_.pop_front();
  return message;
}

SharedBytes WorkersNetwork::receive_first(int from, const WaitLimits& limits) {
  const auto found = std::ranges::find(waiting_, from, &Incoming::from);
  if (found != waiting_.end()) {
    SharedBytes bytes = std::move(found->bytes);
    waiting_.erase(found);
    return bytes;
  }
  for (;;) {
    Incoming message =
        receive_within(end(), limits, fmt::format("the hand-over from rank {}", from));
    if (message.from == from) return std::move(message.bytes);
    waiting_.push_back(std::move(message));
  }
}

HandOver::HandOver(const MemberList& list, int rank) : list_(list), rank_(rank) {
  for (std::size_t i = 0; i < list.members.size(); ++i) {
    if (list.members[i].base_rank) holders_.push_back(static_cast<int>(i));
  }
}

std::optional<int> HandOver::place(int rank) const {
  const auto found = std::ranges::find(holders_, rank);
  if (found == holders_.end()) return std::nullopt;
  return static_cast<int>(found - holders_.begin());
}

int HandOver::giver(int rank) const {
  return holders_[static_cast<std::size_t>(rank) % holders_.size()];
}

bool HandOver::is_dead(std::uint32_t base_rank) const {
  return std::ranges::find(list_.members, std::optional(base_rank), &MemberEntry::base_rank) ==
         list_.members.end();
}

const NodeCheckpoint::Arrays& HandOver::orphans(const NodeCheckpoint& own) const {
  static const NodeCheckpoint::Arrays kNone;
  if (!has_server(own) && own.copies.empty()) return kNone;
  const std::uint32_t workers = list_.base_workers;
  for (std::uint32_t rank = 0; rank < workers; ++rank) {
    const std::uint32_t next = (rank + 1) % workers;
    if (!is_dead(rank) || !is_dead(next)) continue;
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("the workers that were {} and {} in generation {} died together, so a "
                            "part of the model and its copy are lost; go on from the last "
                            "checkpoint with --resume",
                            rank, next, list_.base.generation));
  }
  const std::uint32_t before =
      (*list_.members[static_cast<std::size_t>(rank_)].base_rank + workers - 1) % workers;
  return is_dead(before) ? own.copies : kNone;
}

// All that is not the receiver's already.
Bytes HandOver::message_to(int rank, const NodeCheckpoint& own) const {
  const bool needs_model = !place(rank) && giver(rank) == rank_;
  const bool inherits = heir(*place(rank_)) == rank;
  const bool serves = has_server(own);
  // Of what comes back to the workers each member has what belongs to the parts that it owned.
  const auto is_result = [&](const std::string& key) {
    return serves ? is_of_server(key) : is_of(key, kPulledGroup);
  };
  TensorFile file{.facts = own.facts, .arrays = {}};
  file.facts[kStepFact] = std::to_string(own.step);
  for (const auto& [key, array] : own.arrays) {
    const bool goes = is_result(key) || (is_own(key) ? inherits : needs_model);
    if (goes) {
      file.arrays[key] = {array.shape, array.values};
    } else if (is_own(key) && needs_model) {
      file.facts[kZeros + key] = std::to_string(array.values.size());
    }
  }
  for (const auto& [key, array] : orphans(own)) {
    file.arrays[kOrphan + key] = {array.shape, array.values};
  }
  return tensor_file_bytes(file);
}

std::optional<JobCheckpoint> HandOver::run(WorkersNetwork& network,
                                           const std::shared_ptr<const NodeCheckpoint>& own,
                                           std::optional<int> servers,
                                           const WaitLimits& limits) const {
  const std::optional<int> own_place = place(rank_);
  for (int to = 0; own_place && is_worker(to); ++to) {
    if (to == rank_) continue;
    network.send(to, std::make_shared<const Bytes>(message_to(to, *own)));
  }
  if (!is_worker(rank_)) return std::nullopt;
  JobCheckpoint checkpoint{.workers = static_cast<int>(list_.base_workers),
                           .servers = servers,
                           .nodes = {},
                           .reordered = false};
  for (int i = 0; i < checkpoint.workers; ++i) {
    const bool is_dead = i >= static_cast<int>(holders_.size());
    const int rank = is_dead ? -1 : holders_[static_cast<std::size_t>(i)];
    if (is_dead) {
      checkpoint.nodes.push_back({.rank = i, .step = list_.base.step, .facts = {}, .arrays = {}});
    } else if (rank == rank_) {
      checkpoint.nodes.push_back(stored(own, i));
      for (const auto& [key, array] : orphans(*own)) {
        checkpoint.nodes.back().arrays[kOrphan + key] = stored(own, array);
      }
    } else {
      const SharedBytes bytes = network.receive_first(rank, limits);
      try {
        checkpoint.nodes.push_back(parsed(*bytes, list_.base.step, i));
      } catch (const Error& error) {
        throw Error(error.code(),
                    fmt::format("the hand-over from '{}': {}",
                                list_.members[static_cast<std::size_t>(rank)].name, error.what()));
      }
    }
    checkpoint.reordered |=
        is_dead || rank != i ||
        list_.members[static_cast<std::size_t>(rank)].base_rank != static_cast<std::uint32_t>(i);
  }
  adopt_orphans(checkpoint.nodes);
  // What all workers have alike, and each is to have.
  const StoredNode& whole =
      checkpoint.nodes[static_cast<std::size_t>(own_place.value_or(*place(giver(rank_))))];
  std::map<std::string, StoredArray> alike;
  for (const auto& [key, array] : whole.arrays) {
    if (is_of(key, kSharedGroup)) alike[key] = array;
  }
  for (StoredNode& node : checkpoint.nodes) node.arrays.insert(alike.begin(), alike.end());
  return checkpoint;
}

}  // namespace tersewire::trainer
