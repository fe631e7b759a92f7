// Labelled images, where they come from, and who trains on which of them.
//
// Nothing here knows libtorch. A Dataset that nobody changes may be read by any number of threads;
// a BatchSampler belongs to one thread at a time. Everything is a pure function of its arguments:
// the same seed gives the same images and the same order on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tersewire::trainer {

// Images of one size with a class each. Image i is the image_bytes() from
// pixels[i * image_bytes()] on: a plane a channel (grey, or red, green and blue), each row by row.
// Of MNIST and its like, 0 is the background's end of the scale and 255 the ink's. Its class is
// labels[i], less than `classes`.
struct Dataset {
  int classes = 0;  // 2^16 at most
  int channels = 1;
  int height = 0;  // pixels
  int width = 0;   // pixels
  std::vector<std::uint8_t> pixels;
  std::vector<std::uint16_t> labels;

  [[nodiscard]] std::size_t size() const noexcept { return labels.size(); }
  // Bytes of one image.
  [[nodiscard]] std::size_t image_bytes() const noexcept {
    return static_cast<std::size_t>(channels) * static_cast<std::size_t>(height) *
           static_cast<std::size_t>(width);
  }
};

// How many images of the embedded set are for training, and how many for the test.
inline constexpr std::size_t kEmbeddedTrainImages = 20000;
inline constexpr std::size_t kEmbeddedTestImages = 4000;

// A run of positions in the shuffled training set.
struct Shard {
  std::size_t begin = 0;
  std::size_t end = 0;

  [[nodiscard]] std::size_t size() const noexcept { return end - begin; }
};

// Worker `worker`'s part of `images` shuffled images. The shards of all workers are disjoint, cover
// everything, and differ in size by one at most. Throws kInvalidArgument where there is no worker,
// or no worker of that number.
Shard shard_of(std::size_t images, std::size_t workers, std::size_t worker);

// The order in which one worker goes through its shard.
//
// The training set is shuffled once by the seed, so that a file sorted by class does no harm, and
// cut into shards; each worker then reshuffles its own shard for every epoch. A batch is always
// full: where an epoch ends in the middle of one, the next epoch's first images complete it, so
// that every image is used exactly once an epoch. Batch b is a pure function of the constructor's
// arguments and b.
class BatchSampler {
 public:
  //   images   size of the whole training set, below 2^32
  //   workers  how many share it; worker: which one this is, from 0
  //   batch    images a batch
  //   seed     the job's, the same for all workers
  // Throws kInvalidArgument where a number is 0 or out of range, or where the shard is smaller than
  // a batch. Cost: one pass over `images`; keeps 8 bytes an image of the shard.
  BatchSampler(std::size_t images, std::size_t workers, std::size_t worker, std::size_t batch,
               std::uint64_t seed);

  // Replaces `indices` by the next batch: indices into the whole training set.
  // Cost: one copy; at the start of an epoch one pass over the shard. Allocates only where
  // `indices` must grow.
  void next(std::vector<std::uint32_t>& indices);

  // Goes to where a sampler is that has given `batches` batches: all that resuming needs.
  // Throws kInvalidArgument from 2^32 on. Cost: none; the next next() may reshuffle.
  void seek(std::uint64_t batches);

  // Batches given so far.
  [[nodiscard]] std::uint64_t batches() const noexcept { return batches_; }
  // The epoch, from 0, that the next batch starts in.
  [[nodiscard]] std::uint64_t epoch() const noexcept;
  // Images in this worker's shard, which is also the images it uses in an epoch.
  [[nodiscard]] std::size_t shard_size() const noexcept { return shard_.size(); }

 private:
  void shuffle_for(std::uint64_t epoch);

  std::size_t batch_;
  std::uint64_t seed_;
  std::uint64_t worker_;
  std::uint64_t batches_ = 0;
  std::uint64_t shuffled_epoch_ = 0;
  std::vector<std::uint32_t> shard_;  // this worker's images
  std::vector<std::uint32_t> order_;  // the same in the order of shuffled_epoch_
};

// A counter-based generator (SplitMix64): draw d of a stream is a hash of (seed, domain, stream,
// d), so that no stream depends on another having been drawn. Integers, and single precision
// without contraction, so that every machine draws the same.
//   domain  keeps users apart that happen to share seed and stream; any constant
class CounterRandom {
 public:
  constexpr CounterRandom(std::uint64_t seed, std::uint64_t domain, std::uint64_t stream) noexcept
      : state_(mixed(mixed(mixed(seed + kStep) + domain * kStep) + stream * kStep)) {}

  // 64 random bits.
  constexpr std::uint64_t bits() noexcept { return mixed(state_ += kStep); }

  // Uniform in [0, 1), a multiple of 2^-24.
  constexpr float uniform() noexcept {
    return static_cast<float>(bits() >> 40) * (1.0F / 16777216.0F);
  }

  // Uniform in [low, high), up to rounding.
  constexpr float uniform(float low, float high) noexcept { return low + (high - low) * uniform(); }

  // Uniform in [0, count), up to a bias of count / 2^32. Requires 0 < count < 2^32.
  constexpr std::uint32_t below(std::uint64_t count) noexcept {
    return static_cast<std::uint32_t>(((bits() >> 32) * count) >> 32);
  }

 private:
  static constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15U;

  static constexpr std::uint64_t mixed(std::uint64_t z) noexcept {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }

  std::uint64_t state_;
};

}  // namespace tersewire::trainer
