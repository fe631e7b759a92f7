#include "trainer/data/samples.h"

namespace tersewire::trainer {
namespace {

constexpr std::uint64_t kAugmentDomain = 0x6175676D656E74;  // "augment"

}  // namespace

const Batch& BatchMaker::make(std::span<const std::uint32_t> indices, std::uint64_t number) {
  memory_.values.clear();
  memory_.tokens.clear();
  memory_.labels.clear();
  const std::uint64_t of_batch =
      CounterRandom(seed_, kAugmentDomain, worker_ << 40 | number).bits();
  for (std::size_t i = 0; i < indices.size(); ++i) {
    CounterRandom draws(of_batch, kAugmentDomain, i);
    samples_.append(indices[i], draws, memory_);
  }
  batch_ = {.samples = indices.size(),
            .shape = samples_.kind().shape,
            .values = memory_.values.data(),
            .tokens = memory_.tokens.data(),
            .labels = memory_.labels.data(),
            .label_count = memory_.labels.size()};
  return batch_;
}

}  // namespace tersewire::trainer
