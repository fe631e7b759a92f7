#include "trainer/data/image_file.h"

#include <png.h>
#include <turbojpeg.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <memory>
#include <new>

#include "tersewire/error.h"
#include "trainer/data/data_files.h"

namespace tersewire::trainer {
namespace {

constexpr std::array<std::uint8_t, 2> kJpegStart = {0xFF, 0xD8};
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

// 255 times 255 is 255.
int product(int a, int b) {
  const int doubled = a * b + 128;
  return ((doubled >> 8) + doubled) >> 8;
}

// Red, green and blue of the colours of print, which JPEG files hold inverted.
void make_rgb(Interleaved& image) {
  std::uint8_t* to = image.bytes.data();
  for (const std::uint8_t* from = to; to < image.bytes.data() + image.bytes.size() / 4 * 3;
       from += 4) {
    const int black = from[3];
    for (int i = 0; i < 3; ++i) {
      *to++ = static_cast<std::uint8_t>(black - product(255 - from[i], black));
    }
  }
  image.bytes.resize(image.bytes.size() / 4 * 3);
  image.components = 3;
}

// The grey of red, green and blue by ITU-R BT.601, as in JPEG files, in 16 bits.
void make_grey(Interleaved& image) {
  std::uint8_t* to = image.bytes.data();
  for (std::size_t i = 0; i < image.bytes.size(); i += 3) {
    const std::uint8_t* from = image.bytes.data() + i;
    *to++ = static_cast<std::uint8_t>(
        (from[0] * 19595 + from[1] * 38470 + from[2] * 7471 + 0x8000) >> 16);
  }
  image.bytes.resize(image.bytes.size() / 3);
  image.components = 1;
}

// Refuses a file of `kind` as damaged.
[[noreturn]] void refuse_damaged(const std::string& name, const char* kind,
                                 const std::string& why) {
  refuse_file(name, "the " + std::string(kind) + " cannot be decoded (" + why +
                        "); fetch the file again, or remove it");
}

class JpegDecoder {
 public:
  JpegDecoder(std::span<const std::uint8_t> file, const std::string& name)
      : file_(file), name_(name), decoder_(tjInitDecompress()) {
    if (!decoder_) throw std::bad_alloc();
  }

  Interleaved decode(int channels) {
    int width = 0;
    int height = 0;
    int subsampling = 0;
    int colours = 0;
    check(tjDecompressHeader3(decoder_.get(), file_.data(), file_.size(), &width, &height,
                              &subsampling, &colours));
    if (width == 0) refuse();
    const bool printed = colours == TJCS_CMYK || colours == TJCS_YCCK;
    Interleaved image = allocate(height, width, printed ? 4 : channels, name_);
    const int format = printed ? TJPF_CMYK : channels == 1 ? TJPF_GRAY : TJPF_RGB;
    if (!check(decompress(file_, image, format, 0))) check_is_whole(image, format);
    if (printed) make_rgb(image);
    return image;
  }

 private:
  struct Destroy {
    void operator()(void* decoder) const noexcept { tjDestroy(decoder); }
  };

  int decompress(std::span<const std::uint8_t> file, Interleaved& image, int format, int flags) {
    // A file may hold any number of scans of one image, each as slow as the first.
    return tjDecompress2(decoder_.get(), file.data(), file.size(), image.bytes.data(), image.width,
                         0, image.height, format, TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS | flags);
  }

  // Whether there was no warning either.
  bool check(int result) {
    if (result != 0 && tjGetErrorCode(decoder_.get()) != TJERR_WARNING) refuse();
    return result == 0;
  }

  // An error after a warning looks like the warning alone, but leaves what it has not come to. Of
  // what is missing at the end the decoder makes grey, with a warning as for other flaws; a file
  // that lacks nothing but its end marker decodes without any once it has one.
  void check_is_whole(Interleaved& image, int format) {
    Interleaved other = image;
    std::ranges::fill(other.bytes, 0xFF);  // and `image` was 0
    decompress(file_, other, format, 0);
    if (other.bytes != image.bytes) refuse();
    constexpr std::array<std::uint8_t, 2> kScan = {0xFF, 0xDA};
    constexpr std::array<std::uint8_t, 2> kEnd = {0xFF, 0xD9};
    const auto scan = std::ranges::find_end(file_, kScan);
    if (!std::ranges::find_end(scan.begin(), file_.end(), kEnd.begin(), kEnd.end()).empty()) return;
    std::vector<std::uint8_t> ended(file_.begin(), file_.end());
    ended.insert(ended.end(), kEnd.begin(), kEnd.end());
    if (decompress(ended, image, format, TJFLAG_STOPONWARNING) != 0) refuse();
  }

  [[noreturn]] void refuse() { refuse_damaged(name_, "JPEG", tjGetErrorStr2(decoder_.get())); }

  std::span<const std::uint8_t> file_;
  const std::string& name_;
  std::unique_ptr<void, Destroy> decoder_;
};

// What libpng reads, and why it could not.
struct PngSource {
  std::span<const std::uint8_t> rest;
  std::array<char, 128> why = {};
};

void copy_bytes(png_structp png, png_bytep to, std::size_t count) {
  auto& source = *static_cast<PngSource*>(png_get_io_ptr(png));
  if (source.rest.size() < count) png_error(png, "it ends early");
  std::ranges::copy(source.rest.first(count), to);
  source.rest = source.rest.subspan(count);
}

[[noreturn]] void leave(png_structp png, png_const_charp why) {
  auto& source = *static_cast<PngSource*>(png_get_error_ptr(png));
  std::snprintf(source.why.data(), source.why.size(), "%s", why);
  png_longjmp(png, 1);
}

void ignore_warning(png_structp /*png*/, png_const_charp /*why*/) {}

class PngDecoder {
 public:
  PngDecoder(std::span<const std::uint8_t> file, const std::string& name)
      : source_{.rest = file}, name_(name) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source_, leave, ignore_warning);
    info_ = png_ == nullptr ? nullptr : png_create_info_struct(png_);
    if (info_ == nullptr) {
      png_destroy_read_struct(&png_, nullptr, nullptr);
      throw std::bad_alloc();
    }
  }
  ~PngDecoder() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  Interleaved decode(int channels) {
    if (!read_header()) refuse();
    const bool is_grey = (png_get_color_type(png_, info_) & PNG_COLOR_MASK_COLOR) == 0;
    Interleaved image = allocate(png_get_image_height(png_, info_),
                                 png_get_image_width(png_, info_), is_grey ? channels : 3, name_);
    const std::size_t row_bytes = image.bytes.size() / static_cast<std::size_t>(image.height);
    std::vector<png_bytep> rows;
    for (std::size_t at = 0; at < image.bytes.size(); at += row_bytes) {
      rows.push_back(image.bytes.data() + at);
    }
    if (!read_rows(rows.data(), row_bytes, image.components == 3)) refuse();
    return image;
  }

 private:
  // Errors jump into these two, which have nothing to destroy.
  bool read_header() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_read_fn(png_, &source_, copy_bytes);
    // Gamma, profiles and the like do not change the values.
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    png_read_info(png_, info_);
    return true;
  }

  // As values of 8 bits, of 16 the upper ones. What lies under transparency stays.
  bool read_rows(png_bytepp rows, std::size_t row_bytes, bool coloured) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_expand(png_);
    png_set_strip_16(png_);
    png_set_strip_alpha(png_);
    if (coloured) png_set_gray_to_rgb(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    if (png_get_rowbytes(png_, info_) != row_bytes) png_error(png_, "its rows have another size");
    png_read_image(png_, rows);
    return true;
  }

  [[noreturn]] void refuse() { refuse_damaged(name_, "PNG", source_.why.data()); }

  PngSource source_;
  const std::string& name_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

Interleaved decode(std::span<const std::uint8_t> file, int channels, const std::string& name) {
  if (starts_with(file, kJpegStart)) return JpegDecoder(file, name).decode(channels);
  if (starts_with(file, kPngStart)) return PngDecoder(file, name).decode(channels);
  refuse_file(name, "this is neither a JPEG nor a PNG file; convert it to one of these");
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
  Interleaved image = decode(file, channels, name);
  if (image.components > channels) make_grey(image);
  return planes_of(image);
}

}  // namespace tersewire::trainer
