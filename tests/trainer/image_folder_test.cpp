// Image files, directories of them by class, and photographs cut to size.
#include "trainer/data/image_folder.h"

#include <zlib.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "data_test_support.h"
#include "trainer/data/data_files.h"

namespace tersewire::trainer {
namespace {

namespace fs = std::filesystem;

ByteVector stored(const std::string& name) {
  const fs::path corpus = fs::path(TERSEWIRE_SOURCE_DIR) / "fuzz/corpus/image_file";
  return read_file((corpus / name).string(), 1 << 20);
}

void append_u32(ByteVector& bytes, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<std::uint8_t>(value >> shift));
  }
}

void append_chunk(ByteVector& file, std::string_view type, const ByteVector& payload) {
  append_u32(file, static_cast<std::uint32_t>(payload.size()));
  const std::size_t from = file.size();
  file.insert(file.end(), type.begin(), type.end());
  file.insert(file.end(), payload.begin(), payload.end());
  append_u32(file, static_cast<std::uint32_t>(
                       crc32(0, file.data() + from, static_cast<uInt>(file.size() - from))));
}

// As PNG numbers them.
enum Colours : std::uint8_t { kGrey = 0, kRgb = 2, kPalette = 3, kGreyAlpha = 4, kRgba = 6 };

using Chunk = std::pair<std::string_view, ByteVector>;

// A PNG file of rows of equal length, with more chunks before its pixels.
ByteVector png_of(std::uint32_t width, std::uint32_t height, int depth, Colours colours,
                  const ByteVector& pixels, const std::vector<Chunk>& chunks = {}) {
  ByteVector rows;
  const std::size_t row_bytes = pixels.size() / height;
  for (std::uint32_t y = 0; y < height; ++y) {
    rows.push_back(0);  // not filtered
    const auto row = pixels.begin() + static_cast<std::ptrdiff_t>(row_bytes * y);
    rows.insert(rows.end(), row, row + static_cast<std::ptrdiff_t>(row_bytes));
  }
  uLongf bytes = compressBound(rows.size());
  ByteVector compressed(bytes);
  EXPECT_EQ(compress(compressed.data(), &bytes, rows.data(), rows.size()), Z_OK);
  compressed.resize(bytes);
  ByteVector header;
  append_u32(header, width);
  append_u32(header, height);
  header.insert(header.end(), {static_cast<std::uint8_t>(depth), colours, 0, 0, 0});
  ByteVector file = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  append_chunk(file, "IHDR", header);
  for (const auto& [type, payload] : chunks) append_chunk(file, type, payload);
  append_chunk(file, "IDAT", compressed);
  append_chunk(file, "IEND", {});
  return file;
}

// A PNG file of red, green and blue bytes, pixel by pixel.
ByteVector png(std::uint32_t width, std::uint32_t height, const ByteVector& pixels) {
  return png_of(width, height, 8, kRgb, pixels);
}

// All of one colour.
ByteVector plain_png(std::uint32_t width, std::uint32_t height, std::uint8_t grey) {
  return png(width, height, ByteVector(std::size_t{3} * width * height, grey));
}

class ImageFolders : public DataFiles {
 protected:
  // Two classes, three images for training and two for the test, of 4 x 2.
  void write_good_set() {
    write("train/cat/2.png", plain_png(4, 2, 20));
    write("train/cat/10.PNG", plain_png(4, 2, 10));
    write("train/ape/x.png", plain_png(4, 2, 30));
    write("test/cat/a.png", plain_png(4, 2, 40));
    write("test/ape/a.png", plain_png(4, 2, 50));
    write("train/cat/notes.txt", {'h', 'i'});
    write("train/readme.txt", {'h', 'i'});
  }

  DataSplits load(const std::vector<std::int64_t>& takes = {}, const std::string& augment = "none",
                  bool skip_unreadable = false) {
    return load_data(dir_.string(), 1, augment, takes, skip_unreadable);
  }
};

class Images : public ImageFolders {
 protected:
  void SetUp() override {
    if (!can_decode_images()) GTEST_SKIP() << "this build cannot decode images";
    ImageFolders::SetUp();
  }
};

TEST_F(ImageFolders, AreRefusedByABuildThatCannotDecode) {
  if (can_decode_images()) GTEST_SKIP() << "this build can decode images";
  write_good_set();
  expect_load_error(ErrorCode::kUnimplemented, "this build cannot decode images");
}

TEST_F(Images, PngsDecodeToPlanes) {
  const ByteVector pixels = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18};
  const PixelImage image = decode_image(png(3, 2, pixels), 3, "x");
  EXPECT_EQ(image.channels, 3);
  EXPECT_EQ(image.height, 2);
  EXPECT_EQ(image.width, 3);
  EXPECT_EQ(image.pixels,
            (ByteVector{1, 4, 7, 10, 13, 16, 2, 5, 8, 11, 14, 17, 3, 6, 9, 12, 15, 18}));
}

// Of 16 x 8 pixels, the left half of one colour and the right of another; a decoder's rounding and
// JPEG's losses aside.
void expect_halves(const PixelImage& image, const ByteVector& left, const ByteVector& right,
                   int tolerance) {
  ASSERT_EQ(image.height, 8);
  ASSERT_EQ(image.width, 16);
  ASSERT_EQ(image.channels, static_cast<int>(left.size()));
  for (std::size_t channel = 0; channel < left.size(); ++channel) {
    for (std::size_t at = 0; at < 128; ++at) {
      const int expected = at % 16 < 8 ? left[channel] : right[channel];
      ASSERT_NEAR(image.pixels[128 * channel + at], expected, tolerance)
          << "channel " << channel << ", pixel " << at;
    }
  }
}

TEST_F(Images, EveryKindOfFileDecodes) {
  const ByteVector red = {200, 40, 40};
  const ByteVector blue = {30, 60, 180};
  expect_halves(decode_image(stored("two_colours.png"), 3, "x"), red, blue, 0);
  expect_halves(decode_image(stored("two_colours.jpg"), 3, "x"), red, blue, 6);
  expect_halves(decode_image(stored("progressive.jpg"), 3, "x"), red, blue, 6);
  expect_halves(decode_image(stored("print.jpg"), 3, "x"), red, blue, 6);
  expect_halves(decode_image(stored("grey.jpg"), 3, "x"), {88, 88, 88}, {65, 65, 65}, 4);
  expect_halves(decode_image(stored("grey.jpg"), 1, "x"), {88}, {65}, 4);
  expect_halves(decode_image(stored("two_colours.jpg"), 1, "x"), {88}, {65}, 4);
  expect_halves(decode_image(stored("print.jpg"), 1, "x"), {88}, {65}, 4);
  EXPECT_EQ(decode_image(stored("sixteen_bits.png"), 1, "x").pixels.size(), 6U);
}

// Of one row; expected values are Pillow's: Image.open(FILE).convert("RGB" or "L").
ByteVector row_of(const ByteVector& file, int channels = 3) {
  const PixelImage image = decode_image(file, channels, "x");
  ByteVector pixels;
  const auto width = static_cast<std::size_t>(image.width);
  for (std::size_t x = 0; x < width; ++x) {
    for (std::size_t at = x; at < image.pixels.size(); at += width) {
      pixels.push_back(image.pixels[at]);
    }
  }
  return pixels;
}

const ByteVector kTwoColours = {200, 40, 40, 30, 60, 180};
const Chunk kLinear = {"gAMA", {0, 1, 0x86, 0xA0}};

TEST_F(Images, Colours_of_16_bits_are_their_upper_8) {
  const ByteVector pixels = {0x12, 0x34, 0x80, 0xFF, 0xFF, 0xFF,
                             0x00, 0xFF, 0x01, 0x00, 0x7F, 0x80};
  EXPECT_EQ(row_of(png_of(2, 1, 16, kRgb, pixels)), (ByteVector{18, 128, 255, 0, 1, 127}));
  EXPECT_EQ(row_of(png_of(2, 1, 16, kRgb, pixels, {kLinear})),
            (ByteVector{18, 128, 255, 0, 1, 127}));
  EXPECT_EQ(row_of(png_of(2, 1, 16, kRgb, pixels), 1), (ByteVector{110, 15}));
  EXPECT_EQ(row_of(png_of(1, 1, 16, kRgba, {0x12, 0x34, 0x80, 0xFF, 0, 0xFF, 0, 0})),
            (ByteVector{18, 128, 0}));
}

TEST_F(Images, Greys_of_16_bits_are_their_upper_8) {
  const ByteVector pixels = {0x12, 0x34, 0x80, 0xFF, 0x00, 0xFF};
  EXPECT_EQ(row_of(png_of(3, 1, 16, kGrey, pixels), 1), (ByteVector{18, 128, 0}));
  EXPECT_EQ(row_of(png_of(3, 1, 16, kGrey, pixels, {kLinear}), 3),
            (ByteVector{18, 18, 18, 128, 128, 128, 0, 0, 0}));
  EXPECT_EQ(row_of(png_of(2, 1, 16, kGreyAlpha, {0x12, 0x34, 0x80, 0, 0x80, 0xFF, 0, 0}), 1),
            (ByteVector{18, 128}));
}

TEST_F(Images, Gamma_and_chromaticities_change_no_value) {
  const Chunk primaries = {"cHRM", ByteVector(32, 0x30)};
  EXPECT_EQ(row_of(png_of(2, 1, 8, kRgb, kTwoColours, {kLinear})), kTwoColours);
  EXPECT_EQ(row_of(png_of(2, 1, 8, kRgb, kTwoColours, {kLinear, primaries}), 1),
            (ByteVector{88, 65}));
  EXPECT_EQ(row_of(png_of(4, 1, 8, kGrey, {0, 17, 136, 255}, {kLinear}), 1),
            (ByteVector{0, 17, 136, 255}));
}

TEST_F(Images, Transparent_pixels_keep_their_colour) {
  EXPECT_EQ(row_of(png_of(2, 1, 8, kRgba, {200, 40, 40, 0, 30, 60, 180, 128})), kTwoColours);
  EXPECT_EQ(row_of(png_of(2, 1, 8, kGreyAlpha, {200, 0, 30, 128}), 1), (ByteVector{200, 30}));
  EXPECT_EQ(row_of(png_of(2, 1, 8, kRgb, kTwoColours, {{"tRNS", {0, 200, 0, 40, 0, 40}}})),
            kTwoColours);
  EXPECT_EQ(row_of(png_of(2, 1, 8, kPalette, {0, 1}, {{"PLTE", kTwoColours}, {"tRNS", {0, 128}}})),
            kTwoColours);
  EXPECT_EQ(row_of(stored("half_transparent.png")).front(), 200);
}

TEST_F(Images, Few_bits_are_spread_over_8) {
  EXPECT_EQ(row_of(png_of(4, 1, 4, kGrey, {0x01, 0x8F}), 1), (ByteVector{0, 17, 136, 255}));
  EXPECT_EQ(row_of(png_of(4, 1, 2, kGrey, {0x1B}), 1), (ByteVector{0, 85, 170, 255}));
  EXPECT_EQ(row_of(png_of(4, 1, 1, kGrey, {0xA0}), 1), (ByteVector{255, 0, 255, 0}));
}

ByteVector with(ByteVector file, std::ptrdiff_t at, const ByteVector& inserted) {
  file.insert(at < 0 ? file.end() + at : file.begin() + at, inserted.begin(), inserted.end());
  return file;
}

TEST_F(Images, A_jpeg_with_stray_bytes_decodes_as_without_them) {
  const ByteVector whole = stored("two_colours.jpg");
  const PixelImage expected = decode_image(whole, 3, "x");
  EXPECT_EQ(decode_image(with(whole, -2, {0, 0, 0, 0, 0}), 3, "x").pixels, expected.pixels);
  EXPECT_EQ(decode_image(with(whole, 2, {0, 1, 2}), 3, "x").pixels, expected.pixels);
  EXPECT_EQ(
      decode_image(with(whole, static_cast<std::ptrdiff_t>(whole.size()), {7, 7}), 3, "x").pixels,
      expected.pixels);
}

// Which the decoder reports as a warning, too.
TEST_F(Images, A_jpeg_with_an_error_after_a_warning_is_refused) {
  const ByteVector whole = stored("progressive.jpg");
  const ByteVector scan = {0xFF, 0xDA};
  const auto last = std::ranges::find_end(whole, scan).begin() - whole.begin();
  ByteVector stray_and_bad_table = {0, 1, 0xFF, 0xC4, 0, 19, 0};
  stray_and_bad_table.insert(stray_and_bad_table.end(), 16, 0xFF);
  expect_error(ErrorCode::kDataLoss, "x: the JPEG cannot be decoded (",
               [&] { decode_image(with(whole, last, stray_and_bad_table), 3, "x"); });
  EXPECT_NO_THROW(decode_image(with(whole, last, {0, 1}), 3, "x"));
}

TEST_F(Images, A_file_without_its_end_marker_decodes) {
  ByteVector jpeg = stored("two_colours.jpg");
  const PixelImage expected = decode_image(jpeg, 3, "x");
  jpeg.resize(jpeg.size() - 2);
  EXPECT_EQ(decode_image(jpeg, 3, "x").pixels, expected.pixels);
  ByteVector image = png(2, 1, kTwoColours);
  image.resize(image.size() - 12);
  EXPECT_EQ(row_of(image), kTwoColours);
}

TEST_F(Images, WhatIsNoImageIsRefused) {
  const auto refused = [](const std::string& name, const std::string& part, int channels = 3) {
    expect_error(ErrorCode::kDataLoss, name + ": " + part,
                 [&] { decode_image(stored(name), channels, name); });
  };
  refused("empty", "this is neither");
  refused("other", "this is neither");
  refused("cut.jpg", "the JPEG cannot be decoded");
  refused("header_alone.jpg", "the JPEG cannot be decoded");
  refused("cut.png", "the PNG cannot be decoded");
  refused("huge.jpg", "an image of 65000 x 65000 pixels is more");
  refused("huge.png", "an image of 60000 x 60000 pixels is more");
}

TEST_F(Images, EveryTruncationIsRefusedOrDecodesWhole) {
  for (const char* name : {"two_colours.jpg", "two_colours.png"}) {
    const ByteVector whole = stored(name);
    // The last bytes only say that this is the end.
    for (std::size_t bytes = 0; bytes + 16 < whole.size(); ++bytes) {
      EXPECT_THROW(decode_image(std::span(whole).first(bytes), 3, name), Error) << bytes;
    }
  }
}

TEST_F(Images, FolderLoadsInTheOrderOfNames) {
  write_good_set();
  const DataSplits splits = load();
  EXPECT_EQ(splits.name, dir_.string());
  EXPECT_EQ(splits.train->kind(), (SampleKind{{3, 2, 4}, 2, false}));
  EXPECT_EQ(splits.test->kind(), splits.train->kind());
  const Dataset& train = images_of(splits.train);
  EXPECT_EQ(train.labels, (Labels{0, 1, 1}));
  EXPECT_EQ(train.pixels[0], 30);
  EXPECT_EQ(train.pixels[24], 10);
  EXPECT_EQ(train.pixels[48], 20);
  EXPECT_EQ(images_of(splits.test).labels, (Labels{0, 1}));
}

TEST_F(Images, ValIsTheTestWhereThereIsNoOther) {
  write_good_set();
  fs::rename(dir_ / "test", dir_ / "val");
  EXPECT_EQ(load().test->size(), 2U);
  fs::remove_all(dir_ / "val");
  expect_load_error(ErrorCode::kNotFound, "/val: put the test images into");
}

TEST_F(Images, GreyNetworksGetOneChannel) {
  write_good_set();
  const DataSplits splits = load({1, 28, 28});
  EXPECT_EQ(splits.train->kind(), (SampleKind{{1, 2, 4}, 2, false}));
  EXPECT_EQ(images_of(splits.train).pixels[0], 30);
}

TEST_F(Images, ImagesOfMixedSizesAreRefused) {
  write_good_set();
  write("train/cat/3.png", plain_png(2, 4, 0));
  expect_load_error(ErrorCode::kDataLoss,
                    "train/cat/3.png: it has 2 x 4 pixels, but the images before it have 4 x 2");
  fs::remove(dir_ / "train/cat/3.png");
  write("test/cat/b.png", plain_png(4, 3, 0));
  expect_load_error(ErrorCode::kDataLoss, "test/cat/b.png: it has 4 x 3 pixels");
}

class Unreadable : public Images {
 protected:
  // Beside five good ones.
  void write_bad_images() {
    write_good_set();
    write("train/ape/0.jpg", stored("cut.jpg"));
    write("test/ape/b.png", stored("cut.png"));
    write("test/cat/b.png", {'G', 'I', 'F', '8'});
  }
  static const std::vector<std::int64_t> kWhole;
  static const std::vector<std::int64_t> kPhoto;
};
const std::vector<std::int64_t> Unreadable::kWhole = {3, 2, 4};
const std::vector<std::int64_t> Unreadable::kPhoto = {3, 224, 224};

TEST_F(Unreadable, Images_are_all_named_before_the_first_step) {
  write_bad_images();
  for (const auto& takes : {kWhole, kPhoto}) {
    try {
      load(takes);
      FAIL() << "it was loaded";
    } catch (const Error& error) {
      const std::string said = error.what();
      EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
      EXPECT_TRUE(said.starts_with("3 of 8 images cannot be read: ")) << said;
      EXPECT_NE(said.find("train/ape/0.jpg: the JPEG cannot be decoded ("), said.npos) << said;
      EXPECT_NE(said.find("test/ape/b.png: the PNG cannot be decoded ("), said.npos) << said;
      EXPECT_NE(said.find("test/cat/b.png: this is neither a JPEG nor a PNG file; replace"),
                said.npos)
          << said;
      EXPECT_TRUE(said.ends_with("or leave them out with --skip-unreadable")) << said;
    }
  }
}

TEST_F(Unreadable, Photographs_that_are_too_long_are_named_too) {
  write_good_set();
  write("train/ape/x.png", plain_png(330, 10, 51));
  expect_error(ErrorCode::kDataLoss, "x.png: an image of 330 x 10 pixels is more than 32 times",
               [&] { load(kPhoto); });
}

TEST_F(Unreadable, Images_are_left_out_where_that_is_asked_for) {
  write_bad_images();
  for (const auto& takes : {kWhole, kPhoto}) {
    const DataSplits splits = load(takes, "none", true);
    EXPECT_EQ(splits.train->size(), 3U);
    EXPECT_EQ(splits.test->size(), 2U);
    EXPECT_EQ(splits.unreadable.size(), 3U);
  }
  EXPECT_EQ(images_of(load(kWhole, "none", true).train).pixels[0], 30);
}

TEST_F(Unreadable, Class_with_no_other_image_is_refused) {
  write_good_set();
  write("train/ape/x.png", stored("cut.png"));
  for (const auto& takes : {kWhole, kPhoto}) {
    expect_error(ErrorCode::kDataLoss, "train/ape: none of its images can be read",
                 [&] { load(takes, "none", true); });
  }
}

TEST_F(ImageFolders, Skipping_is_refused_for_other_data) {
  expect_error(ErrorCode::kInvalidArgument, "--skip-unreadable is for directories of images",
               [] { load_data("embedded", 1, "none", {}, true); });
}

TEST_F(Images, What_systems_leave_behind_is_no_image_and_no_class) {
  write_good_set();
  const std::uint64_t clean = load().train->checksum();
  write("train/cat/._2.png", {'M', 'a', 'c'});
  write("train/cat/Thumbs.db", {'W'});
  write("train/.ipynb_checkpoints/2.png", plain_png(4, 2, 9));
  write("train/__MACOSX/cat/._2.png", {'M', 'a', 'c'});
  write("test/.DS_Store", {'M', 'a', 'c'});
  write("test/.ipynb_checkpoints/2.png", plain_png(4, 2, 9));
  const DataSplits splits = load();
  EXPECT_EQ(splits.train->checksum(), clean);
  EXPECT_EQ(splits.train->kind().classes, 2);
  EXPECT_EQ(splits.test->size(), 2U);
}

TEST_F(Images, Val_is_the_test_where_test_has_no_labels) {
  write_good_set();
  fs::rename(dir_ / "test", dir_ / "val");
  write("test/1.png", plain_png(4, 2, 0));
  write("test/2.png", plain_png(4, 2, 0));
  EXPECT_EQ(load().test->size(), 2U);
  fs::remove_all(dir_ / "val");
  expect_load_error(ErrorCode::kDataLoss, "/test: it holds no class directory; put its images");
}

TEST_F(ImageFolders, One_level_too_deep_is_said) {
  write_good_set();
  fs::create_directories(dir_ / "outer");
  for (const char* part : {"train", "test"}) fs::rename(dir_ / part, dir_ / "outer" / part);
  expect_load_error(ErrorCode::kNotFound, "one level deeper; name " + (dir_ / "outer").string());
}

TEST_F(ImageFolders, Classes_one_level_too_deep_are_said) {
  write_good_set();
  fs::create_directories(dir_ / "train/images");
  for (const char* name : {"cat", "ape"}) {
    fs::rename(dir_ / "train" / name, dir_ / "train/images" / name);
  }
  expect_load_error(ErrorCode::kDataLoss,
                    "train/images: it holds no .jpg, .jpeg or .png file itself, but in directories "
                    "such as ape, one level too deep");
  for (const char* name : {"cat", "ape"}) {
    fs::rename(dir_ / "train/images" / name, dir_ / "train" / name);
  }
  fs::remove(dir_ / "train/images");
  fs::rename(dir_ / "test", dir_ / "images");
  fs::create_directories(dir_ / "test");
  fs::rename(dir_ / "images", dir_ / "test/images");
  expect_load_error(ErrorCode::kDataLoss,
                    "test/images: it holds no .jpg, .jpeg or .png file itself");
}

TEST_F(ImageFolders, ClassesAreChecked) {
  write_good_set();
  write("test/dog/a.png", plain_png(4, 2, 0));
  expect_load_error(ErrorCode::kDataLoss, "test/dog: the training images have no such class");
  fs::remove_all(dir_ / "test/dog");
  fs::create_directories(dir_ / "train/bee");
  expect_load_error(ErrorCode::kDataLoss, "train/bee: it holds no .jpg, .jpeg or .png");
  fs::remove_all(dir_ / "train/bee");
  fs::remove_all(dir_ / "train/ape");
  expect_load_error(ErrorCode::kDataLoss, "train: it holds 1 class directory; there must be");
  fs::remove_all(dir_ / "train/cat");
  expect_load_error(ErrorCode::kDataLoss, "train: it holds 0 class directories");
}

TEST_F(ImageFolders, AnEmptyTestIsRefused) {
  write_good_set();
  fs::remove_all(dir_ / "test/cat");
  fs::remove_all(dir_ / "test/ape");
  expect_load_error(ErrorCode::kDataLoss, "test: it holds no class directory");
}

TEST_F(Images, AFileThatCannotBeReadIsNamed) {
  write_good_set();
  const std::string path = (dir_ / "train/cat/2.png").string();
  fs::resize_file(path, kMaxImageFileBytes + 1);
  expect_load_error(ErrorCode::kDataLoss, path + ": it has 67108865 bytes");
  expect_error(ErrorCode::kNotFound, "nowhere.png cannot be opened",
               [&] { read_image({.path = (dir_ / "nowhere.png").string()}, 3); });
}

// Values of one photograph.
std::vector<float> shown(const Samples& samples, std::uint64_t number = 0) {
  BatchMaker batches(samples, 1, 0);
  const std::uint32_t index = 0;
  const Batch& batch = batches.make({&index, 1}, number);
  return {batch.values, batch.values + std::ptrdiff_t{3} * kPhotoSide * kPhotoSide};
}

TEST_F(Images, PhotographsOfAnySizeAreCutOut) {
  write_good_set();
  write("train/ape/x.png", plain_png(300, 100, 51));
  write("train/cat/2.png", stored("two_colours.jpg"));  // whatever it is called
  const DataSplits splits = load({3, 224, 224});
  EXPECT_EQ(splits.train->kind(), (SampleKind{{3, 224, 224}, 2, false}));
  EXPECT_EQ(splits.train->size(), 3U);
  const std::vector<float> values = shown(*splits.train);
  const PixelValues normalized(kImageNetNormalization);
  EXPECT_EQ(values.front(), normalized(0, 51));
  EXPECT_EQ(values.back(), normalized(2, 51));
  EXPECT_EQ(shown(*splits.train, 1), values);
}

TEST_F(Images, PhotographsAreCroppedAnywhereAndMirrored) {
  write_good_set();
  // Brightness tells the column.
  ByteVector pixels;
  for (int i = 0; i < 256 * 256; ++i) pixels.insert(pixels.end(), 3, static_cast<std::uint8_t>(i));
  write("train/ape/x.png", png(256, 256, pixels));
  const DataSplits splits = load({3, 224, 224}, "crop-flip");
  const PixelValues normalized(kImageNetNormalization);
  std::set<int> offsets;
  int mirrored = 0;
  constexpr int kDraws = 60;
  for (std::uint64_t number = 0; number < kDraws; ++number) {
    const std::vector<float> values = shown(*splits.train, number);
    const bool is_mirrored = values[0] > values[223];
    const float first = std::min(values[0], values[223]);
    int offset = 0;
    while (normalized(0, static_cast<std::uint8_t>(offset)) < first) ++offset;
    EXPECT_EQ(normalized(0, static_cast<std::uint8_t>(offset + 223)),
              std::max(values[0], values[223]));
    offsets.insert(offset);
    mirrored += is_mirrored ? 1 : 0;
  }
  EXPECT_GT(offsets.size(), 20U);
  EXPECT_LE(*offsets.rbegin(), 32);
  EXPECT_NEAR(mirrored, 0.5 * kDraws, 5 * 4);
  EXPECT_EQ(shown(*splits.train, 7), shown(*splits.train, 7));
  expect_error(ErrorCode::kInvalidArgument, "not for photographs", [&] {
    load({3, 224, 224}, "cifarnet");
  });
}

TEST(Resized, IsAMeanWeightedByATriangle) {
  const PixelImage image{.channels = 1, .height = 1, .width = 4, .pixels = {0, 100, 200, 40}};
  EXPECT_EQ(resized(image, 1, 4).pixels, image.pixels);
  // Each pixel reaches two to either side of its centre, at 0.5 and 2.5:
  // (0.75 * 0 + 0.75 * 100 + 0.25 * 200) / 1.75, (0.25 * 100 + 0.75 * 200 + 0.75 * 40) / 1.75.
  EXPECT_EQ(resized(image, 1, 2).pixels, (ByteVector{71, 117}));
  // Made larger, values between neighbours; beyond the border there is nothing to mix with.
  EXPECT_EQ(resized(image, 1, 8).pixels, (ByteVector{0, 25, 75, 125, 175, 160, 80, 40}));
  // Both ways, plane by plane.
  const PixelImage two{.channels = 2, .height = 2, .width = 2, .pixels = {0, 4, 8, 12, 9, 9, 9, 9}};
  EXPECT_EQ(resized(two, 1, 1).pixels, (ByteVector{6, 9}));
  const PixelImage back = resized(two, 3, 5);
  EXPECT_EQ(back.height, 3);
  EXPECT_EQ(back.width, 5);
  EXPECT_EQ(back.pixels.size(), 30U);
}

}  // namespace
}  // namespace tersewire::trainer
