// Images of a data set as samples.
#pragma once

#include "trainer/data/augmentation.h"
#include "trainer/data/samples.h"

namespace tersewire::trainer {

// Images in memory, normalized, as one View shows them.
class ImageSamples final : public Samples {
 public:
  // Throws kInvalidArgument where the images are too small for the view. `images` is as Dataset
  // says, with one or three channels.
  explicit ImageSamples(Dataset images, const Normalization& normalization = kMnistNormalization,
                        View view = View::kWhole);

  [[nodiscard]] const SampleKind& kind() const noexcept override { return kind_; }
  [[nodiscard]] std::size_t size() const noexcept override { return images_.size(); }
  void append(std::size_t index, CounterRandom& draws, BatchMemory& batch) const override;
  [[nodiscard]] std::uint64_t checksum() const override;

  [[nodiscard]] const Dataset& images() const noexcept { return images_; }

 private:
  Dataset images_;
  PixelValues value_of_;
  View view_;
  SampleKind kind_;
};

// What to learn from and what to test with, each shown as `augmentation` says.
DataSplits splits_of(Dataset train, Dataset test, const Normalization& normalization,
                     const Augmentation& augmentation, const std::string& name);

}  // namespace tersewire::trainer
