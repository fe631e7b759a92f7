// First passes over whole tensors and buckets: the blocks of kernels/surveys.h put together, on the
// pool where there is one. The sums do not depend on the threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "partition.h"
#include "shape.h"
#include "surveys.h"

namespace tersewire {

// What the blocks of a tensor or a bucket come to.
struct Survey {
  std::uint32_t largest_bits = 0;
  std::uint64_t count = 0;
  double first = 0;
  double second = 0;

  void add(const kernels::BlockSurvey& block) {
    largest_bits = std::max(largest_bits, block.largest_bits);
    count += block.count;
    first += block.first;
    second += block.second;
  }
};

// Calls survey_block(begin, n), which returns a kernels::BlockSurvey of n values from `begin` on,
// for the blocks of values [begin, end).
template <typename SurveyBlock>
Survey survey_range(std::size_t begin, std::size_t end, const SurveyBlock& survey_block) {
  Survey survey;
  for (std::size_t at = begin; at < end; at += kernels::kSumBlockElems) {
    survey.add(survey_block(at, std::min(kernels::kSumBlockElems, end - at)));
  }
  return survey;
}

// Surveys with several threads. Keeps the blocks' results, 24 bytes each 4096 values; allocates
// only when it is made.
class BlockSums {
 public:
  // For tensors of up to `elems` values.
  explicit BlockSums(std::size_t elems) : blocks_(divide_up(elems, kernels::kSumBlockElems)) {}

  // As survey_range() does.
  template <typename SurveyBlock>
  Survey survey(std::size_t begin, std::size_t end, ThreadPool* pool,
                const SurveyBlock& survey_block) {
    constexpr std::size_t kBlock = kernels::kSumBlockElems;
    const std::size_t count = divide_up(end - begin, kBlock);
    const auto parts = Partition::of(count, kMinPartBlocks, pool);
    run_parts(pool, parts.count(), [&](std::size_t part) {
      for (std::size_t i = parts.begin(part); i < parts.end(part); ++i) {
        const std::size_t at = begin + i * kBlock;
        blocks_[i] = survey_block(at, std::min(kBlock, end - at));
      }
    });
    Survey survey;
    for (std::size_t i = 0; i < count; ++i) survey.add(blocks_[i]);
    return survey;
  }

  // Surveys each bucket of `bucket` values of a tensor of `elems` and calls use(index, survey) for
  // it, from any thread and in any order. Returns the largest bits of all.
  template <typename SurveyBlock, typename Use>
  std::uint32_t survey_buckets(std::size_t elems, std::size_t bucket, ThreadPool* pool,
                               const SurveyBlock& survey_block, const Use& use);

 private:
  // Fewer are not worth a thread.
  static constexpr std::size_t kMinPartBlocks = 16;

  std::vector<kernels::BlockSurvey> blocks_;
};

template <typename SurveyBlock, typename Use>
std::uint32_t BlockSums::survey_buckets(std::size_t elems, std::size_t bucket, ThreadPool* pool,
                                        const SurveyBlock& survey_block, const Use& use) {
  constexpr std::size_t kPartElems = kMinPartBlocks * kernels::kSumBlockElems;
  const std::size_t buckets = divide_up(elems, bucket);
  const auto end_of = [&](std::size_t i) {
    return elems - i * bucket < bucket ? elems : (i + 1) * bucket;
  };
  std::uint32_t largest_bits = 0;
  if (bucket >= kPartElems) {
    for (std::size_t i = 0; i < buckets; ++i) {
      const Survey found = survey(i * bucket, end_of(i), pool, survey_block);
      largest_bits = std::max(largest_bits, found.largest_bits);
      use(i, found);
    }
    return largest_bits;
  }
  std::atomic<std::uint32_t> largest{0};
  const auto parts = Partition::of(buckets, kPartElems / bucket, pool);
  run_parts(pool, parts.count(), [&](std::size_t part) {
    std::uint32_t bits = 0;
    for (std::size_t i = parts.begin(part); i < parts.end(part); ++i) {
      const Survey found = survey_range(i * bucket, end_of(i), survey_block);
      bits = std::max(bits, found.largest_bits);
      use(i, found);
    }
    raise_to(largest, bits);
  });
  return largest.load();
}

}  // namespace tersewire
