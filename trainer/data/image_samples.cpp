#include "trainer/data/image_samples.h"

#include <memory>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tersewire::trainer {

ImageSamples::ImageSamples(Dataset images, const Normalization& normalization, View view)
    : images_(std::move(images)),
      value_of_(normalization),
      view_(view),
      kind_{.shape = {images_.channels, shown_side(view, images_.height),
                      shown_side(view, images_.width)},
            .classes = images_.classes} {}

void ImageSamples::append(std::size_t index, CounterRandom& draws, BatchMemory& batch) const {
  const Image image{.channels = images_.channels,
                    .height = images_.height,
                    .width = images_.width,
                    .pixels = images_.pixels.data() + index * images_.image_bytes()};
  append_view(image, view_, value_of_, draws, batch.values);
  batch.labels.push_back(images_.labels[index]);
}

std::uint64_t ImageSamples::checksum() const {
  return XXH64(images_.labels.data(), images_.labels.size() * sizeof(images_.labels[0]),
               XXH64(images_.pixels.data(), images_.pixels.size(), 0));
}

DataSplits splits_of(Dataset train, Dataset test, const Normalization& normalization,
                     const Augmentation& augmentation, const std::string& name) {
  return {
      .train = std::make_shared<ImageSamples>(std::move(train), normalization, augmentation.train),
      .test = std::make_shared<ImageSamples>(std::move(test), normalization, augmentation.test),
      .name = name};
}

}  // namespace tersewire::trainer
