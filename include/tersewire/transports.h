// The transports that there are, by their texts: NAME or NAME:KEY=VALUE (setting_text.h).
//   in-process           nodes are threads of this process, which has the ends of all of them
//   in-process:[rate=R][,delay=T][,jitter=T][,loss=SHARE][,seed=N]
//                        with links as make_in_process_network() models them: rate=100mbit,
//                        delay=40ms, loss=0.1% (or 0.001), as lab/netlab takes them
//   mpi                  nodes are processes that MPI's launcher started; this one has its own end
//   grpc                 nodes are threads of this process, and so is their hub, over loopback
//   grpc:hub=HOST:PORT[,rank=R][,certs=DIR][,insecure=on]
//                        this process is one node of a hub's job (grpc_network.h); without R its
//                        certificate says which
//   grpc:hub=HOST:PORT[,name=NAME][,certs=DIR][,insecure=on]
//                        it is a member that comes and goes (grpc_members.h), of which the
//                        application makes one network after another by itself
// An application of another kind brings a Transport of its own (transport.h).
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
  std::optional<int> rank;  // none: that of the certificate
  std::string name;         // of a member; empty: that of the certificate
  GrpcSecurity security;
};

struct ChosenTransport {
  std::string name;
  bool between_processes = false;  // nodes are processes: each has its own end alone
  bool launched = false;  // one launcher starts them all, and ends all with the first that fails
  std::optional<GrpcPlace> grpc;
  ModelledLinks links;  // of in-process
};

// Throws kInvalidArgument for a transport or a parameter that does not exist. Any thread.
ChosenTransport choose_transport(std::string_view text);

// This process's ends of a job's network, by rank. `nodes` is how many nodes there are to be, which
// over mpi the launcher says. Throws like choose_transport() and the functions that join such
// networks.
std::vector<std::unique_ptr<Transport>> join_network(std::string_view text, int nodes,
                                                     const WaitLimits& limits = {});

// A job that a launcher has started, as this process finds it in its environment.
struct LaunchedJob {
  std::string transport;   // the text of the one that joins its processes
  int processes = 1;       // of the whole job
  int processes_here = 0;  // of this machine; 0 where the launcher does not say
  int rank = 0;
};

// Nothing where no launcher started this process, or it alone. Any thread that does not run beside
// changes of the environment.
std::optional<LaunchedJob> launched_job();

// A rate in bits a second, as lab/netlab takes them: 10mbit, 1gbit, 2.5gbit; nothing where the text
// is none.
std::optional<double> parsed_rate(std::string_view text);

// A time in seconds, as lab/netlab takes them: 20ms, 300us, 0.5s; nothing where the text is none.
std::optional<double> parsed_time(std::string_view text);

}  // namespace tersewire
