// How an image becomes the values that a network takes: a part of it, mirrored or not, normalized.
//
// Functions here have no state: any thread. What is random comes from a CounterRandom, so that the
// same draws give the same values, bit for bit, on every machine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/dataset.h"

namespace tersewire::trainer {

// Ways to show an image.
enum class View : std::uint8_t {
  kWhole,
  // He et al. (2015), which 3LC trains with (section 4): 4 pixels of padding on each side, a random
  // crop of the image's own size, mirrored half the time. The padding is the mean colour, 0 after
  // normalization.
  kCropFlip,
  // CifarNet, as TensorFlow's CIFAR-10 tutorial trained it and TernGrad after that: a random crop
  // of 24 x 24, mirrored half the time, with the contrast of each channel multiplied by a factor of
  // 0.2 to 1.8, then standardized: mean 0 and deviation 1 over the whole crop. The tutorial also
  // moved the brightness of the whole crop, which its standardization takes away again to the last
  // rounding; this does not.
  kCifarNet,
  // The same in the test: the crop in the centre, standardized.
  kCifarNetCentre,
};

inline constexpr int kPaddingPixels = 4;  // of kCropFlip
inline constexpr int kCifarNetSide = 24;  // pixels

// How the images to learn from are shown, and those of the test.
struct Augmentation {
  View train = View::kWhole;
  View test = View::kWhole;
};

// By name: none, crop-flip, cifarnet. Throws kInvalidArgument, listing these, for another.
Augmentation augmentation_of(const std::string& name);

// A channel's mean and deviation, where a pixel is from 0 to 1. Greyscale images have the first
// channel alone.
struct Normalization {
  std::array<float, 3> mean{};
  std::array<float, 3> deviation{};
};

// Those of the training sets: of MNIST, which the embedded digits are near enough to, ...
inline constexpr Normalization kMnistNormalization{{0.1307F}, {0.3081F}};
// ... of CIFAR-10. He et al. subtract a mean of each pixel instead; these hardly differ from pixel
// to pixel, and a constant for each channel needs no pass over the data.
inline constexpr Normalization kCifar10Normalization{{0.4914F, 0.4822F, 0.4465F},
                                                     {0.2470F, 0.2435F, 0.2616F}};
// ... and of ImageNet.
inline constexpr Normalization kImageNetNormalization{{0.485F, 0.456F, 0.406F},
                                                      {0.229F, 0.224F, 0.225F}};

// What a pixel of each channel is worth to a network.
class PixelValues {
 public:
  // (pixel / 255 - mean) / deviation.
  explicit PixelValues(const Normalization& normalization);

  float operator()(int channel, std::uint8_t pixel) const {
    return values_[static_cast<std::size_t>(channel)][pixel];
  }

 private:
  std::array<std::array<float, 256>, 3> values_{};
};

// One image: planes of height * width bytes, a plane a channel, row by row.
struct Image {
  int channels = 0;
  int height = 0;
  int width = 0;
  const std::uint8_t* pixels = nullptr;
};

// A part of an image, which may lie partly outside of it.
struct Crop {
  int top = 0;
  int left = 0;
  int height = 0;
  int width = 0;
  bool mirrored = false;  // left and right exchanged
};

// Appends a crop of an image, a plane a channel. What lies outside of the image is 0.
void append_crop(const Image& image, const Crop& crop, const PixelValues& value_of,
                 std::vector<float>& values);

// The height or width, in pixels, that a view shows of an image with `side`. Throws
// kInvalidArgument where the view needs more.
int shown_side(View view, int side);

// Appends an image as `view` shows it. Requires sides that shown_side() takes. Cost: a microsecond
// a thousand values, CifarNet's a few.
void append_view(const Image& image, View view, const PixelValues& value_of, CounterRandom& draws,
                 std::vector<float>& values);

}  // namespace tersewire::trainer
