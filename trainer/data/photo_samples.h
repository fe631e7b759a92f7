// Photographs of any size as samples of one, decoded when they are used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/data/augmentation.h"
#include "trainer/data/image_file.h"
#include "trainer/data/samples.h"

namespace tersewire::trainer {

// Pixels a side that networks for photographs take, and those of a photograph's shorter side before
// a part of that size is cut out of it.
inline constexpr int kPhotoSide = 224;
inline constexpr int kPhotoShorterSide = 256;

// One of many images, in a file of its own.
struct LabelledFile {
  std::string path;
  std::uint64_t bytes = 0;
  std::uint16_t label = 0;
};

// Reads and decodes a file. Throws as read_file() and decode_image() do.
PixelImage read_image(const LabelledFile& file, int channels);

// Whether a photograph can be used. Throws as PhotoSamples::append() does.
void check_photo(const LabelledFile& file);

// Photographs of any size, each read and decoded whenever it is used: so that its shorter side has
// kPhotoShorterSide pixels, and of that a square of kPhotoSide, in the centre or, with kCropFlip,
// anywhere, mirrored half the time.
class PhotoSamples final : public Samples {
 public:
  // Throws kInvalidArgument for another view.
  PhotoSamples(std::vector<LabelledFile> files, int classes, View view);

  [[nodiscard]] const SampleKind& kind() const noexcept override { return kind_; }
  [[nodiscard]] std::size_t size() const noexcept override { return files_.size(); }
  // Throws as decode_image() does, and kDataLoss for an image more than 32 times as long as wide.
  void append(std::size_t index, CounterRandom& draws, BatchMemory& batch) const override;
  // Of sizes and labels: reading all of ImageNet would take the better part of an hour.
  [[nodiscard]] std::uint64_t checksum() const override;

 private:
  std::vector<LabelledFile> files_;
  View view_;
  PixelValues value_of_{kImageNetNormalization};
  SampleKind kind_;
};

// Makes an image larger or smaller. Every pixel is a mean of those that it covers, weighted by a
// triangle as wide as two pixels of the coarser image.
PixelImage resized(const PixelImage& image, int height, int width);

}  // namespace tersewire::trainer
