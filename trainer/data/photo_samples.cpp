#include "trainer/data/photo_samples.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tersewire/error.h"
#include "trainer/data/data_files.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tersewire::trainer {
namespace {

constexpr int kMaxAspect = 32;

// What one pixel of a resized line is made of.
struct Taps {
  int first = 0;
  std::vector<float> weights;
};

// For each pixel of a line that shall have `to` pixels and has `from`.
std::vector<Taps> taps_of(int from, int to) {
  std::vector<Taps> all(static_cast<std::size_t>(to));
  const float scale = static_cast<float>(from) / static_cast<float>(to);
  const float reach = std::max(1.0F, scale);
  for (int i = 0; i < to; ++i) {
    Taps& taps = all[static_cast<std::size_t>(i)];
    const float centre = (static_cast<float>(i) + 0.5F) * scale - 0.5F;
    taps.first = std::max(0, static_cast<int>(std::ceil(centre - reach)));
    const int last = std::min(from - 1, static_cast<int>(std::floor(centre + reach)));
    float sum = 0;
    for (int at = taps.first; at <= last; ++at) {
      taps.weights.push_back(1 - std::abs(static_cast<float>(at) - centre) / reach);
      sum += taps.weights.back();
    }
    for (float& weight : taps.weights) weight /= sum;
  }
  return all;
}

// The values of a line lie `step` apart.
float weighted(const Taps& taps, const float* line, std::ptrdiff_t step) {
  float sum = 0;
  const float* value = line + taps.first * step;
  for (const float weight : taps.weights) {
    sum += weight * *value;
    value += step;
  }
  return sum;
}

void append_resized_plane(const std::uint8_t* plane, int from_width, const std::vector<Taps>& rows,
                          const std::vector<Taps>& columns, int from_height,
                          std::vector<std::uint8_t>& pixels) {
  const std::size_t width = columns.size();
  std::vector<float> line(static_cast<std::size_t>(from_width));
  std::vector<float> narrowed(static_cast<std::size_t>(from_height) * width);
  float* to = narrowed.data();
  for (int y = 0; y < from_height; ++y, plane += from_width) {
    std::copy_n(plane, from_width, line.begin());
    for (const Taps& taps : columns) *to++ = weighted(taps, line.data(), 1);
  }
  for (const Taps& taps : rows) {
    for (std::size_t x = 0; x < width; ++x) {
      const float value = weighted(taps, narrowed.data() + x, static_cast<std::ptrdiff_t>(width));
      pixels.push_back(static_cast<std::uint8_t>(std::lround(std::clamp(value, 0.0F, 255.0F))));
    }
  }
}

// Refuses what scaled would be much longer than wide.
PixelImage read_photo(const LabelledFile& file) {
  PixelImage image = read_image(file, 3);
  const auto [shorter, longer] = std::minmax(image.height, image.width);
  if (longer > kMaxAspect * shorter) {
    refuse_file(file.path, "an image of " + std::to_string(image.width) + " x " +
                               std::to_string(image.height) + " pixels is more than " +
                               std::to_string(kMaxAspect) +
                               " times as long as it is wide; crop or remove it");
  }
  return image;
}

// So that the shorter side has kPhotoShorterSide pixels.
PixelImage with_shorter_side(const PixelImage& image) {
  const int shorter = std::min(image.height, image.width);
  const auto scaled = [&](int side) { return (side * kPhotoShorterSide + shorter / 2) / shorter; };
  return resized(image, scaled(image.height), scaled(image.width));
}

Crop photo_crop(const PixelImage& image, View view, CounterRandom& draws) {
  const int spare_rows = image.height - kPhotoSide;
  const int spare_columns = image.width - kPhotoSide;
  Crop crop{
      .top = spare_rows / 2, .left = spare_columns / 2, .height = kPhotoSide, .width = kPhotoSide};
  if (view == View::kWhole) return crop;
  crop.top = static_cast<int>(draws.below(static_cast<std::uint64_t>(spare_rows) + 1));
  crop.left = static_cast<int>(draws.below(static_cast<std::uint64_t>(spare_columns) + 1));
  crop.mirrored = draws.below(2) == 1;
  return crop;
}

}  // namespace

PixelImage read_image(const LabelledFile& file, int channels) {
  return decode_image(read_file(file.path, kMaxImageFileBytes), channels, file.path);
}

void check_photo(const LabelledFile& file) { read_photo(file); }

PhotoSamples::PhotoSamples(std::vector<LabelledFile> files, int classes, View view)
    : files_(std::move(files)),
      view_(view),
      kind_{.shape = {3, kPhotoSide, kPhotoSide}, .classes = classes} {
  if (view == View::kWhole || view == View::kCropFlip) return;
  throw Error(ErrorCode::kInvalidArgument,
              "the augmentation cifarnet is not for photographs; use none or crop-flip");
}

void PhotoSamples::append(std::size_t index, CounterRandom& draws, BatchMemory& batch) const {
  const LabelledFile& file = files_[index];
  const PixelImage image = with_shorter_side(read_photo(file));
  append_crop(image.view(), photo_crop(image, view_, draws), value_of_, batch.values);
  batch.labels.push_back(file.label);
}

std::uint64_t PhotoSamples::checksum() const {
  std::vector<std::uint64_t> facts;
  for (const LabelledFile& file : files_) facts.insert(facts.end(), {file.bytes, file.label});
  return XXH64(facts.data(), facts.size() * sizeof(facts[0]), 0);
}

PixelImage resized(const PixelImage& image, int height, int width) {
  PixelImage result{.channels = image.channels, .height = height, .width = width, .pixels = {}};
  const std::vector<Taps> rows = taps_of(image.height, height);
  const std::vector<Taps> columns = taps_of(image.width, width);
  const std::size_t plane =
      static_cast<std::size_t>(image.height) * static_cast<std::size_t>(image.width);
  for (int channel = 0; channel < image.channels; ++channel) {
    append_resized_plane(image.pixels.data() + static_cast<std::size_t>(channel) * plane,
                         image.width, rows, columns, image.height, result.pixels);
  }
  return result;
}

}  // namespace tersewire::trainer
