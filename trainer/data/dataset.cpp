#include "trainer/data/dataset.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "tersewire/counted.h"
#include "tersewire/error.h"

namespace tersewire::trainer {
namespace {

// Domains of CounterRandom: what the sampler draws must not repeat what draws the images.
constexpr std::uint64_t kSplitDomain = 0x73706C6974;  // "split"
constexpr std::uint64_t kEpochDomain = 0x65706F6368;  // "epoch"

// Fisher and Yates's, written out: std::shuffle may differ between libraries.
void shuffle(std::span<std::uint32_t> values, CounterRandom random) {
  for (std::size_t left = values.size(); left > 1; --left) {
    std::swap(values[left - 1], values[random.below(left)]);
  }
}

[[noreturn]] void refuse_argument(const std::string& sentence) {
  throw Error(ErrorCode::kInvalidArgument, sentence);
}

std::vector<std::uint32_t> shard_images(std::size_t images, std::size_t workers, std::size_t worker,
                                        std::uint64_t seed) {
  const Shard shard = shard_of(images, workers, worker);
  if (images > std::numeric_limits<std::uint32_t>::max()) {
    refuse_argument(std::to_string(images) + " training samples are too many; use fewer than 2^32");
  }
  std::vector<std::uint32_t> all(images);
  std::iota(all.begin(), all.end(), 0U);
  shuffle(all, CounterRandom(seed, kSplitDomain, 0));
  return {all.begin() + static_cast<std::ptrdiff_t>(shard.begin),
          all.begin() + static_cast<std::ptrdiff_t>(shard.end)};
}

}  // namespace

Shard shard_of(std::size_t images, std::size_t workers, std::size_t worker) {
  if (worker >= workers) {
    refuse_argument("there is no worker " + std::to_string(worker) + " of " +
                    std::to_string(workers) + "; workers are numbered from 0");
  }
  // The first `larger` shards have one image more.
  const std::size_t share = images / workers;
  const std::size_t larger = images % workers;
  const std::size_t begin = worker * share + std::min(worker, larger);
  return {.begin = begin, .end = begin + share + (worker < larger ? 1 : 0)};
}

BatchSampler::BatchSampler(std::size_t images, std::size_t workers, std::size_t worker,
                           std::size_t batch, std::uint64_t seed)
    : batch_(batch),
      seed_(seed),
      worker_(worker),
      shard_(shard_images(images, workers, worker, seed)) {
  if (batch == 0) refuse_argument("a batch of 0 samples trains nothing; use at least 1");
  if (shard_.size() < batch) {
    refuse_argument("worker " + std::to_string(worker) + "'s shard has " +
                    counted(shard_.size(), "sample") + ", fewer than a batch of " +
                    std::to_string(batch) + "; use smaller batches, fewer workers or more data");
  }
  shuffle_for(0);
}

std::uint64_t BatchSampler::epoch() const noexcept { return batches_ * batch_ / shard_.size(); }

void BatchSampler::next(std::vector<std::uint32_t>& indices) {
  indices.clear();
  while (indices.size() < batch_) {
    const std::uint64_t position = batches_ * batch_ + indices.size();
    shuffle_for(position / order_.size());
    const std::size_t from = position % order_.size();
    const std::size_t count = std::min(batch_ - indices.size(), order_.size() - from);
    const auto first = order_.begin() + static_cast<std::ptrdiff_t>(from);
    indices.insert(indices.end(), first, first + static_cast<std::ptrdiff_t>(count));
  }
  ++batches_;
}

void BatchSampler::seek(std::uint64_t batches) {
  // Below this limit neither an epoch nor a position, at most batches * 2^32, can wrap.
  if (batches > std::numeric_limits<std::uint32_t>::max()) {
    refuse_argument("batch " + std::to_string(batches) +
                    " is out of range; seek to one below 2^32");
  }
  batches_ = batches;
}

void BatchSampler::shuffle_for(std::uint64_t epoch) {
  if (!order_.empty() && epoch == shuffled_epoch_) return;
  // From the same start every time, so that an epoch's order does not depend on the one before.
  order_ = shard_;
  // Workers and epochs are fewer than 2^32, so that no two share a stream.
  shuffle(order_, CounterRandom(seed_, kEpochDomain, worker_ << 32 | epoch));
  shuffled_epoch_ = epoch;
}

}  // namespace tersewire::trainer
