// What every worker of an exchange without servers sent of one part: held in encoded form until
// everyone's is there, then averaged.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "followed.h"
#include "tersewire/message.h"
#include "tersewire/thread_pool.h"
#include "tersewire/transport.h"

namespace tersewire {

// One worker's, of one step.
struct Contribution {
  std::uint64_t step;
  SharedBytes bytes;  // what `frame` points into
  Frame frame;
};

// One thread at a time.
class Gathered {
 public:
  // `name` is the part's, for sentences.
  Gathered(std::string name, int workers)
      : name_(std::move(name)), workers_(static_cast<std::size_t>(workers)) {}

  // Throws kDataLoss where this worker has sent more than it can have had to send.
  void hold(int from, Contribution contribution);

  // Whether a worker's next contribution is here ...
  [[nodiscard]] bool has(int from) const { return held_.contains(from); }
  // ... and everyone's.
  [[nodiscard]] bool complete() const { return present_ == workers_; }

  // Takes everyone's next contribution and overwrites `mean` with their average, added up in the
  // order of ranks, whatever the order of arrival, so that all workers come to the same bits.
  // Throws kDataLoss, naming the worker, for one that is malformed or not of this step; what `mean`
  // holds is then undefined. Where they are differences, `followed` is what they add up to.
  void average(std::uint64_t step, std::span<float> mean, ThreadPool* pool,
               Followed* followed = nullptr);

 private:
  std::string name_;
  std::size_t workers_;
  // By rank; of one rank in the order of arrival. No place is kept for what has not come: a job has
  // many workers, and many parts.
  std::multimap<int, Contribution> held_;
  std::size_t present_ = 0;  // ranks that are in it
};

}  // namespace tersewire
