// Job::raw_from_all: before a bucket is encoded, every worker tells worker 0 which of its parts
// are not finite there, and worker 0, when all have, tells everyone which are not finite anywhere:
// those are sent uncompressed by all (spec/wire-format.md, "finiteness").
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "placement.h"
#include "tersewire/message.h"

namespace tersewire {

// Appends what travels of values in a step of the job. In its warm-up, and where they are not
// finite here or elsewhere (`raw`), they themselves, which leaves the residual as it was; of these
// the encoder sees only what is not finite here, and may reject it. Else what the encoder makes of
// them, under the scalers that are `agreed`, if any are.
Encoded encode_in_step(const Job& job, Encoder& encoder, std::span<const float> values,
                       std::uint64_t step, bool raw, Bytes& out, ThreadPool* pool,
                       std::span<const float> agreed = {});

// Every worker's side: what was pushed, until workers have agreed on its bucket.
class HeldPushes {
 public:
  struct Push {
    std::size_t part;
    Floats values;
  };

  explicit HeldPushes(std::shared_ptr<const Placement> placement);

  // Copies a part's values for this step. What it returns, once its bucket is complete, is the
  // message that says which of the bucket's parts are not finite; null before.
  SharedBytes hold(int rank, std::size_t part, std::uint64_t step, std::span<const float> values);

  // Takes what worker 0 says of a bucket, and returns its pushes, as they came; they are valid
  // until the next of their parts is held. Throws kDataLoss for what this worker does not wait
  // for.
  std::span<const Push> release(const Message& verdict);

  // Whether a bucket is complete and not agreed on.
  [[nodiscard]] bool awaits_verdict() const { return awaited_ > 0; }
  // Whether a part is one that is sent uncompressed in this step.
  [[nodiscard]] bool travels_raw(std::size_t part, std::uint64_t step) const {
    return raw_step_[part] == step;
  }

 private:
  struct Bucket {
    std::vector<Push> pushes;  // room for all; they keep their memory from step to step
    std::size_t held = 0;      // of them, in this step
    std::vector<bool> not_finite;
    std::uint64_t step = 0;
    bool awaits_verdict = false;
  };

  [[nodiscard]] std::size_t place_of(std::size_t part) const;
  void check_is_awaited(std::size_t number, const Message& verdict) const;

  std::shared_ptr<const Placement> placement_;
  std::vector<Bucket> buckets_;
  std::size_t awaited_ = 0;              // buckets
  std::vector<std::uint64_t> raw_step_;  // by part: the last step in which it is sent uncompressed
};

// Worker 0's side: what all workers say.
class FinitenessCount {
 public:
  explicit FinitenessCount(std::shared_ptr<const Placement> placement);

  // Takes what a worker says of a bucket, worker 0 itself too; null until all have, then worker 0's
  // verdict. Throws kDataLoss, naming the worker, for what does not belong here.
  SharedBytes take(int from, const Message& said);

 private:
  struct Said {
    std::uint64_t step;
    std::vector<bool> not_finite;
  };
  struct Bucket {
    std::vector<std::optional<Said>> said;  // by worker
    std::size_t workers = 0;                // that have
  };

  SharedBytes verdict(std::size_t number);

  std::shared_ptr<const Placement> placement_;
  std::vector<Bucket> buckets_;
};

}  // namespace tersewire
