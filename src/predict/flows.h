// What a step's messages wait for: links and threads, each of which serves one at a time in the
// order of arrival, or all that have arrived at once.
#pragma once

#include <cstddef>
#include <vector>

namespace tersewire {

// Work for a link's direction, or a thread: so many seconds of it alone.
struct Use {
  std::size_t server;
  double seconds;
};

// Uses that begin together. The stage ends when all have ended.
struct Stage {
  std::vector<Use> uses;
  double latency_seconds = 0;  // after that
};

// What becomes of a bucket, stage after stage, from `ready_seconds` on.
struct Flow {
  double ready_seconds = 0;
  std::vector<Stage> stages;
};

// When each flow has ended, on so many servers, free from 0 on. The first `shared` of them serve
// all that have arrived, each as fast as the others; the rest one at a time.
std::vector<double> ends_of(const std::vector<Flow>& flows, std::size_t servers,
                            std::size_t shared = 0);

}  // namespace tersewire
