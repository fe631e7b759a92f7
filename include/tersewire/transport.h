// Transports: reliable messages between numbered nodes. A transport never looks inside a message.
//
// An application may bring its own by implementing Transport.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tersewire/bytes.h"

namespace tersewire {

// A message that several receivers may share.
using SharedBytes = std::shared_ptr<const Bytes>;

struct Incoming {
  int from = 0;
  SharedBytes bytes;  // never null
  // When the transport had received all of it, which may be long before anyone asked.
  std::chrono::steady_clock::time_point arrived = std::chrono::steady_clock::now();
  // Whether it was sent on this node itself, and nothing can have altered it.
  bool own = false;
};

// The first of the messages that an end keeps until it is asked for them; nothing where there is
// none.
inline std::optional<Incoming> take_first(std::deque<Incoming>& messages) {
  if (messages.empty()) return std::nullopt;
  Incoming message = std::move(messages.front());
  messages.pop_front();
  return message;
}

// What a node's end knows about another node.
struct Peer {
  // Its last sign of life: a message, or a signal that its transport sends by itself for as long as
  // it runs, whatever the application there computes, evaluates or writes.
  std::chrono::steady_clock::time_point heard = std::chrono::steady_clock::now();
  // Why nothing more comes from it, if so, as a sentence without its subject.
  std::optional<std::string> gone;
  // Bytes of messages that this end was given for it and that it has not taken, as far as can be
  // known: those on their way, or waiting behind them.
  std::size_t waiting = 0;
};

// How long a node waits for others: each between 1 ms and kLongest.
struct WaitLimits {
  static constexpr std::chrono::seconds kLongest = std::chrono::days(30);

  // For a node that gives no sign of life.
  std::chrono::milliseconds deadline = std::chrono::seconds(120);
  // For a message, even if all others are alive: a node that is busy for ever is no use either.
  std::chrono::milliseconds progress_limit = std::chrono::hours(1);
};

// Calls by a transport, for as long as it lives; see Transport::on_arrival(). Destroying it waits
// for a call in progress, so it must not be destroyed within one.
class ArrivalCalls {
 public:
  virtual ~ArrivalCalls() = default;

  // Requests one more call, soon.
  virtual void call_again() = 0;
};

// One node's end of a job's network. Messages from one node to another arrive complete, once and in
// order. Every function may be called from any thread.
class Transport {
 public:
  virtual ~Transport() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;

  // Starts sending and returns at once; the bytes are kept alive until they are delivered. Two
  // nodes that both waited here for each other would wait for ever, so a sender must check how much
  // is waiting for a peer before it adds more. Throws kAborted after abort() on any node,
  // kInvalidArgument for a rank that does not exist, and for null bytes.
  virtual void send(int to, SharedBytes bytes) = 0;

  // The next message from any node, or nothing if none has arrived within `timeout` (0: only look).
  // Throws kAborted after abort() on any node, with the reason given there.
  virtual std::optional<Incoming> receive(std::chrono::milliseconds timeout) = 0;

  // For a node that receives whatever else it does, and would otherwise keep a thread waiting:
  // calls `arrived`, from one of the transport's own threads, when receive() may return or throw at
  // once; once to begin with. Calls for one node never overlap. `arrived` must not throw, and must
  // not wait for anything long, as all nodes share the threads. The default, and any transport
  // without such calls, returns null.
  virtual std::unique_ptr<ArrivalCalls> on_arrival(std::function<void()> /*arrived*/) {
    return nullptr;
  }

  // Ends the job for every node: all calls, including those that wait, throw kAborted with this
  // reason. The first reason is kept. Never throws, never blocks for long.
  virtual void abort(const std::string& reason) noexcept = 0;

  // What is known about a node; this node itself is always alive. Requires a rank that exists.
  // Throws kAborted after abort() on any node. Cost: a lock.
  [[nodiscard]] virtual Peer peer(int rank) const = 0;

  // From now on no message from others to this node is longer; make_communicator() and run_server()
  // know this limit from their job. A transport that allocates for announced messages allocates no
  // more than that, and ends the job instead. The default does nothing.
  virtual void expect_at_most(std::size_t /*bytes*/) {}

  // Message bytes handed to send() and delivered by receive() so far.
  [[nodiscard]] virtual std::uint64_t bytes_sent() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t bytes_received() const noexcept = 0;
};

// The next message from any node. Throws kDeadlineExceeded, with the silent node and what it waited
// for in the sentence, if nothing has arrived for limits.deadline and a node has been silent for as
// long or all others are gone, and if nothing has arrived for limits.progress_limit; kUnavailable,
// at once, if a node has left from which, according to `needs`, something is still to come; like
// receive() otherwise. Time while this process was suspended does not count. Any thread.
Incoming receive_within(Transport& transport, const WaitLimits& limits,
                        const std::string& waited_for,
                        const std::function<bool(int rank)>& needs = {});

// Every node's link to the others, with the options and the meaning of lab/netlab. A message
// crosses two links, its sender's and its receiver's.
struct ModelledLinks {
  double bits_per_second = 0;  // each way; 0 for no limit, or at least 1000
  double delay_seconds = 0;    // one way, of each link, up to 60
  double jitter_seconds = 0;   // a frame's delay is up to this much shorter or longer, up to 60
  double loss = 0;             // of frames, on each link: a share, 0 or 1e-6 to 0.5
  std::uint64_t seed = 0;      // of jitter and loss
};

// The ends of a network of `nodes` threads in this process, by rank. A node is alive as long as its
// end exists: threads do not fall silent unnoticed.
//
// If `links` limit or delay, messages arrive, and receive() returns them, when such links would
// have carried them in Ethernet frames of 1448 bytes of message in 1514, so a link's goodput is
// 95.6 % of its rate. Nodes that send to the same node share its link; a node that sends to several
// shares its own among them, 64 KiB (from 262 Mbit/s: 2 ms) at a time. A lost frame is sent again,
// and holds up all that its sender sends to its receiver (src/transport/in_process/link_faults.h
// says for how long). send() never waits; a node's messages to itself take no time. The effect of
// jitter and loss on a message depends only on the seed, its sender, receiver and number, not on
// threads.
//
// Not modelled are acknowledgements (two-way traffic gets 2 - 3 % less on real links), the growth
// of TCP's window, the 2 ms that netlab lets through at once after a pause, and a congested
// receiver slowing down a sender, whose link is then free for others: a switch that drops nothing
// holds what waits.
//
// Throws kInvalidArgument for nodes < 1, and for links outside ModelledLinks' limits.
std::vector<std::unique_ptr<Transport>> make_in_process_network(int nodes,
                                                                const ModelledLinks& links = {});

// This process's end of a network of processes that MPI's launcher started (`mpirun -n NODES`), by
// rank of MPI_COMM_WORLD. Initialises MPI in a separate thread, the only one that calls it; once
// per process, and only if nothing else does.
//
// After abort(), or if MPI reports a failure (kUnavailable), the job is over on every rank. If
// ranks abort at the same time, each keeps the reason that it hears first. MPI does not report a
// rank that has died or hangs: that thread tells each other rank that it is alive, four times a
// second (in networks of more than 250 ranks as often as makes a thousand such messages a second),
// so limits.deadline should be at least a second.
//
// Destroying the end waits until sent messages are delivered and the other ranks do the same, and
// leaves MPI: as long as no rank is silent for limits.deadline, at most limits.progress_limit, and
// 2 s after a failure. If a rank has not done so by then, MPI is not finalised, and the launcher
// ends the job when the process ends.
//
// limits.deadline bounds starting as well. Throws kUnimplemented if this build has no MPI,
// kFailedPrecondition if no launcher started this process or it has used MPI before,
// kDeadlineExceeded if MPI does not start in time. Any thread.
std::unique_ptr<Transport> join_mpi_network(const WaitLimits& limits = {});

// Where the processes of a network over TCP find each other: each makes one, tells all others its
// address over any channel that they share, and joins. Any thread.
class TcpMeeting {
 public:
  // Listens at a port that the system chooses. `host` is an address or a name of this machine at
  // which all others reach it. Throws kUnavailable.
  explicit TcpMeeting(const std::string& host);
  ~TcpMeeting();
  TcpMeeting(const TcpMeeting&) = delete;
  TcpMeeting& operator=(const TcpMeeting&) = delete;

  // "HOST PORT", numeric.
  [[nodiscard]] const std::string& address() const noexcept { return address_; }

  // This process's end of the network of as many ranks as addresses, once. `token`, 16 random bytes
  // or more, is known to every rank and nobody else: connections without it are rejected. Traffic
  // is neither encrypted nor authenticated further; use it on a trusted network only.
  //
  // The end's own thread reads and writes, and reports four times a second that its node is alive.
  // A connection that ends without a goodbye ends the job on every rank, with the rank's number in
  // the sentence. send() buffers what the network does not accept, without a bound, and throws
  // kUnavailable for a rank that has left. Destroying the end waits until the others have read what
  // was sent, for limits.deadline at most, and 2 s after a failure.
  //
  // Returns when every other rank has called it with the same token and addresses; waits for them
  // for limits.deadline. Throws kDeadlineExceeded and kUnavailable, with the missing rank;
  // kFailedPrecondition, on both, where two ranks' addresses differ in their number, and on a rank
  // that calls one it takes for another, for which that one may wait until the deadline;
  // kResourceExhausted without file descriptors; kInvalidArgument for an invalid rank, token or
  // limit (less than 1 ms).
  std::unique_ptr<Transport> join(int rank, const std::vector<std::string>& addresses,
                                  const std::string& token, const WaitLimits& limits = {});

 private:
  struct Listening;
  std::unique_ptr<Listening> listening_;
  std::string address_;
};

}  // namespace tersewire
