#include "flows.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>
#include <utility>

namespace tersewire {
namespace {

template <typename T>
using Soonest = std::priority_queue<T, std::vector<T>, std::greater<>>;

// A server that all share. Its own time is what each of them has been served: a use that begins at
// one time of it ends so many seconds of it later.
struct SharedServer {
  double own_time = 0;
  double at = 0;  // the time to which own_time belongs
  std::size_t changes = 0;
  Soonest<std::pair<double, std::size_t>> ends;  // in own time, and whose

  void advance(double now) {
    if (!ends.empty()) own_time += (now - at) / static_cast<double>(ends.size());
    at = now;
  }
  [[nodiscard]] double next_end() const {
    return at + std::max(ends.top().first - own_time, 0.0) * static_cast<double>(ends.size());
  }
};

class Simulation {
 public:
  Simulation(const std::vector<Flow>& flows, std::size_t servers, std::size_t shared)
      : flows_(flows), places_(flows.size()), free_(servers, 0.0), shared_(shared) {
    for (std::size_t flow = 0; flow < flows.size(); ++flow) {
      events_.push({flows[flow].ready_seconds, kBegins, flow, 0});
    }
  }

  std::vector<double> run() {
    std::vector<double> ends(flows_.size(), 0.0);
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      switch (event.kind) {
        case kBegins:
          if (places_[event.number].stage == flows_[event.number].stages.size()) {
            ends[event.number] = event.seconds;
          } else {
            begin(event.number, event.seconds);
          }
          break;
        case kUseEnds:
          end_use(event.number, event.seconds);
          break;
        case kSharedEnds:
          if (shared_[event.number].changes == event.change) end_shared(event);
          break;
      }
    }
    return ends;
  }

 private:
  // Of the same time, what ends comes before what begins.
  enum Kind { kUseEnds, kSharedEnds, kBegins };
  struct Event {
    double seconds;
    Kind kind;
    std::size_t number;      // of a flow, or of a shared server
    std::size_t change = 0;  // of that: one that has changed since has another next end
    bool operator>(const Event& other) const {
      return std::tie(seconds, kind, number) > std::tie(other.seconds, other.kind, other.number);
    }
  };
  struct Place {
    std::size_t stage = 0;
    std::size_t uses_left = 0;
  };

  void begin(std::size_t flow, double now) {
    const Stage& stage = flows_[flow].stages[places_[flow].stage];
    places_[flow].uses_left = stage.uses.size();
    for (const Use& use : stage.uses) {
      if (use.server < shared_.size()) {
        SharedServer& server = shared_[use.server];
        server.advance(now);
        server.ends.emplace(server.own_time + use.seconds, flow);
        expect_end(use.server);
      } else {
        double& free = free_[use.server];
        free = std::max(free, now) + use.seconds;
        events_.push({free, kUseEnds, flow});
      }
    }
  }

  void expect_end(std::size_t number) {
    SharedServer& server = shared_[number];
    ++server.changes;
    if (!server.ends.empty()) {
      events_.push({server.next_end(), kSharedEnds, number, server.changes});
    }
  }

  void end_shared(const Event& event) {
    SharedServer& server = shared_[event.number];
    server.advance(event.seconds);
    const std::size_t flow = server.ends.top().second;
    server.own_time = server.ends.top().first;
    server.ends.pop();
    expect_end(event.number);
    end_use(flow, event.seconds);
  }

  void end_use(std::size_t flow, double now) {
    Place& place = places_[flow];
    if (--place.uses_left > 0) return;
    const double latency = flows_[flow].stages[place.stage].latency_seconds;
    ++place.stage;
    events_.push({now + latency, kBegins, flow});
  }

  const std::vector<Flow>& flows_;
  std::vector<Place> places_;  // by flow
  std::vector<double> free_;   // by server
  std::vector<SharedServer> shared_;
  Soonest<Event> events_;
};

}  // namespace

std::vector<double> ends_of(const std::vector<Flow>& flows, std::size_t servers,
                            std::size_t shared) {
  return Simulation(flows, servers, shared).run();
}

}  // namespace tersewire
