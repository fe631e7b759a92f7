// The embedded digits as samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "trainer/data/augmentation.h"
#include "trainer/data/samples.h"

namespace tersewire::trainer {

// Images first ... first + count - 1 of the set that `seed` names, as one View shows them. Each is
// drawn when it is first asked for, so that a short run does not wait for all.
class StrokeSamples final : public Samples {
 public:
  // Throws kInvalidArgument where the images are too small for the view. Cost: none but memory.
  StrokeSamples(std::uint64_t seed, std::size_t first, std::size_t count, View view);

  [[nodiscard]] const SampleKind& kind() const noexcept override { return kind_; }
  [[nodiscard]] std::size_t size() const noexcept override { return count_; }
  void append(std::size_t index, CounterRandom& draws, BatchMemory& batch) const override;
  // Of what decides about every image.
  [[nodiscard]] std::uint64_t checksum() const override;

 private:
  std::uint64_t seed_;
  std::size_t first_;
  std::size_t count_;
  View view_;
  PixelValues value_of_;
  SampleKind kind_;
  // By image; those that are there when it has been drawn.
  std::unique_ptr<std::once_flag[]> drawn_;
  std::unique_ptr<std::uint8_t[]> pixels_;
  std::unique_ptr<std::uint16_t[]> labels_;
};

}  // namespace tersewire::trainer
