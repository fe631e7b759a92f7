// A rank's end of the network of a hub, for PyTorch: what ranks tell each other, and the lanes of
// their exchanges.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "python/rank_calls.h"
#include "python/shared_end.h"
#include "tersewire/grpc_network.h"

namespace tersewire::python {

// One thread at a time, with the GIL, which is released while others are waited for. Ctrl-C ends
// the job on every rank.
class HubEnd {
 public:
  // Waits for all ranks. Throws like join_grpc_network(), which says what the rest is, and
  // certified_rank() where there is no rank.
  HubEnd(std::string hub, std::optional<int> rank, int ranks, const GrpcSecurity& security,
         const WaitLimits& limits, std::string direct);
  // An end that there is already; `hub` is its name in sentences.
  HubEnd(std::unique_ptr<Transport> network, const WaitLimits& limits, std::string hub);
  ~HubEnd();
  HubEnd(const HubEnd&) = delete;
  HubEnd& operator=(const HubEnd&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return ranks_; }

  // RankCalls says what they do.
  std::vector<Bytes> gather(ByteView own);
  void broadcast(int root, std::span<std::byte> data);

  // A network of its own for an exchange of all ranks; waits until each has it.
  std::unique_ptr<Transport> open(std::size_t longest);

  // Leaves the hub, once the exchanges over it are closed.
  void close();

 private:
  [[nodiscard]] RankCalls& calls();
  // What the others are told where Ctrl-C ends the job.
  [[nodiscard]] std::string interruption() const;
  void open_calls(std::unique_ptr<Transport> network, const WaitLimits& limits);

  std::string hub_;
  int rank_;
  int ranks_;
  std::shared_ptr<SharedEnd> end_;
  std::unique_ptr<Transport> lane_;  // for calls
  std::unique_ptr<RankCalls> calls_;
};

}  // namespace tersewire::python
