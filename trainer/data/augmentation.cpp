#include "trainer/data/augmentation.h"

#include <algorithm>
#include <cmath>

#include "tersewire/error.h"

namespace tersewire::trainer {
namespace {

constexpr float kLeastContrast = 0.2F;
constexpr float kMostContrast = 1.8F;

// Pixels as they are; what is standardized needs no other normalization.
constexpr Normalization kAsBytes{{0, 0, 0}, {1.0F / 255, 1.0F / 255, 1.0F / 255}};

// Uniform among the places where a crop of `crop` pixels fits into `side`.
int random_offset(int side, int crop, CounterRandom& draws) {
  return static_cast<int>(draws.below(static_cast<std::uint64_t>(side - crop) + 1));
}

Crop whole(const Image& image) {
  return {.top = 0, .left = 0, .height = image.height, .width = image.width, .mirrored = false};
}

Crop padded_crop(const Image& image, CounterRandom& draws) {
  Crop crop = whole(image);
  crop.top = random_offset(image.height + 2 * kPaddingPixels, image.height, draws) - kPaddingPixels;
  crop.left = random_offset(image.width + 2 * kPaddingPixels, image.width, draws) - kPaddingPixels;
  crop.mirrored = draws.below(2) == 1;
  return crop;
}

Crop cifarnet_crop(const Image& image, CounterRandom& draws) {
  Crop crop{.top = 0, .left = 0, .height = kCifarNetSide, .width = kCifarNetSide};
  crop.top = random_offset(image.height, crop.height, draws);
  crop.left = random_offset(image.width, crop.width, draws);
  crop.mirrored = draws.below(2) == 1;
  return crop;
}

Crop centre_crop(const Image& image) {
  return {.top = (image.height - kCifarNetSide) / 2,
          .left = (image.width - kCifarNetSide) / 2,
          .height = kCifarNetSide,
          .width = kCifarNetSide,
          .mirrored = false};
}

double mean_of(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// Moves every value away from, or towards, their mean.
void multiply_contrast(std::span<float> values, float factor) {
  const auto mean = static_cast<float>(mean_of(values));
  for (float& value : values) value = (value - mean) * factor + mean;
}

void standardize(std::span<float> values) {
  const double mean = mean_of(values);
  double squares = 0;
  for (const float value : values) squares += (value - mean) * (value - mean);
  const auto count = static_cast<double>(values.size());
  // As in the tutorial: an image of one colour must not be divided by nothing.
  const double deviation = std::max(std::sqrt(squares / count), 1 / std::sqrt(count));
  for (float& value : values) value = static_cast<float>((value - mean) / deviation);
}

void append_cifarnet(const Image& image, CounterRandom& draws, std::vector<float>& values) {
  static const PixelValues as_bytes(kAsBytes);
  const std::size_t begin = values.size();
  append_crop(image, cifarnet_crop(image, draws), as_bytes, values);
  const auto shown = std::span(values).subspan(begin);
  // One factor for all channels, each around its own mean.
  const float factor = draws.uniform(kLeastContrast, kMostContrast);
  constexpr std::size_t kPlane = std::size_t{kCifarNetSide} * kCifarNetSide;
  for (std::size_t at = 0; at < shown.size(); at += kPlane) {
    multiply_contrast(shown.subspan(at, kPlane), factor);
  }
  standardize(shown);
}

void append_cifarnet_centre(const Image& image, std::vector<float>& values) {
  static const PixelValues as_bytes(kAsBytes);
  const std::size_t begin = values.size();
  append_crop(image, centre_crop(image), as_bytes, values);
  standardize(std::span(values).subspan(begin));
}

}  // namespace

Augmentation augmentation_of(const std::string& name) {
  if (name == "none") return {.train = View::kWhole, .test = View::kWhole};
  if (name == "crop-flip") return {.train = View::kCropFlip, .test = View::kWhole};
  if (name == "cifarnet") return {.train = View::kCifarNet, .test = View::kCifarNetCentre};
  throw Error(ErrorCode::kInvalidArgument,
              "unknown augmentation '" + name + "'; use none, crop-flip or cifarnet");
}

PixelValues::PixelValues(const Normalization& normalization) {
  for (std::size_t channel = 0; channel < values_.size(); ++channel) {
    // A channel that images do not have.
    if (normalization.deviation[channel] == 0) continue;
    for (std::size_t pixel = 0; pixel < 256; ++pixel) {
      values_[channel][pixel] = (static_cast<float>(pixel) / 255.0F - normalization.mean[channel]) /
                                normalization.deviation[channel];
    }
  }
}

void append_crop(const Image& image, const Crop& crop, const PixelValues& value_of,
                 std::vector<float>& values) {
  const std::size_t begin = values.size();
  values.resize(begin + static_cast<std::size_t>(image.channels) *
                            static_cast<std::size_t>(crop.height) *
                            static_cast<std::size_t>(crop.width));
  // The columns of the image that the crop shows.
  const int first = std::max(0, crop.left);
  const int last = std::min(image.width, crop.left + crop.width);
  const int step = crop.mirrored ? -1 : 1;
  const int place = crop.mirrored ? crop.width - 1 - (first - crop.left) : first - crop.left;
  float* row = values.data() + begin;
  for (int channel = 0; channel < image.channels; ++channel) {
    for (int y = crop.top; y < crop.top + crop.height; ++y, row += crop.width) {
      if (y < 0 || y >= image.height) continue;
      const std::uint8_t* pixels =
          image.pixels + (static_cast<std::ptrdiff_t>(channel) * image.height + y) * image.width;
      for (int x = first, to = place; x < last; ++x, to += step) {
        row[to] = value_of(channel, pixels[x]);
      }
    }
  }
}

int shown_side(View view, int side) {
  if (view == View::kWhole || view == View::kCropFlip) return side;
  if (side >= kCifarNetSide) return kCifarNetSide;
  throw Error(ErrorCode::kInvalidArgument,
              "the augmentation cifarnet crops to " + std::to_string(kCifarNetSide) +
                  " pixels a side, but these images have " + std::to_string(side) +
                  "; use another augmentation or larger images");
}

void append_view(const Image& image, View view, const PixelValues& value_of, CounterRandom& draws,
                 std::vector<float>& values) {
  switch (view) {
    case View::kWhole:
      return append_crop(image, whole(image), value_of, values);
    case View::kCropFlip:
      return append_crop(image, padded_crop(image, draws), value_of, values);
    case View::kCifarNet:
      return append_cifarnet(image, draws, values);
    case View::kCifarNetCentre:
      return append_cifarnet_centre(image, values);
  }
}

}  // namespace tersewire::trainer
