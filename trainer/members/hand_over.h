// What members of a changing job hand each other before a generation's first step, so that each can
// go on as from a checkpoint of another number of workers (tersewire/state.h, redistribute()).
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "tersewire/grpc_members.h"
#include "tersewire/passing_transport.h"
#include "trainer/files/checkpoint.h"

namespace tersewire::trainer {

// The L2 norm of what is lost with a node that dies after that state, and had residuals of which
// nobody has a copy. `push_codec` is Job::push_codec. Cost: a pass over the residuals.
double undelivered(const NodeCheckpoint& checkpoint, const std::string& push_codec);

// The network of a generation's workers and servers within that of all its members, of whom the
// last ranks only hand over what they have.
class NodesNetwork final : public PassingTransport {
 public:
  // Of all of a generation's members.
  NodesNetwork(std::unique_ptr<Transport> end, int nodes)
      : PassingTransport(*end), owned_(std::move(end)), nodes_(nodes) {}

  // The next message of this member, of all that there are. The messages of others wait.
  SharedBytes receive_first(int from, const WaitLimits& limits);

  [[nodiscard]] int size() const noexcept override { return nodes_; }
  std::optional<Incoming> receive(std::chrono::milliseconds timeout) override;

 private:
  std::unique_ptr<Transport> owned_;
  int nodes_;
  std::deque<Incoming> waiting_;  // for receive()
};

// Who gives what to whom in a generation. Old places are those of the workers that hold the state
// it begins with, in their order, and behind them those of the dead; then the same of the servers.
class HandOver {
 public:
  // Of the member of this rank.
  HandOver(const MemberList& list, int rank);

  // Sends what others need of `own`, which is the state of this member at the list's base, where it
  // has one, and, for one that stays, takes what it needs: a checkpoint for this node alone.
  // `servers` is Job::servers where they are no nodes of their own. Throws like receive_within(),
  // and kDataLoss for what is none.
  std::optional<JobCheckpoint> run(NodesNetwork& network,
                                   const std::shared_ptr<const NodeCheckpoint>& own,
                                   std::optional<int> servers, const WaitLimits& limits) const;

 private:
  [[nodiscard]] bool serves(int rank) const {
    return list_.members[static_cast<std::size_t>(rank)].serves;
  }
  // Its old place; none where it holds no state.
  [[nodiscard]] std::optional<int> place(int rank) const;
  // Who has the member's own residuals from now on.
  [[nodiscard]] int heir(int place) const { return place % static_cast<int>(list_.workers); }
  // Whose copy of what all workers have alike a member gets that has none.
  [[nodiscard]] int giver(int rank) const;
  // Whether a node of the base, by its rank then, holds its state no more.
  [[nodiscard]] bool is_dead(std::uint32_t base_rank) const;
  // What this member kept of the server before it, where that has died with its node. Throws
  // kFailedPrecondition where a server has died together with who kept its copy.
  [[nodiscard]] const NodeCheckpoint::Arrays& orphans(const NodeCheckpoint& own) const;
  // What a message to a node depends on.
  struct Receiver {
    bool is_peer;      // works or serves as this node does
    bool gives;        // does not, and gets from this node what all workers have alike
    bool needs_model;  // a peer that held no state, and gets it from this node
    bool inherits;     // gets what is this node's alone
    auto operator<=>(const Receiver&) const = default;
  };
  [[nodiscard]] Receiver receiver(int rank) const;
  [[nodiscard]] Bytes message_to(const Receiver& to, const NodeCheckpoint& own) const;
  // To every other node what it needs of this one.
  void send(NodesNetwork& network, const NodeCheckpoint& own) const;
  // What has an old place: as its holder sent it, or as this node has it.
  [[nodiscard]] StoredNode received(NodesNetwork& network, int rank, int place,
                                    const WaitLimits& limits) const;
  [[nodiscard]] StoredNode kept(const std::shared_ptr<const NodeCheckpoint>& own, int place) const;
  // Gives every old worker what all of them have alike.
  void share_alike(std::vector<StoredNode>& nodes) const;

  const MemberList& list_;
  int rank_;
  int base_workers_;
  int base_nodes_;
  std::vector<int> holders_;  // ranks, by old place; -1 of the dead
};

}  // namespace tersewire::trainer
