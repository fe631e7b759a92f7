// The transport `grpc`: nodes only dial out, to one hub that listens on one TCP port and relays
// their messages to each other; nodes that may listen as well get direct connections. Connections
// may break: they are re-established, and no message is lost or duplicated. The protocol is in
// spec/relay-format.md.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tersewire/transport.h"

namespace tersewire {

// Who may talk to whom.
struct GrpcSecurity {
  // A directory with this node's certificate, its key and the job's authority, in PEM:
  // `certificate.pem`, `key.pem`, `authority.pem`. Hub and nodes then prove to each other by mutual
  // TLS that they belong to the job, and each node proves its rank. Empty: neither encrypted nor
  // authenticated, which is refused off loopback.
  std::string certificates;
  // Plaintext off loopback: anyone on the path can read, change and send messages.
  bool insecure = false;
};

class GrpcHubServer;
struct HubJournal;
struct MemberList;
struct MembershipLimits;

// The listening side. Its threads relay what nodes send; it keeps no state that a restart would
// lose, and holds at most 24 MiB of what one node sent another.
class GrpcHub {
 public:
  // Listens at "HOST:PORT", with port 0 at one that the system chooses, for the nodes of one job.
  // Throws kUnimplemented if this build has no gRPC, kUnavailable if it cannot listen,
  // kInvalidArgument for plaintext off loopback and for a job without nodes, kNotFound for missing
  // certificates, and kFailedPrecondition for expired ones.
  GrpcHub(const std::string& address, int nodes, const GrpcSecurity& security = {});
  // The same with a journal (grpc_members.h) of who has joined and left, from which a restarted hub
  // continues.
  GrpcHub(const std::string& address, int nodes, HubJournal journal, const GrpcSecurity& security);
  // The same for a job whose members come and go (grpc_members.h). Throws kInvalidArgument for
  // invalid limits, and kDataLoss for a malformed journal.
  GrpcHub(const std::string& address, const MembershipLimits& limits, HubJournal journal,
          const GrpcSecurity& security = {});
  // Ends the remaining connections.
  ~GrpcHub();
  GrpcHub(const GrpcHub&) = delete;
  GrpcHub& operator=(const GrpcHub&) = delete;

  // "HOST:PORT" as nodes on this machine reach it.
  [[nodiscard]] std::string address() const;
  // Whether the job is over within `timeout`: every node has left, or it was aborted and none is
  // connected any more; or all members present have heard so. Any thread.
  [[nodiscard]] bool wait(std::chrono::milliseconds timeout) const;
  // Why the job was aborted; empty if it was not. Any thread.
  [[nodiscard]] std::string aborted() const;
  // Ends the job on every node, with this reason unless there is one already. Any thread.
  void abort(const std::string& reason);
  // Events since the last call, in order, one sentence each: nodes that come, go and lose their
  // connection, how the job ends, and who was turned away, at most one of these a second. The last
  // thousand. Any thread.
  [[nodiscard]] std::vector<std::string> take_events();
  // The job's status (grpc_members.h), as from look_at_hub(). Any thread.
  [[nodiscard]] MemberList status() const;

 private:
  std::unique_ptr<GrpcHubServer> server_;
};

// This process's end of the network of a hub's job, as one of its ranks.
//
// A dead node is one that falls silent: receive_within() detects it after limits.deadline. A broken
// connection is retried for that long, then the job ends on this rank with kAborted and the reason.
// Data sent to a peer and not taken there is held here; 8 MiB of it, or a longer message, may be on
// its way. Destroying the end waits until the others have what was sent to them, for
// limits.deadline at most, and 2 s after a failure.
//
// If `direct` is "HOST:PORT" of this machine, with port 0 one that the system chooses, the node
// listens there for its peers: those that reach it use a direct connection, and the hub relays the
// rest. Messages and counters are the same either way. With certificates the listener proves its
// identity too; plaintext is as for the hub. Throws kUnavailable if it cannot listen.
//
// Waits for all ranks for limits.deadline; throws kDeadlineExceeded with the missing ranks,
// kUnavailable if the hub cannot be reached, kInvalidArgument for a limit of less than 1 ms, the
// hub's error if it refuses this node, and otherwise as GrpcHub().
std::unique_ptr<Transport> join_grpc_network(const std::string& hub, int rank, int nodes,
                                             const GrpcSecurity& security = {},
                                             const WaitLimits& limits = {},
                                             const std::string& direct = {});

// The rank that a node's certificate is for. Throws kNotFound if there is none, and
// kInvalidArgument for the hub's.
int certified_rank(const GrpcSecurity& security);

// The ends of a network of `nodes` threads in this process, by rank, and a hub on loopback, which
// is destroyed with the last of them. Throws as above.
std::vector<std::unique_ptr<Transport>> make_grpc_network(int nodes, const WaitLimits& limits = {});

}  // namespace tersewire
