// Scaler sharing (TernGrad, section 3.1): before a step's gradients travel, every worker offers the
// scalers of all its parts in one message, and gets back the largest of all workers'.
#pragma once

#include <cstdint>
#include <vector>

#include "node.h"

namespace tersewire {

// The scalers of a job's parts, by part; empty for those that have nothing to agree on.
using Scalers = std::vector<std::vector<float>>;

// Requires at least one scaler.
SharedBytes scalers_message(const Placement& placement, const MessageHeader& header,
                            const Scalers& scalers);

// What an offer or an agreement says. Throws kDataLoss where it does not fit `expected`, which has
// as many scalers for each part.
Scalers scalers_in(const Received& received, const Placement& placement, const Scalers& expected);

// The first server's side: collects one step's offers.
class ScalerAgreement {
 public:
  explicit ScalerAgreement(int workers) : offered_(static_cast<std::size_t>(workers), false) {}

  // Takes all steps up to this one as over.
  void skip_to(std::uint64_t step) { step_ = step + 1; }

  // Takes a worker's offer for the job's parts; null until all workers' are in, then the
  // agreement, from `sender`. Throws kDataLoss for an offer that does not belong here.
  SharedBytes take(const Received& offer, const Placement& placement, int sender);

  // Whether others wait for this worker's.
  [[nodiscard]] bool needs(std::size_t worker) const { return offers_ > 0 && !offered_[worker]; }

 private:
  void start(const Received& offer, const Placement& placement);

  std::uint64_t step_ = 1;
  std::vector<bool> offered_;  // by worker
  std::size_t offers_ = 0;
  Scalers largest_;
};

}  // namespace tersewire
