// Decodes JPEG and PNG files.
//
// The bytes are hostile until proven otherwise: dimensions are checked before anything is
// allocated. Functions here have no state: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/augmentation.h"

namespace tersewire::trainer {

// No image file has more bytes, and no image more pixels or longer sides.
inline constexpr std::uint64_t kMaxImageFileBytes = std::uint64_t{1} << 26;
inline constexpr std::size_t kMaxImagePixels = std::size_t{1} << 26;
inline constexpr int kMaxImageSide = 16384;

// An image that owns its pixels, which are as Image says.
struct PixelImage {
  int channels = 0;
  int height = 0;
  int width = 0;
  std::vector<std::uint8_t> pixels;

  [[nodiscard]] Image view() const { return {channels, height, width, pixels.data()}; }
};

// Whether this build can decode images: where libjpeg-turbo and libpng were there.
bool can_decode_images() noexcept;

// Decodes a whole JPEG or PNG file, which its first bytes tell, whatever it is called. Values are
// those of the file: of 16 bits the upper 8, whatever gamma or profile it names, and transparent
// pixels have their colour. A JPEG that viewers show has flaws that its decoder warns of; such a
// one is refused only where its data ends early. The same bytes give the same pixels wherever the
// libraries are the same.
//   channels  1 makes it grey, 3 makes it red, green and blue, whatever the file has
//   name      what the sentence of an error calls the file
// Throws kDataLoss for another format, for what is damaged or ends early, and for more than the
// limits above; kUnimplemented where can_decode_images() is false. Cost: some milliseconds a
// megapixel, and twice the image's memory.
PixelImage decode_image(std::span<const std::uint8_t> file, int channels, const std::string& name);

}  // namespace tersewire::trainer
