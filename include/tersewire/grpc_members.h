// Jobs over the transport `grpc` whose members come and go: nodes with names, which the hub groups
// into one *generation* after another, each a network with a fixed list (spec/relay-format.md).
#pragma once

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tersewire/bytes.h"
#include "tersewire/grpc_network.h"

namespace tersewire {

// A step after which a node can continue, and the generation whose nodes' states it belongs to.
struct Boundary {
  std::uint32_t generation = 0;
  std::uint64_t step = 0;

  auto operator<=>(const Boundary&) const = default;
};

// A state that a node could continue from.
struct KeptState {
  Boundary at;
  // The L2 norm of what is lost if the node dies after it: residuals that nobody else has a copy
  // of.
  double undelivered = 0;

  bool operator==(const KeptState&) const = default;
};

enum class MemberPhase : std::uint8_t {
  kWatches = 0,    // not a member: it only looks
  kWaits = 1,      // for a generation that it is in
  kWorks = 2,      // in one
  kFinished = 3,   // all steps of one are done
  kFailed = 4,     // and the job with it
  kFoundDone = 5,  // the job was done before it began; never in a list
};

enum class JobPhase : std::uint8_t {
  kGathers = 0,  // between two generations, or before the first
  kRuns = 1,     // a generation
  kDone = 2,
  kEnded = 3,  // after a failure
};

// A node's traffic with others, since the hub has known it: through the hub, and direct, as the
// node reports it.
struct Traffic {
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  std::uint64_t sent_bytes = 0;  // by the node
  std::uint64_t received_bytes = 0;
  std::uint64_t sent_rate = 0;  // bytes a second, over the last 10 s
  std::uint64_t received_rate = 0;
  std::uint64_t quiet_ms = kNever;  // since it last sent part of a message

  bool operator==(const Traffic&) const = default;
};

// The list's entry for one node.
struct MemberEntry {
  std::string name;
  std::uint64_t incarnation = 0;  // of its process
  std::uint32_t age_ms = 0;       // since the hub last heard it
  MemberPhase phase = MemberPhase::kWaits;
  bool leaving = false;                         // it has asked to
  Boundary newest = {};                         // that it holds; generation 0: none
  bool serves = false;                          // it is a server, and no worker
  std::optional<std::uint32_t> base_rank = {};  // among the nodes of the base's generation
  Traffic traffic = {};                         // from look_at_hub() and GrpcHub::status()

  bool operator==(const MemberEntry&) const = default;
};

// The hub's view of a job.
struct MemberList {
  std::uint32_t generation = 0;  // the newest; 0: there was none
  JobPhase phase = JobPhase::kGathers;
  bool closes = false;       // it will end after its next boundary
  bool last = false;         // its nodes save their initial state, and the job ends
  bool established = false;  // all its nodes hold a state of it: those who left are not needed
  Boundary base = {};        // that it began with; generation 0: from the start
  std::uint32_t base_workers = 0;
  std::uint32_t base_servers = 0;
  std::uint32_t workers = 0;  // of the generation: the first of `members`
  std::uint32_t servers = 0;  // the next ones, in a job whose servers are nodes of their own
  std::vector<MemberEntry> members =
      {};  // by rank; those after the servers hand over what they have
  std::vector<MemberEntry> waiting = {};  // for the next generation
  std::uint64_t lost = 0;                 // members lost with their residuals so far
  double lost_norm = 0;                   // the L2 norm of these, all together
  std::string reason = {};                // why the last generation, or the job, has ended

  // The rank of the process with this incarnation; none if it is not among `members`.
  [[nodiscard]] std::optional<int> rank_of(std::uint64_t incarnation) const {
    for (std::size_t rank = 0; rank < members.size(); ++rank) {
      if (members[rank].incarnation == incarnation) return static_cast<int>(rank);
    }
    return std::nullopt;
  }
  // Workers and servers of the generation.
  [[nodiscard]] std::uint32_t nodes() const { return workers + servers; }
  bool operator==(const MemberList&) const = default;
};

// A hub's settings for such a job.
struct MembershipLimits {
  int first = 1;  // workers that the first generation begins with
  int least = 1;  // if fewer remain, they save what they have, and the job ends
  int most = 1;
  // Nodes beside the workers that the first generation begins with, and at most has. The job goes
  // on while one is left.
  int servers = 0;
  // A member that is silent for this long is evicted. None: the hub adapts it to how long members
  // were silent before they were heard again.
  std::optional<std::chrono::milliseconds> deadline = {};
  // New members join after a multiple of this many steps.
  std::uint64_t join_steps = 1;
};

// What a hub keeps so that a restarted one can continue: opaque bytes, for the hub alone.
struct HubJournal {
  Bytes kept;  // of the previous hub; empty if there was none
  // Stores them in place of the previous bytes, before it returns. May be empty. Called under the
  // hub's lock.
  std::function<void(ByteView)> keep;
};

// This process as a member of a hub's job. Its own thread reports its status to the hub four times
// a second, and reconnects if the hub was away. Functions may be called from any thread.
class GrpcMember {
 public:
  struct Settings {
    std::string hub;  // HOST:PORT
    // 1 to 40 letters a to z, digits and hyphens, one of them a letter; not `hub`.
    std::string name;
    // Of everything that nodes of one job have in common: the hub refuses nodes with another.
    std::uint64_t fingerprint = 0;
    GrpcSecurity security;
    WaitLimits limits;
    // "HOST:PORT" where it listens for its peers, as for join_grpc_network(); a port that is not 0
    // is the same in every generation.
    std::string direct = {};
    int servers = 0;  // of the job, beside the workers: the hub refuses nodes with another number
    bool serves = false;  // whether this process is one
  };

  // Throws as join_grpc_network(), but waits for nobody.
  explicit GrpcMember(Settings settings);
  ~GrpcMember();
  GrpcMember(const GrpcMember&) = delete;
  GrpcMember& operator=(const GrpcMember&) = delete;

  [[nodiscard]] std::uint64_t incarnation() const;
  // Waits until there is a generation above `after` with this process in it, or the job is over,
  // and returns the list at that time; after leave() also for a generation without it, or for none
  // if there was none. Throws kFailedPrecondition with the hub's reason if it refuses this process,
  // and kUnavailable if it has not been reached for limits.deadline.
  MemberList await(std::uint32_t after);
  // Waits until the job is over, or `generation` is over or (for a leaving member) established.
  MemberList await_end(std::uint32_t generation);
  // The hub's latest list, without waiting; generation 0 if it has sent none yet.
  [[nodiscard]] MemberList look() const;
  // Waits until the hub has heard what this process holds, and has said whether its generation
  // continues from there: if a member is to join or leave, until all its workers hold that.
  MemberList await_settled(std::uint32_t generation);
  // This process's end of a generation's network, of all its members. Waits for them as
  // join_grpc_network(); throws kAborted if others have ended the generation, and kUnavailable if
  // joining fails otherwise.
  std::unique_ptr<Transport> join(const MemberList& list);

  // What this process could continue from, oldest first, at most 4; it holds no others.
  void holds(std::vector<KeptState> states);
  // This process must leave: the generation ends after its next boundary, and the next is without
  // it.
  void leave();
  // The generation is over for this process, whatever the hub says, for this reason.
  void end(std::uint32_t generation, const std::string& reason);
  // Whether the application is busy with work of its own, outside any call that advances the job.
  // If this lasts longer than limits.progress_limit, the hub is notified and evicts this process,
  // although it is alive; once back, it may rejoin.
  void be_away(bool away);
  // All steps are done; the job is, once all workers have said so.
  void finish();
  // The job ends on every member. Waits until the hub knows, for at most 2 s: the process may end
  // right afterwards, without a destructor.
  void give_up(const std::string& reason);

 private:
  class Talk;
  std::unique_ptr<Talk> talk_;
};

// A hub's view of its job, available to anyone who may be a node of it. Also for a job with fixed
// ranks, whose nodes' names are their ranks. Throws kUnavailable if the hub is not reached within
// `patience`, and kFailedPrecondition with its reason if it refuses.
MemberList look_at_hub(const std::string& hub, const GrpcSecurity& security,
                       std::chrono::milliseconds patience);

// Tells a hub that this node takes no part, since the job is done already: if as many nodes as it
// waits for say so, it ends. `name` is the node's, or its rank. Throws kUnavailable if the hub is
// not reached within `patience`, and kFailedPrecondition with its reason if it refuses.
void tell_done(const std::string& hub, const std::string& name, const GrpcSecurity& security,
               std::chrono::milliseconds patience);

// The name that a node's certificate is for. Throws kInvalidArgument for another kind of
// certificate.
std::string certified_name(const GrpcSecurity& security);

}  // namespace tersewire
