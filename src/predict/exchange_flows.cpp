#include "exchange_flows.h"

#include <algorithm>
#include <cmath>

#include "errors.h"
#include "exchange_table.h"
#include "links.h"
#include "tersewire/message.h"

namespace tersewire {
namespace {

// A worker's own, of every exchange; what else there is comes behind.
constexpr std::size_t kUp = 0;
constexpr std::size_t kDown = 1;

// They take some hundred bytes each.
constexpr std::size_t kMostUses = std::size_t{1} << 23;

class FlowMaker {
 public:
  FlowMaker(const Placement& placement, const LinkSpeed& link)
      : placement_(placement), link_(link), workers_(placement.job.workers) {}

  ExchangeFlows make(const std::vector<BucketLoad>& buckets) {
    const Exchange& exchange = choose_exchange(placement_.job).exchange;
    ExchangeFlows made;
    const std::size_t machine = count_links(exchange);
    made.links = machine + 1;
    made.servers = made.links + made.links;  // a thread for each that has one
    thread_ = made.links;
    for (const BucketLoad& bucket : buckets) {
      flow_ = {.ready_seconds = bucket.ready_seconds, .stages = {}};
      if (bucket.machine_seconds > 0) flow_.stages.push_back({{{machine, bucket.machine_seconds}}});
      add_stages(exchange, bucket);
      for (const Stage& stage : flow_.stages) uses_ += stage.uses.size();
      if (uses_ > kMostUses) {
        fail(ErrorCode::kInvalidArgument,
             "a step of {} buckets in exchange {} over {} workers is too long to simulate; use "
             "fewer workers, or a smaller model",
             buckets.size(), placement_.job.exchange, placement_.job.workers);
      }
      made.flows.push_back(std::move(flow_));
    }
    return made;
  }

 private:
  [[nodiscard]] std::size_t count_links(const Exchange& exchange) const {
    if (is_colocated(placement_.job)) return 2 * static_cast<std::size_t>(workers_);
    if (exchange.tree) return 2 * (levels().size() + 1);
    if (exchange.traits.shards) return 2 * (static_cast<std::size_t>(placement_.servers) + 1);
    return 4;
  }

  void add_stages(const Exchange& exchange, const BucketLoad& bucket) {
    if (exchange.carries == StateChange::kSums) return add_ring(bucket);
    if (is_colocated(placement_.job)) return add_colocated(bucket);
    if (exchange.tree) return add_tree(bucket);
    if (exchange.traits.shards) return add_server(bucket);
    add_to_all(bucket);
  }

  [[nodiscard]] double wire(double message_bytes) const {
    const auto bytes = static_cast<std::uint64_t>(std::ceil(message_bytes));
    return static_cast<double>(bytes_on_wire(bytes)) * 8 / link_.bits_per_second;
  }
  [[nodiscard]] double wire(const Leg& leg) const {
    return wire(leg.payload_bytes + leg.frame_bytes + kMessageOverheadBytes);
  }
  void over_links(std::vector<Use> uses) {
    flow_.stages.push_back({std::move(uses), link_.latency_seconds});
  }
  void by_thread(std::size_t thread, double seconds) {
    if (seconds > 0) flow_.stages.push_back({{{thread_ + thread, seconds}}});
  }

  // Node `number` of those beside the worker.
  static std::size_t up(std::size_t number) { return 2 * number; }
  static std::size_t down(std::size_t number) { return 2 * number + 1; }

  // What `children` send, decoded while it comes, then encoded once; or what goes back to them.
  void push_up(std::size_t from, std::size_t to, double children, const Leg& leg) {
    over_links({{up(from), wire(leg)},
                {down(to), children * wire(leg)},
                {thread_ + to, children * leg.decode_seconds}});
  }
  void pass_down(std::size_t from, std::size_t to, double children, const Leg& leg) {
    over_links({{up(from), children * wire(leg)}, {down(to), wire(leg)}});
  }

  void add_server(const BucketLoad& bucket) {
    const auto server = static_cast<std::size_t>(bucket.owner) + 1;
    push_up(0, server, workers_, bucket.push);
    by_thread(server, bucket.pull.encode_seconds);
    pass_down(server, 0, workers_, bucket.pull);
  }

  // What stays on the owner's node takes no link.
  void add_colocated(const BucketLoad& bucket) {
    const auto owner = static_cast<std::size_t>(bucket.owner);
    const double others = workers_ - 1;
    std::vector<Use> pushes{{down(owner), others * wire(bucket.push)},
                            {thread_ + owner, workers_ * bucket.push.decode_seconds}};
    std::vector<Use> pulls{{up(owner), others * wire(bucket.pull)}};
    for (std::size_t node = 0; node < static_cast<std::size_t>(workers_); ++node) {
      if (node == owner) continue;
      pushes.push_back({up(node), wire(bucket.push)});
      pulls.push_back({down(node), wire(bucket.pull)});
    }
    over_links(std::move(pushes));
    by_thread(owner, bucket.pull.encode_seconds);
    over_links(std::move(pulls));
  }

  // The children of an aggregator, from above the workers to the root.
  [[nodiscard]] std::vector<double> levels() const {
    std::vector<double> children;
    for (int node = placement_.tree.front().parent; node >= 0;) {
      const TreeNode& aggregator = placement_.tree[static_cast<std::size_t>(node)];
      children.push_back(aggregator.children);
      node = aggregator.parent;
    }
    return children;
  }

  void add_tree(const BucketLoad& bucket) {
    const std::vector<double> children = levels();
    const std::size_t root = children.size();
    for (std::size_t level = 1; level <= root; ++level) {
      push_up(level - 1, level, children[level - 1], bucket.push);
      by_thread(level, level < root ? bucket.push.encode_seconds : bucket.pull.encode_seconds);
    }
    for (std::size_t level = root; level >= 1; --level) {
      pass_down(level, level - 1, children[level - 1], bucket.pull);
    }
  }

  void add_to_all(const BucketLoad& bucket) {
    const double others = placement_.options.average_asynchronous ? 1 : workers_ - 1;
    if (workers_ == 1) return;
    over_links({{kUp, others * wire(bucket.push)}, {kDown, others * wire(bucket.push)}});
  }

  // So many parts of what a bucket takes.
  static Leg share(const Leg& leg, double parts) {
    return {.payload_bytes = leg.payload_bytes / parts,
            .frame_bytes = kMaxFrameOverheadBytes,
            .encode_seconds = leg.encode_seconds / parts,
            .decode_seconds = leg.decode_seconds / parts};
  }
  void hop(const Leg& leg) {
    over_links({{kUp, wire(leg)}, {kDown, wire(leg)}});
    by_thread(0, leg.decode_seconds);
  }
  void add_up(const Leg& leg, double members) {
    for (double sent = 1; sent < members; ++sent) {
      by_thread(0, leg.encode_seconds);
      hop(leg);
    }
  }
  void pass_around(const Leg& leg, double members) {
    for (double sent = 1; sent < members; ++sent) hop(leg);
  }

  // INCEPTIONN, Algorithm 1, in the group, among groups, and in the group again.
  void add_ring(const BucketLoad& bucket) {
    const double group = placement_.options.group;
    const double groups = workers_ / group;
    const Leg block = share(bucket.push, group);
    add_up(block, group);
    if (placement_.options.top == RingTop::kTree) {
      const Leg complete = share(bucket.pull, group);
      const double blocks = std::ceil(group / placement_.servers);  // of a server
      by_thread(0, block.encode_seconds);
      push_up(0, 1, blocks * groups, block);
      by_thread(1, blocks * complete.encode_seconds);
      pass_down(1, 0, blocks * groups, complete);
      by_thread(0, complete.decode_seconds);
      return pass_around(complete, group);
    }
    const Leg piece = share(bucket.push, workers_);
    add_up(piece, groups);
    by_thread(0, piece.encode_seconds + piece.decode_seconds);
    pass_around(piece, groups);
    Leg pieces = block;
    pieces.frame_bytes = groups * kMaxFrameOverheadBytes;
    pass_around(pieces, group);
  }

  const Placement& placement_;
  const LinkSpeed& link_;
  double workers_;
  std::size_t thread_ = 0;  // the worker's; those of other nodes follow
  std::size_t uses_ = 0;
  Flow flow_;
};

}  // namespace

ExchangeFlows make_flows(const Placement& placement, const LinkSpeed& link,
                         const std::vector<BucketLoad>& buckets) {
  return FlowMaker(placement, link).make(buckets);
}

bool encodes_in_push(const Placement& placement) {
  return choose_exchange(placement.job).exchange.carries != StateChange::kSums;
}

int decoded_in_pull(const Placement& placement) {
  const Exchange& exchange = choose_exchange(placement.job).exchange;
  if (exchange.carries == StateChange::kSums) return 0;
  if (placement.options.average_asynchronous) return 1;
  return exchange.traits.shards || exchange.tree ? 1 : placement.job.workers;
}

}  // namespace tersewire
