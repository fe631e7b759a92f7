// Jobs over the transport `grpc` whose members come and go: nodes with names, of which the hub
// makes one *generation* after another, each a network with a fixed list (spec/relay-format.md).
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

// A step after which a node can go on, and the generation whose nodes' states it is one of.
struct Boundary {
  std::uint32_t generation = 0;
  std::uint64_t step = 0;

  auto operator<=>(const Boundary&) const = default;
};

enum class MemberPhase : std::uint8_t {
  kWatches = 0,    // no member: it looks only
  kWaits = 1,      // for a generation that it is in
  kWorks = 2,      // in one
  kFinished = 3,   // all steps of one are done
  kFailed = 4,     // and the job with it
  kFoundDone = 5,  // the job was done before it began; nobody's in a list
};

enum class JobPhase : std::uint8_t {
  kGathers = 0,  // between two generations, or before the first
  kRuns = 1,     // a generation
  kDone = 2,
  kEnded = 3,  // by a failure
};

// What has passed between a node and the hub, since that knows the node.
struct Traffic {
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  std::uint64_t sent_bytes = 0;  // by the node
  std::uint64_t received_bytes = 0;
  std::uint64_t sent_rate = 0;  // bytes a second, of the last 10 s
  std::uint64_t received_rate = 0;
  std::uint64_t quiet_ms = kNever;  // since something of a message came from it

  bool operator==(const Traffic&) const = default;
};

// What the list says of one node.
struct MemberEntry {
  std::string name;
  std::uint64_t incarnation = 0;  // of its process
  std::uint32_t age_ms = 0;       // since the hub heard it
  MemberPhase phase = MemberPhase::kWaits;
  bool leaving = false;                         // it has asked to
  Boundary newest = {};                         // that it holds; generation 0: none
  std::optional<std::uint32_t> base_rank = {};  // among the workers of the base's generation
  Traffic traffic = {};                         // in what look_at_hub() and GrpcHub::status() say

  bool operator==(const MemberEntry&) const = default;
};

// What the hub says of a job.
struct MemberList {
  std::uint32_t generation = 0;  // the newest; 0: there was none
  JobPhase phase = JobPhase::kGathers;
  bool closes = false;       // it is to end after its next boundary
  bool last = false;         // its workers save what they begin with, and the job ends
  bool established = false;  // all its workers hold a state of it: who left is not needed any more
  Boundary base = {};        // that it began with; generation 0: from the beginning
  std::uint32_t base_workers = 0;
  std::uint32_t workers = 0;  // of the generation: the first of `members`
  std::vector<MemberEntry> members =
      {};  // by rank; those behind the workers hand over what they have
  std::vector<MemberEntry> waiting = {};  // to be in the next one
  std::uint64_t lost = 0;                 // members that went with their residuals so far
  std::string reason = {};                // why the last generation, or the job, has ended

  // Of the process with this number; none where it is not among `members`.
  [[nodiscard]] std::optional<int> rank_of(std::uint64_t incarnation) const {
    for (std::size_t rank = 0; rank < members.size(); ++rank) {
      if (members[rank].incarnation == incarnation) return static_cast<int>(rank);
    }
    return std::nullopt;
  }
  bool operator==(const MemberList&) const = default;
};

// What a hub for such a job needs to know.
struct MembershipLimits {
  int first = 1;  // workers with which the first generation begins
  int least = 1;  // fewer save what they have, and the job ends
  int most = 1;
  // A member that says nothing for so long is given up. None: it sets itself, by how long members
  // were silent before they spoke again.
  std::optional<std::chrono::milliseconds> deadline = {};
  // Who is to join does so past a multiple of so many steps.
  std::uint64_t join_steps = 1;
};

// What a hub keeps so that one that is started again goes on: bytes for it alone.
struct HubJournal {
  Bytes kept;  // of the one before; empty where there was none
  // Keeps them in place of the former, before it returns. May be empty. Under the hub's lock.
  std::function<void(ByteView)> keep;
};

// This process as a member of a hub's job. A thread of its own tells the hub four times a second
// how things stand, and reaches it again where it was away. Functions may be called from any
// thread.
class GrpcMember {
 public:
  struct Settings {
    std::string hub;   // HOST:PORT
    std::string name;  // of 1 to 40 letters a to z, digits and hyphens, a letter among them
    // Of all that nodes of one job have in common: the hub turns away who has another.
    std::uint64_t fingerprint = 0;
    GrpcSecurity security;
    WaitLimits limits;
  };

  // Throws as join_grpc_network(), but waits for nobody.
  explicit GrpcMember(Settings settings);
  ~GrpcMember();
  GrpcMember(const GrpcMember&) = delete;
  GrpcMember& operator=(const GrpcMember&) = delete;

  [[nodiscard]] std::uint64_t incarnation() const;
  // Waits until there is a generation above `after` with this process in it, or the job is over,
  // and says what the list is then; after leave() for one without it, too, or for none where there
  // was none. Throws kFailedPrecondition with what the hub says where it refuses this process, and
  // kUnavailable where it has not been reached for limits.deadline.
  MemberList await(std::uint32_t after);
  // Waits until the job is over, or `generation` is over or (for one who leaves) established.
  MemberList await_end(std::uint32_t generation);
  // What the hub has said last, without waiting; generation 0 where it has said nothing yet.
  MemberList look() const;
  // Waits until the hub has heard what this process holds, and has said whether its generation goes
  // on from there: where somebody is to come or go, until all its workers hold that.
  MemberList await_settled(std::uint32_t generation);
  // This process's end of a generation's network, of all its members. Waits for them as
  // join_grpc_network(), and throws kAborted where that fails.
  std::unique_ptr<Transport> join(const MemberList& list);

  // What this process could go on from, oldest first, at most 4; it holds nothing else.
  void holds(std::vector<Boundary> boundaries);
  // It has to go: the generation ends after its next boundary, and the next is without it.
  void leave();
  // The generation is over for this process, whatever the hub says, and why.
  void end(std::uint32_t generation, const std::string& reason);
  // All steps are done.
  void finish();
  // The job ends on every member.
  void give_up(const std::string& reason);

 private:
  class Talk;
  std::unique_ptr<Talk> talk_;
};

// What a hub says of its job, to whoever may be a node of it. Of a job with fixed ranks, too, whose
// nodes' names are their ranks. Throws kUnavailable where it is not reached within `patience`.
MemberList look_at_hub(const std::string& hub, const GrpcSecurity& security,
                       std::chrono::milliseconds patience);

// Tells a hub that this node takes no part, since the job is done already: where as many as it
// waits for say so, it ends. `name` is the node's, or its rank. Throws kUnavailable where it is not
// reached within `patience`, and kFailedPrecondition with what it says where it refuses.
void tell_done(const std::string& hub, const std::string& name, const GrpcSecurity& security,
               std::chrono::milliseconds patience);

// The name that a node's certificate is for. Throws kInvalidArgument for one of another kind.
std::string certified_name(const GrpcSecurity& security);

}  // namespace tersewire
