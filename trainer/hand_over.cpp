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

bool is_of(const std::string& key, const char* group) {
  return key.starts_with(std::string(group) + "/");
}

// Residuals of what a worker sends.
bool is_own(const std::string& key) {
  return is_of(key, kPushedGroup) || is_of(key, kAccumulatedGroup);
}
// Residuals of results, of which each member has those of the parts that it owned.
bool is_result(const std::string& key) { return is_of(key, kPulledGroup); }

StoredArray zeros(std::size_t elems) {
  return {.elems = elems, .read = [](std::size_t /*first*/, std::span<float> values) {
            std::ranges::fill(values, 0.0F);
          }};
}

// Arrays that live as long as the node that they are read from.
StoredNode stored(const std::shared_ptr<const NodeCheckpoint>& node, int place) {
  StoredNode stored{.rank = place, .step = node->step, .facts = node->facts, .arrays = {}};
  for (const auto& [key, array] : node->arrays) {
    stored.arrays[key] = {
        .elems = array.values.size(),
        .read = [node, from = std::span(array.values)](std::size_t first, std::span<float> values) {
          std::ranges::copy(from.subspan(first, values.size()), values.begin());
        }};
  }
  return stored;
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
          fmt::format("its '{}' is '{}' and no length; run one version everywhere", name, text));
    }
    result.arrays[name.substr(std::string_view(kZeros).size())] = zeros(*elems);
  }
  return result;
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
    Incoming message = receive_within(end(), limits, fmt::format("what rank {} hands over", from));
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

// All that is not the receiver's already.
Bytes HandOver::message_to(int rank, const NodeCheckpoint& own) const {
  const bool needs_model = !place(rank) && giver(rank) == rank_;
  const bool inherits = heir(*place(rank_)) == rank;
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
    } else {
      const SharedBytes bytes = network.receive_first(rank, limits);
      try {
        checkpoint.nodes.push_back(parsed(*bytes, list_.base.step, i));
      } catch (const Error& error) {
        throw Error(error.code(),
                    fmt::format("what '{}' hands over: {}",
                                list_.members[static_cast<std::size_t>(rank)].name, error.what()));
      }
    }
    checkpoint.reordered |=
        is_dead || rank != i ||
        list_.members[static_cast<std::size_t>(rank)].base_rank != static_cast<std::uint32_t>(i);
  }
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
