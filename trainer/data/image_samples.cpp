#include "trainer/data/image_samples.h"

#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tersewire::trainer {
namespace {

// MNIST's mean and deviation, which the embedded images are near enough to.
constexpr float kPixelMean = 0.1307F;
constexpr float kPixelDeviation = 0.3081F;

}  // namespace

ImageSamples::ImageSamples(Dataset images)
    : images_(std::move(images)),
      kind_{.shape = {1, images_.height, images_.width}, .classes = images_.classes} {}

void ImageSamples::append(std::size_t index, CounterRandom& /*draws*/, BatchMemory& batch) const {
  const auto image =
      std::span(images_.pixels).subspan(index * images_.image_bytes(), images_.image_bytes());
  for (const std::uint8_t pixel : image) {
    batch.values.push_back((static_cast<float>(pixel) / 255.0F - kPixelMean) / kPixelDeviation);
  }
  batch.labels.push_back(images_.labels[index]);
}

std::uint64_t ImageSamples::checksum() const {
  return XXH64(images_.labels.data(), images_.labels.size(),
               XXH64(images_.pixels.data(), images_.pixels.size(), 0));
}

}  // namespace tersewire::trainer
