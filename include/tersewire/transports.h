// The available transports, by their texts: NAME or NAME:KEY=VALUE (setting_text.h).
//   in-process           nodes are threads of this process, which holds all their ends
//   in-process:[rate=R][,delay=T][,jitter=T][,loss=SHARE][,seed=N]
//                        with links as make_in_process_network() models them: rate=100mbit,
//                        delay=40ms, loss=0.1% (or 0.001), as lab/netlab takes them
//   mpi                  nodes are processes that MPI's launcher started; this one has its own end
//   grpc                 nodes are threads of this process, and so is their hub, over loopback
//   grpc:hub=HOST:PORT[,rank=R][,certs=DIR][,direct=HOST:PORT][,insecure=on]
//                        this process is one node of a hub's job (grpc_network.h); without R its
//                        certificate says which. Peers that reach it at the address of `direct`
//                        connect to it there, not through the hub
//   grpc:hub=HOST:PORT[,name=NAME][,role=server][,certs=DIR][,direct=HOST:PORT][,insecure=on]
//                        it is a member that comes and goes (grpc_members.h), for which the
//                        application itself makes one network after another
// Any other application brings its own Transport (transport.h).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tersewire/grpc_network.h"
#include "tersewire/transport.h"

namespace tersewire {

// Which node of which hub's job a process is.
struct GrpcPlace {
  std::string hub;
  std::optional<int> rank;  // none: the certificate's
  std::string name;         // of a member; empty: the certificate's
  GrpcSecurity security;
  std::string direct;   // where its peers connect to it directly; empty: nowhere
  bool serves = false;  // of a member: it is a server, and no worker
};

struct ChosenTransport {
  std::string name;
  bool between_processes = false;  // nodes are processes: each holds only its own end
  bool launched = false;           // one launcher starts them all, and ends them all when one fails
  std::optional<GrpcPlace> grpc;
  ModelledLinks links;  // of in-process
};

// Throws kInvalidArgument for an unknown transport or parameter. Any thread.
ChosenTransport choose_transport(std::string_view text);

// This process's ends of a job's network, by rank. `nodes` is the number of nodes; over mpi the
// launcher sets it. Throws like choose_transport() and the functions that join such networks.
std::vector<std::unique_ptr<Transport>> join_network(std::string_view text, int nodes,
                                                     const WaitLimits& limits = {});

// A job that a launcher has started, as described in this process's environment.
struct LaunchedJob {
  std::string transport;   // the text of a transport that can join its processes
  int processes = 1;       // of the whole job; 0 if the launcher does not say
  int processes_here = 0;  // on this machine; 0 if the launcher does not say
  int rank = 0;
};

// Nothing if no launcher started this process, or started it alone. Any thread, but not while the
// environment is being changed.
std::optional<LaunchedJob> launched_job();

// A rate in bits a second, in lab/netlab's syntax: 10mbit, 1gbit, 2.5gbit; nothing if the text is
// not a rate.
std::optional<double> parsed_rate(std::string_view text);

// A time in seconds, in lab/netlab's syntax: 20ms, 300us, 0.5s; nothing if the text is not a time.
std::optional<double> parsed_time(std::string_view text);

}  // namespace tersewire
