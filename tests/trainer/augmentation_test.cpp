// How images are shown: crops, padding, mirroring, contrast, and that it all repeats.
#include "trainer/data/augmentation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "data_test_support.h"

namespace tersewire::trainer {
namespace {

using Floats = std::vector<float>;

// Value of a pixel: the pixel itself.
const PixelValues& as_bytes() {
  static const PixelValues values({{0, 0, 0}, {1.0F / 255, 1.0F / 255, 1.0F / 255}});
  return values;
}

Floats crop_of(const ByteVector& pixels, int channels, int height, int width, const Crop& crop) {
  Floats values;
  append_crop({channels, height, width, pixels.data()}, crop, as_bytes(), values);
  for (float& value : values) value = std::round(value);
  return values;
}

TEST(AppendCrop, TakesPartsMirrorsAndPads) {
  const ByteVector pixels = {1,  2,  3,  //
                             4,  5,  6,  //
                             11, 12, 13, 14, 15, 16};
  EXPECT_EQ(crop_of(pixels, 2, 2, 3, {0, 0, 2, 3, false}),
            (Floats{1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16}));
  EXPECT_EQ(crop_of(pixels, 2, 2, 3, {0, 0, 2, 3, true}),
            (Floats{3, 2, 1, 6, 5, 4, 13, 12, 11, 16, 15, 14}));
  EXPECT_EQ(crop_of(pixels, 2, 2, 3, {1, 1, 1, 2, false}), (Floats{5, 6, 15, 16}));
  EXPECT_EQ(crop_of(pixels, 1, 2, 3, {-1, -1, 2, 3, false}), (Floats{0, 0, 0, 0, 1, 2}));
  EXPECT_EQ(crop_of(pixels, 1, 2, 3, {-1, -1, 2, 3, true}), (Floats{0, 0, 0, 2, 1, 0}));
  EXPECT_EQ(crop_of(pixels, 1, 2, 3, {1, 2, 2, 3, false}), (Floats{6, 0, 0, 0, 0, 0}));
  EXPECT_EQ(crop_of(pixels, 1, 2, 3, {1, 2, 2, 3, true}), (Floats{0, 0, 6, 0, 0, 0}));
  EXPECT_EQ(crop_of(pixels, 1, 2, 3, {5, 5, 1, 1, false}), (Floats{0}));
}

TEST(AppendCrop, Appends) {
  Floats values = {7};
  const ByteVector pixels = {255};
  append_crop({1, 1, 1, pixels.data()}, {0, 0, 1, 1, false}, PixelValues({{0}, {1}}), values);
  EXPECT_EQ(values, (Floats{7, 1}));
}

// Where each pixel of a 32 x 32 image can be recognised: planes of rows, columns, and ones.
ByteVector rows_and_columns() {
  ByteVector pixels(3072, 1);
  for (std::size_t i = 0; i < 1024; ++i) {
    pixels[i] = static_cast<std::uint8_t>(1 + i / 32);
    pixels[1024 + i] = static_cast<std::uint8_t>(1 + i % 32);
  }
  return pixels;
}

Floats shown(View view, const ByteVector& pixels, std::uint64_t stream,
             const PixelValues& values_of = as_bytes()) {
  CounterRandom draws(5, 1, stream);
  Floats values;
  append_view({3, 32, 32, pixels.data()}, view, values_of, draws, values);
  return values;
}

struct Place {
  int top;
  int left;
  bool mirrored;
};

// Where a crop of rows_and_columns() came from, by its centre, which is never padding.
Place place_of(const Floats& values) {
  const int row = static_cast<int>(std::round(values[16 * 32 + 16])) - 1;
  const int column = static_cast<int>(std::round(values[1024 + 16 * 32 + 16])) - 1;
  const bool mirrored = values[1024 + 16 * 32 + 17] < values[1024 + 16 * 32 + 16];
  return {row - 16, mirrored ? column - 15 : column - 16, mirrored};
}

TEST(CropFlip, ReachesEveryOffsetAndMirrorsHalfTheTime) {
  const ByteVector pixels = rows_and_columns();
  std::map<std::pair<int, int>, int> places;
  int mirrored = 0;
  constexpr int kDraws = 8100;
  for (std::uint64_t stream = 0; stream < kDraws; ++stream) {
    const Place place = place_of(shown(View::kCropFlip, pixels, stream));
    ++places[{place.top, place.left}];
    mirrored += place.mirrored ? 1 : 0;
  }
  EXPECT_EQ(places.size(), 81U);
  for (const auto& [place, count] : places) {
    EXPECT_LE(std::abs(place.first), kPaddingPixels);
    EXPECT_LE(std::abs(place.second), kPaddingPixels);
    EXPECT_NEAR(count, 100, 50);  // five standard deviations
  }
  EXPECT_NEAR(mirrored, 0.5 * kDraws, 5 * 45);
}

TEST(CropFlip, IsTheImageMovedAndMirroredOverPaddingThatIsNormalizedZero) {
  const ByteVector pixels = rows_and_columns();
  const PixelValues normalized(kCifar10Normalization);
  for (std::uint64_t stream = 0; stream < 200; ++stream) {
    const Place place = place_of(shown(View::kCropFlip, pixels, stream));
    const Floats values = shown(View::kCropFlip, pixels, stream, normalized);
    ASSERT_EQ(values.size(), 3072U);
    for (int i = 0; i < 3072; ++i) {
      const int channel = i / 1024;
      const int row = i % 1024 / 32 + place.top;
      const int column = (place.mirrored ? 31 - i % 32 : i % 32) + place.left;
      const bool inside = row >= 0 && row < 32 && column >= 0 && column < 32;
      const int at = 1024 * channel + 32 * row + column;
      ASSERT_EQ(values[static_cast<std::size_t>(i)],
                inside ? normalized(channel, pixels[static_cast<std::size_t>(at)]) : 0)
          << "stream " << stream << ", value " << i;
    }
  }
}

Floats channel_of(const Floats& values, std::size_t channel) {
  const auto first = values.begin() + static_cast<std::ptrdiff_t>(channel * 576);
  return {first, first + 576};
}

double mean_of(const Floats& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double deviation_of(const Floats& values) {
  const double mean = mean_of(values);
  double squares = 0;
  for (const float value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size()));
}

// Noise, so that channels are alike but for their brightness.
ByteVector noise() {
  ByteVector pixels(3072);
  CounterRandom draws(1, 2, 3);
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = static_cast<std::uint8_t>(60 * (i / 1024) + draws.below(60));
  }
  return pixels;
}

TEST(CifarNet, IsStandardized) {
  for (const View view : {View::kCifarNet, View::kCifarNetCentre}) {
    for (std::uint64_t stream = 0; stream < 50; ++stream) {
      const Floats values = shown(view, noise(), stream);
      ASSERT_EQ(values.size(), 3U * 24 * 24);
      EXPECT_NEAR(mean_of(values), 0, 1e-6);
      EXPECT_NEAR(deviation_of(values), 1, 1e-6);
    }
  }
}

TEST(CifarNet, OneColourIsNotDividedByNothing) {
  for (const View view : {View::kCifarNet, View::kCifarNetCentre}) {
    EXPECT_EQ(shown(view, ByteVector(3072, 200), 1), Floats(1728, 0.0F));
  }
}

// Two pixels that can be told from all others after any contrast.
ByteVector two_marks() {
  ByteVector pixels(3072, 10);
  pixels[16 * 32 + 16] = 250;
  pixels[16 * 32 + 17] = 130;
  return pixels;
}

TEST(CifarNet, ReachesEveryOffsetAndMirrorsHalfTheTime) {
  std::set<std::pair<long, long>> places;
  int mirrored = 0;
  constexpr int kDraws = 4000;
  for (std::uint64_t stream = 0; stream < kDraws; ++stream) {
    const Floats red = channel_of(shown(View::kCifarNet, two_marks(), stream), 0);
    const auto mark = std::ranges::max_element(red);
    const bool is_mirrored = *(mark - 1) > *(mark + 1);
    const long at = mark - red.begin();
    const long column = is_mirrored ? 23 - at % 24 : at % 24;
    places.insert({16 - at / 24, 16 - column});
    mirrored += is_mirrored ? 1 : 0;
  }
  EXPECT_EQ(places.size(), 81U);
  EXPECT_EQ(*places.begin(), (std::pair<long, long>{0, 0}));
  EXPECT_EQ(*places.rbegin(), (std::pair<long, long>{8, 8}));
  EXPECT_NEAR(mirrored, 0.5 * kDraws, 5 * 32);
}

TEST(CifarNet, TestShowsTheCentre) {
  const Floats red = channel_of(shown(View::kCifarNetCentre, two_marks(), 1), 0);
  EXPECT_EQ(std::ranges::max_element(red) - red.begin(), 12 * 24 + 12);
  EXPECT_GT(red[12 * 24 + 13], red[12 * 24 + 11]);
  EXPECT_EQ(shown(View::kCifarNetCentre, noise(), 1), shown(View::kCifarNetCentre, noise(), 2));
}

// A channel's deviation, in units of the distance between two channels' means: what
// standardization leaves of contrast.
double contrast_of(const Floats& values, std::size_t channel) {
  return deviation_of(channel_of(values, channel)) /
         (mean_of(channel_of(values, 2)) - mean_of(channel_of(values, 0)));
}

TEST(CifarNet, ContrastIsOneFactorForAllChannels) {
  const Floats plain = shown(View::kCifarNetCentre, noise(), 0);
  double least = 9;
  double most = 0;
  for (std::uint64_t stream = 0; stream < 300; ++stream) {
    const Floats values = shown(View::kCifarNet, noise(), stream);
    const double red = contrast_of(values, 0) / contrast_of(plain, 0);
    EXPECT_NEAR(contrast_of(values, 1) / contrast_of(plain, 1), red, 0.1 * red);
    least = std::min(least, red);
    most = std::max(most, red);
  }
  EXPECT_NEAR(least, 0.2, 0.05);
  EXPECT_NEAR(most, 1.8, 0.15);
}

// The definition, in double precision, for a crop and a factor that are given.
std::vector<double> defined(const ByteVector& pixels, int top, int left, bool mirrored,
                            double factor) {
  std::vector<double> values;
  for (int channel = 0; channel < 3; ++channel) {
    const std::size_t begin = values.size();
    double sum = 0;
    for (int i = 0; i < 576; ++i) {
      const int column = left + (mirrored ? 23 - i % 24 : i % 24);
      const int at = 1024 * channel + 32 * (top + i / 24) + column;
      values.push_back(pixels[static_cast<std::size_t>(at)]);
      sum += values.back();
    }
    for (std::size_t i = begin; i < values.size(); ++i) {
      values[i] = (values[i] - sum / 576) * factor + sum / 576;
    }
  }
  double sum = 0;
  double squares = 0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  const double mean = sum / 1728;
  for (double& value : values) value = (value - mean) / std::sqrt(squares / 1728 - mean * mean);
  return values;
}

TEST(CifarNet, ValuesAreThoseOfTheDefinition) {
  const ByteVector pixels = noise();
  for (std::uint64_t stream = 0; stream < 20; ++stream) {
    CounterRandom draws(5, 1, stream);
    const auto top = static_cast<int>(draws.below(9));
    const auto left = static_cast<int>(draws.below(9));
    const bool mirrored = draws.below(2) == 1;
    const auto expected = defined(pixels, top, left, mirrored, draws.uniform(0.2F, 1.8F));
    const Floats values = shown(View::kCifarNet, pixels, stream);
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], expected[i], 1e-4) << i;
  }
  const auto expected = defined(pixels, 4, 4, false, 1);
  const Floats values = shown(View::kCifarNetCentre, pixels, 0);
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], expected[i], 1e-4) << i;
}

// Why brightness is not varied.
TEST(CifarNet, BrightnessMakesNoDifference) {
  ByteVector brighter = noise();
  for (std::uint8_t& pixel : brighter) pixel = static_cast<std::uint8_t>(pixel + 63);
  for (std::uint64_t stream = 0; stream < 20; ++stream) {
    const Floats values = shown(View::kCifarNet, noise(), stream);
    const Floats others = shown(View::kCifarNet, brighter, stream);
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], others[i], 1e-5);
  }
}

TEST(CifarNet, SmallImagesAreRefused) {
  const Dataset images{
      .classes = 1, .height = 32, .width = 23, .pixels = ByteVector(736), .labels = {0}};
  for (const View view : {View::kCifarNet, View::kCifarNetCentre}) {
    expect_error(ErrorCode::kInvalidArgument, "these images have 23",
                 [&] { ImageSamples(images, kMnistNormalization, view); });
  }
}

TEST(AugmentationOf, NamesChooseViews) {
  EXPECT_EQ(augmentation_of("none").train, View::kWhole);
  EXPECT_EQ(augmentation_of("none").test, View::kWhole);
  EXPECT_EQ(augmentation_of("crop-flip").train, View::kCropFlip);
  EXPECT_EQ(augmentation_of("crop-flip").test, View::kWhole);
  EXPECT_EQ(augmentation_of("cifarnet").train, View::kCifarNet);
  EXPECT_EQ(augmentation_of("cifarnet").test, View::kCifarNetCentre);
  expect_error(ErrorCode::kInvalidArgument, "'flip'; use none, crop-flip or cifarnet",
               [] { augmentation_of("flip"); });
}

// Eight images of noise.
ImageSamples noisy_samples(View view) {
  Dataset images{.classes = 8,
                 .channels = 3,
                 .height = 32,
                 .width = 32,
                 .pixels = {},
                 .labels = {0, 1, 2, 3, 4, 5, 6, 7}};
  images.pixels.resize(std::size_t{8} * 3072);
  CounterRandom draws(4, 2, 0);
  for (std::uint8_t& pixel : images.pixels) pixel = static_cast<std::uint8_t>(draws.below(256));
  return ImageSamples(images, kCifar10Normalization, view);
}

Floats batch_of(const Samples& samples, std::uint64_t seed, std::uint64_t worker,
                std::uint64_t number) {
  BatchMaker batches(samples, seed, worker);
  const std::vector<std::uint32_t> indices = {3, 3, 5};
  const Batch& batch = batches.make(indices, number);
  const auto elems = static_cast<std::size_t>(std::accumulate(
      batch.shape.begin(), batch.shape.end(), std::int64_t{3}, std::multiplies<>()));
  return {batch.values, batch.values + elems};
}

TEST(Augmentation, DependsOnSeedWorkerBatchAndPlaceAlone) {
  for (const View view : {View::kCropFlip, View::kCifarNet}) {
    const ImageSamples samples = noisy_samples(view);
    const Floats values = batch_of(samples, 1, 2, 3);
    EXPECT_EQ(batch_of(samples, 1, 2, 3), values);
    EXPECT_NE(batch_of(samples, 2, 2, 3), values);
    EXPECT_NE(batch_of(samples, 1, 3, 3), values);
    EXPECT_NE(batch_of(samples, 1, 2, 4), values);
    const auto third = static_cast<std::ptrdiff_t>(values.size() / 3);
    EXPECT_FALSE(std::equal(values.begin(), values.begin() + third, values.begin() + third))
        << "the same image twice in a batch was varied alike";
  }
}

TEST(Augmentation, ShapesAreThoseOfTheViews) {
  EXPECT_EQ(noisy_samples(View::kWhole).kind(), (SampleKind{{3, 32, 32}, 8, false}));
  EXPECT_EQ(noisy_samples(View::kCropFlip).kind(), (SampleKind{{3, 32, 32}, 8, false}));
  EXPECT_EQ(noisy_samples(View::kCifarNet).kind(), (SampleKind{{3, 24, 24}, 8, false}));
  EXPECT_EQ(noisy_samples(View::kCifarNetCentre).kind(), (SampleKind{{3, 24, 24}, 8, false}));
}

}  // namespace
}  // namespace tersewire::trainer
