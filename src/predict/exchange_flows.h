// Who sends what to whom, as each exchange does it, in what links and threads have to do for it.
//
// Workers are alike and in step: what one does, all do at the same time, so that one stands for
// all, and so does one aggregator for its level of a tree, one server above a ring for all of them.
// With colocated servers every node is there, since each is busy with another bucket.
#pragma once

#include <cstddef>
#include <vector>

#include "flows.h"
#include "placement.h"
#include "tersewire/predict.h"

namespace tersewire {

// A bucket in one direction.
struct Leg {
  double payload_bytes = 0;
  double frame_bytes = 0;  // beside payloads
  double encode_seconds = 0;
  double decode_seconds = 0;
};

struct BucketLoad {
  double ready_seconds = 0;  // when a worker has its gradients, encoded where it encodes them
  Leg push;
  Leg pull;
  int owner = 0;               // of its parts, among the servers
  double machine_seconds = 0;  // for the sum over the machine's GPUs
};

struct ExchangeFlows {
  std::vector<Flow> flows;  // by bucket
  std::size_t links = 0;    // the first servers of flows, a worker's uplink first of all
  std::size_t servers = 0;  // of flows
};

ExchangeFlows make_flows(const Placement& placement, const LinkSpeed& link,
                         const std::vector<BucketLoad>& buckets);

// Whether workers encode in push() and decode in pull(), by the application's thread; in a ring the
// thread for progress does it, hop by hop.
bool encodes_in_push(const Placement& placement);

// So many workers' contributions a worker decodes in pull().
int decoded_in_pull(const Placement& placement);

}  // namespace tersewire
