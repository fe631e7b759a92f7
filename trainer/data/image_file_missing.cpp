// What a build without libjpeg-turbo and libpng has in place of decoding.
#include "tersewire/error.h"
#include "trainer/data/image_file.h"

namespace tersewire::trainer {

bool can_decode_images() noexcept { return false; }

PixelImage decode_image(std::span<const std::uint8_t> /*file*/, int /*channels*/,
                        const std::string& name) {
  throw Error(ErrorCode::kUnimplemented,
              name +
                  ": this build cannot decode images; install libturbojpeg and libpng with their "
                  "headers ('make deps' does), run CMake again and build, or use other data");
}

}  // namespace tersewire::trainer
