#include "trainer/data/image_file.h"

#include <png.h>
#include <turbojpeg.h>

#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <type_traits>

#include "tersewire/error.h"
#include "trainer/data/data_files.h"

namespace tersewire::trainer {
namespace {

constexpr std::array<std::uint8_t, 3> kJpegStart = {0xFF, 0xD8, 0xFF};
constexpr std::array<std::uint8_t, 8> kPngStart = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};

bool starts_with(std::span<const std::uint8_t> file, std::span<const std::uint8_t> start) {
  return file.size() >= start.size() && std::ranges::equal(file.first(start.size()), start);
}

// Pixel by pixel, as the libraries give them.
struct Interleaved {
  int components = 0;
  int height = 0;
  int width = 0;
  std::vector<std::uint8_t> bytes;
};

// Memory for an image of this size, once it is known to be one that may be believed.
Interleaved allocate(std::int64_t height, std::int64_t width, int components,
                     const std::string& name) {
  const bool fits = height > 0 && width > 0 && height <= kMaxImageSide && width <= kMaxImageSide &&
                    static_cast<std::size_t>(height * width) <= kMaxImagePixels;
  if (!fits) {
    refuse_file(name, "an image of " + std::to_string(width) + " x " + std::to_string(height) +
                          " pixels is more than the limit of " + std::to_string(kMaxImageSide) +
                          " pixels a side and " + std::to_string(kMaxImagePixels) +
                          " in total; give a smaller one");
  }
  Interleaved image{.components = components,
                    .height = static_cast<int>(height),
                    .width = static_cast<int>(width),
                    .bytes = {}};
  image.bytes.resize(static_cast<std::size_t>(height * width * components));
  return image;
}

struct DestroyDecoder {
  void operator()(void* decoder) const noexcept { tjDestroy(decoder); }
};

// Red, green and blue of the colours of print, which JPEG files hold inverted.
void make_rgb(Interleaved& image) {
  std::uint8_t* to = image.bytes.data();
  for (const std::uint8_t* from = to; to < image.bytes.data() + image.bytes.size() / 4 * 3;
       from += 4) {
    const int black = from[3];
    for (int i = 0; i < 3; ++i) *to++ = static_cast<std::uint8_t>(from[i] * black / 255);
  }
  image.bytes.resize(image.bytes.size() / 4 * 3);
  image.components = 3;
}

Interleaved decode_jpeg(std::span<const std::uint8_t> file, int channels, const std::string& name) {
  const std::unique_ptr<void, DestroyDecoder> decoder(tjInitDecompress());
  if (!decoder) throw std::bad_alloc();
  const auto refuse = [&] {
    refuse_file(name, "the JPEG cannot be decoded (" + std::string(tjGetErrorStr2(decoder.get())) +
                          "); fetch the file again");
  };
  int width = 0;
  int height = 0;
  int subsampling = 0;
  int colours = 0;
  if (tjDecompressHeader3(decoder.get(), file.data(), file.size(), &width, &height, &subsampling,
                          &colours) != 0) {
    refuse();
  }
  const bool printed = colours == TJCS_CMYK || colours == TJCS_YCCK;
  if (printed && channels == 1) {
    refuse_file(name, "a CMYK JPEG cannot be read as greyscale; convert it first");
  }
  Interleaved image = allocate(height, width, printed ? 4 : channels, name);
  const int format = printed ? TJPF_CMYK : channels == 1 ? TJPF_GRAY : TJPF_RGB;
  // A file may hold any number of scans of one image, each as slow as the first.
  constexpr int kFlags = TJFLAG_ACCURATEDCT | TJFLAG_STOPONWARNING | TJFLAG_LIMITSCANS;
  if (tjDecompress2(decoder.get(), file.data(), file.size(), image.bytes.data(), width, 0, height,
                    format, kFlags) != 0) {
    refuse();
  }
  if (printed) make_rgb(image);
  return image;
}

Interleaved decode_png(std::span<const std::uint8_t> file, int channels, const std::string& name) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  const auto free_png = [](png_image* image) { png_image_free(image); };
  const std::unique_ptr<png_image, decltype(free_png)> holder(&png, free_png);
  const auto refuse = [&] {
    refuse_file(
        name, "the PNG cannot be decoded (" + std::string(png.message) + "); fetch the file again");
  };
  if (png_image_begin_read_from_memory(&png, file.data(), file.size()) == 0) refuse();
  png.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  Interleaved image = allocate(png.height, png.width, channels, name);
  const png_color black{};
  if (png_image_finish_read(&png, &black, image.bytes.data(), 0, nullptr) == 0) refuse();
  return image;
}

PixelImage planes_of(const Interleaved& image) {
  PixelImage planes{.channels = image.components,
                    .height = image.height,
                    .width = image.width,
                    .pixels = std::vector<std::uint8_t>(image.bytes.size())};
  const auto channels = static_cast<std::size_t>(image.components);
  std::uint8_t* to = planes.pixels.data();
  for (std::size_t channel = 0; channel < channels; ++channel) {
    for (std::size_t i = channel; i < image.bytes.size(); i += channels) *to++ = image.bytes[i];
  }
  return planes;
}

}  // namespace

bool can_decode_images() noexcept { return true; }

PixelImage decode_image(std::span<const std::uint8_t> file, int channels, const std::string& name) {
  if (starts_with(file, kJpegStart)) return planes_of(decode_jpeg(file, channels, name));
  if (starts_with(file, kPngStart)) return planes_of(decode_png(file, channels, name));
  refuse_file(name, "this is neither a JPEG nor a PNG file; give one of these");
}

}  // namespace tersewire::trainer
