// Arbitrary bytes as a file of CIFAR-10's binary version.
#include <optional>

#include "fuzz_support.h"
#include "trainer/data/cifar10.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tersewire::fuzz;
  using namespace tersewire::trainer;
  std::optional<Dataset> images;
  if (!succeeds([&] { images = parse_cifar10({data, size}, "data"); })) return 0;
  require(images->size() > 0 && images->size() * kCifar10RecordBytes == size,
          "every record became an image");
  require(images->pixels.size() == images->size() * images->image_bytes(),
          "every image has its pixels");
  for (std::size_t i = 0; i < images->size(); ++i) {
    const std::uint8_t* record = data + i * kCifar10RecordBytes;
    require(images->labels[i] == record[0] && images->labels[i] < images->classes,
            "labels are the file's and below the number of classes");
    require(std::memcmp(images->pixels.data() + i * images->image_bytes(), record + 1,
                        images->image_bytes()) == 0,
            "pixels are the file's");
  }
  return 0;
}
