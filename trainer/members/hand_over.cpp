#include "trainer/members/hand_over.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <utility>

#include "tersewire/codec.h"
#include "tersewire/error.h"
#include "tersewire/setting_text.h"
#include "trainer/files/tensor_file.h"
#include "trainer/members/packed_floats.h"

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
  TensorFile file = parse_tensor_file(unpack_floats(bytes), true);
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

// What servers had that have died is as good as the first server's, which is on this node.
void adopt_orphans(std::vector<StoredNode>& nodes, int server) {
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
  nodes[static_cast<std::size_t>(server)].arrays.merge(orphans);
}

}  // namespace

double undelivered(const NodeCheckpoint& checkpoint, const std::string& push_codec) {
  // Where differences are sent, servers and peers know them, and a server's share has a copy.
  const bool owes_pushed = !make_codec(push_codec)->sends_differences();
  const bool owes_pulled = !has_server(checkpoint);
  double squares = 0;
  for (const auto& [key, array] : checkpoint.arrays) {
    if (!(owes_pushed && is_of(key, kPushedGroup)) && !(owes_pulled && is_of(key, kPulledGroup))) {
      continue;
    }
    for (const float value : array.values) squares += static_cast<double>(value) * value;
  }
  return std::sqrt(squares);
}

std::optional<Incoming> NodesNetwork::receive(std::chrono::milliseconds timeout) {
  if (auto message = take_first(waiting_)) return message;
  return PassingTransport::receive(timeout);
}

SharedBytes NodesNetwork::receive_first(int from, const WaitLimits& limits) {
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

HandOver::HandOver(const MemberList& list, int rank)
    : list_(list),
      rank_(rank),
      base_workers_(static_cast<int>(list.base_workers)),
      base_nodes_(static_cast<int>(list.base_workers + list.base_servers)) {
  for (const bool serve : {false, true}) {
    for (int i = 0; i < std::ssize(list.members); ++i) {
      const MemberEntry& member = list.members[static_cast<std::size_t>(i)];
      if (member.base_rank && member.serves == serve) holders_.push_back(i);
    }
    holders_.resize(static_cast<std::size_t>(serve ? base_nodes_ : base_workers_), -1);
  }
}

std::optional<int> HandOver::place(int rank) const {
  const auto found = std::ranges::find(holders_, rank);
  if (found == holders_.end()) return std::nullopt;
  return static_cast<int>(found - holders_.begin());
}

int HandOver::giver(int rank) const {
  const auto workers = std::span(holders_).first(list_.base_workers);
  const auto alive = std::ranges::find(workers, -1) - workers.begin();
  return workers[static_cast<std::size_t>(rank % alive)];
}

bool HandOver::is_dead(std::uint32_t base_rank) const {
  return std::ranges::find(list_.members, std::optional(base_rank), &MemberEntry::base_rank) ==
         list_.members.end();
}

const NodeCheckpoint::Arrays& HandOver::orphans(const NodeCheckpoint& own) const {
  static const NodeCheckpoint::Arrays none;
  if (!has_server(own) && own.copies.empty()) return none;
  // The nodes that have a server each.
  const bool apart = list_.base_servers > 0;
  const std::uint32_t first = apart ? list_.base_workers : 0;
  const std::uint32_t count = apart ? list_.base_servers : list_.base_workers;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t rank = first + i;
    const std::uint32_t next = first + (i + 1) % count;
    if (!is_dead(rank) || !is_dead(next)) continue;
    throw Error(
        ErrorCode::kFailedPrecondition,
        fmt::format("the {} that were {} and {} in generation {} died together, so a part of the "
                    "model and its copy are lost; continue from the last checkpoint with --resume",
                    apart ? "servers" : "workers", rank, next, list_.base.generation));
  }
  const std::uint32_t place = *list_.members[static_cast<std::size_t>(rank_)].base_rank - first;
  return is_dead(first + (place + count - 1) % count) ? own.copies : none;
}

HandOver::Receiver HandOver::receiver(int rank) const {
  const bool is_peer = serves(rank) == serves(rank_);
  const bool gives = !serves(rank_) && giver(rank) == rank_;
  return {.is_peer = is_peer,
          .gives = !is_peer && gives,
          .needs_model = is_peer && !place(rank) && gives,
          .inherits = is_peer && heir(*place(rank_)) == rank};
}

// All that is not the receiver's already. Workers and servers have little for each other: what was
// agreed on, and what all workers have alike.
Bytes HandOver::message_to(const Receiver& to, const NodeCheckpoint& own) const {
  const bool has_share = has_server(own);
  // Of what comes back to the workers each member has what belongs to the parts that it owned.
  const auto is_result = [&](const std::string& key) {
    return has_share ? is_of_server(key) : is_of(key, kPulledGroup);
  };
  TensorFile file{.facts = own.facts, .arrays = {}};
  file.facts[kStepFact] = std::to_string(own.step);
  for (const auto& [key, array] : own.arrays) {
    const bool goes = !to.is_peer   ? to.gives && is_of(key, kSharedGroup)
                      : is_own(key) ? to.inherits
                                    : to.needs_model || is_result(key);
    if (goes) {
      file.arrays[key] = {array.shape, array.values};
    } else if (is_own(key) && to.needs_model) {
      file.facts[kZeros + key] = std::to_string(array.values.size());
    }
  }
  for (const auto& [key, array] : to.is_peer ? orphans(own) : NodeCheckpoint::Arrays()) {
    file.arrays[kOrphan + key] = {array.shape, array.values};
  }
  return tensor_file_bytes(file);
}

void HandOver::send(NodesNetwork& network, const NodeCheckpoint& own) const {
  std::map<Receiver, SharedBytes> messages;  // most get the same
  for (int to = 0; to < static_cast<int>(list_.nodes()); ++to) {
    if (to == rank_) continue;
    const auto [message, is_new] = messages.try_emplace(receiver(to));
    if (is_new) {
      message->second = std::make_shared<const Bytes>(pack_floats(message_to(message->first, own)));
    }
    network.send(to, message->second);
  }
}

StoredNode HandOver::received(NodesNetwork& network, int rank, int place,
                              const WaitLimits& limits) const {
  const SharedBytes bytes = network.receive_first(rank, limits);
  try {
    return parsed(*bytes, list_.base.step, place);
  } catch (const Error& error) {
    throw Error(error.code(),
                fmt::format("the hand-over from '{}': {}",
                            list_.members[static_cast<std::size_t>(rank)].name, error.what()));
  }
}

StoredNode HandOver::kept(const std::shared_ptr<const NodeCheckpoint>& own, int place) const {
  StoredNode node = stored(own, place);
  for (const auto& [key, array] : orphans(*own)) node.arrays[kOrphan + key] = stored(own, array);
  return node;
}

void HandOver::share_alike(std::vector<StoredNode>& nodes) const {
  const std::optional<int> own_place = place(rank_);
  const int giving = !serves(rank_) && own_place ? *own_place : *place(giver(rank_));
  std::map<std::string, StoredArray> alike;
  for (const auto& [key, array] : nodes[static_cast<std::size_t>(giving)].arrays) {
    if (is_of(key, kSharedGroup)) alike[key] = array;
  }
  for (StoredNode& node : std::span(nodes).first(list_.base_workers)) {
    node.arrays.insert(alike.begin(), alike.end());
  }
}

std::optional<JobCheckpoint> HandOver::run(NodesNetwork& network,
                                           const std::shared_ptr<const NodeCheckpoint>& own,
                                           std::optional<int> servers,
                                           const WaitLimits& limits) const {
  if (list_.base_workers == 0 || list_.workers == 0 || holders_.front() < 0) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("no worker holds the state after step {} that generation {} begins "
                            "with; continue from the last checkpoint with --resume",
                            list_.base.step, list_.generation));
  }
  if (place(rank_)) send(network, *own);
  if (rank_ >= static_cast<int>(list_.nodes())) return std::nullopt;
  const int base_servers = static_cast<int>(list_.base_servers);
  JobCheckpoint checkpoint{.workers = base_workers_,
                           .servers = base_servers > 0 ? base_servers : servers,
                           .nodes = {},
                           .reordered = false};
  for (int i = 0; i < std::ssize(holders_); ++i) {
    const int rank = holders_[static_cast<std::size_t>(i)];
    const bool is_dead = rank < 0;
    checkpoint.nodes.push_back(
        is_dead         ? StoredNode{.rank = i, .step = list_.base.step, .facts = {}, .arrays = {}}
        : rank == rank_ ? kept(own, i)
                        : received(network, rank, i, limits));
    checkpoint.reordered |=
        is_dead || rank != i ||
        list_.members[static_cast<std::size_t>(rank)].base_rank != static_cast<std::uint32_t>(i);
  }
  adopt_orphans(checkpoint.nodes, base_servers > 0 ? base_workers_ : 0);
  share_alike(checkpoint.nodes);
  return checkpoint;
}

}  // namespace tersewire::trainer
