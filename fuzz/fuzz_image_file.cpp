// Arbitrary bytes as an image file.
#include <optional>

#include "fuzz_support.h"
#include "trainer/data/image_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tersewire::fuzz;
  using namespace tersewire::trainer;
  for (const int channels : {1, 3}) {
    std::optional<PixelImage> image;
    if (!succeeds([&] { image = decode_image({data, size}, channels, "data"); })) continue;
    require(image->channels == channels, "the channels are those that were asked for");
    require(image->height > 0 && image->height <= kMaxImageSide && image->width > 0 &&
                image->width <= kMaxImageSide,
            "sides are within the limits");
    const std::size_t plane =
        static_cast<std::size_t>(image->height) * static_cast<std::size_t>(image->width);
    require(plane <= kMaxImagePixels &&
                image->pixels.size() == plane * static_cast<std::size_t>(channels),
            "every channel has its plane");
  }
  return 0;
}
