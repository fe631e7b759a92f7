// The transport `grpc`: nodes that only dial out, to one hub that listens on one TCP port and hands
// on what they send each other. Connections may break: they are made again, and no message is lost
// or comes twice. What is said stands in spec/relay-format.md.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tersewire/transport.h"

namespace tersewire {

// Who may speak to whom.
struct GrpcSecurity {
  // A directory with this node's certificate, its key and the job's authority, in PEM:
  // `certificate.pem`, `key.pem`, `authority.pem`. Hub and nodes then prove to each other that they
  // are of the job, and a node its rank, by mutual TLS. Empty: neither encrypted nor authenticated,
  // which is refused off loopback.
  std::string certificates;
  // Plaintext off loopback: everybody on the way can read, change and send messages.
  bool insecure = false;
};

class GrpcHubServer;
struct HubJournal;
struct MemberList;
struct MembershipLimits;

// The one that listens. Its threads hand on what nodes send; it keeps nothing that would be lost
// with it, and holds at most 24 MiB of what one node sent another.
class GrpcHub {
 public:
  // Listens at "HOST:PORT", with port 0 at one of the system's choice, for the nodes of one job.
  // Throws kUnimplemented where this build has no gRPC, kUnavailable where it cannot listen,
  // kInvalidArgument for plaintext off loopback and for a job without nodes, and kNotFound for
  // certificates that are not there.
  GrpcHub(const std::string& address, int nodes, const GrpcSecurity& security = {});
  // The same with a journal (grpc_members.h) of who has come and left, by which a hub that is
  // started again goes on.
  GrpcHub(const std::string& address, int nodes, HubJournal journal, const GrpcSecurity& security);
  // The same for a job whose members come and go (grpc_members.h). Throws kInvalidArgument for
  // limits that make no sense, and kDataLoss for a journal that is none.
  GrpcHub(const std::string& address, const MembershipLimits& limits, HubJournal journal,
          const GrpcSecurity& security = {});
  // Ends the connections that are left.
  ~GrpcHub();
  GrpcHub(const GrpcHub&) = delete;
  GrpcHub& operator=(const GrpcHub&) = delete;

  // "HOST:PORT" as nodes on this machine reach it.
  [[nodiscard]] std::string address() const;
  // Whether the job is over within `timeout`: every node has left, or it was aborted and none is
  // connected any more; or all members that are there have heard so. Any thread.
  [[nodiscard]] bool wait(std::chrono::milliseconds timeout) const;
  // Why the job was aborted; empty where it was not. Any thread.
  [[nodiscard]] std::string aborted() const;
  // Ends the job on every node, with this reason, unless there is one already. Any thread.
  void abort(const std::string& reason);
  // What has happened since the last call, in order, a sentence each: nodes that come, go and lose
  // their connection, how the job ends, and who was turned away, at most one of these a second.
  // The last thousand. Any thread.
  [[nodiscard]] std::vector<std::string> take_events();
  // How the job stands (grpc_members.h), as look_at_hub() says it. Any thread.
  [[nodiscard]] MemberList status() const;

 private:
  std::unique_ptr<GrpcHubServer> server_;
};

// This process's end of the network of a hub's job, as one of its ranks.
//
// A node that has died is one that falls silent: receive_within() finds it after limits.deadline. A
// connection that breaks is made again for as long as that, then the job ends on this rank with
// kAborted and the reason. What is sent to a peer and not taken there is held here; 8 MiB of it, or
// a message that is longer, may be on its way. Destroying the end waits until the others have what
// was sent to them, for limits.deadline at most, and 2 s after a failure.
//
// Waits for all ranks for limits.deadline; throws kDeadlineExceeded with those that are missing,
// kUnavailable where the hub cannot be reached, what the hub says where it refuses this node, and
// otherwise as GrpcHub().
std::unique_ptr<Transport> join_grpc_network(const std::string& hub, int rank, int nodes,
                                             const GrpcSecurity& security = {},
                                             const WaitLimits& limits = {});

// The rank that a node's certificate is for. Throws kNotFound where there is none, and
// kInvalidArgument for the hub's.
int certified_rank(const GrpcSecurity& security);

// The ends of a network of `nodes` threads in this process, by rank, and a hub on loopback, which
// goes with the last of them. Throws as above.
std::vector<std::unique_ptr<Transport>> make_grpc_network(int nodes, const WaitLimits& limits = {});

}  // namespace tersewire
