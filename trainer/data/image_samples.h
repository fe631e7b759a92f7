// Images of a data set as samples.
#pragma once

#include "trainer/data/samples.h"

namespace tersewire::trainer {

// Greyscale images of one channel, normalized by MNIST's mean and deviation.
class ImageSamples final : public Samples {
 public:
  explicit ImageSamples(Dataset images);

  [[nodiscard]] const SampleKind& kind() const noexcept override { return kind_; }
  [[nodiscard]] std::size_t size() const noexcept override { return images_.size(); }
  void append(std::size_t index, CounterRandom& draws, BatchMemory& batch) const override;
  [[nodiscard]] std::uint64_t checksum() const override;

  [[nodiscard]] const Dataset& images() const noexcept { return images_; }

 private:
  Dataset images_;
  SampleKind kind_;
};

}  // namespace tersewire::trainer
