// Arbitrary bytes as an .npy file.
#include <optional>
#include <vector>

#include "apps/files/npy_file.h"
#include "fuzz_support.h"

namespace tersewire::fuzz {
namespace {

std::size_t element_bytes(const NpyArray& array) {
  return array.element_type == ElementType::kFloat32 ? sizeof(float) : sizeof(double);
}

void check_array(const NpyArray& array, ByteView file) {
  require(array.elems == Description{array.element_type, array.shape}.elems(),
          "an array has as many elements as its shape says");
  require(array.data.size() == array.elems * element_bytes(array), "and a value for each");
  require(array.data.data() + array.data.size() == file.data() + file.size(),
          "the values end the file");
}

void check_floats(const NpyArray& array) {
  std::optional<Floats> floats;
  if (!succeeds([&] { floats = npy_floats(array); })) {
    require(array.element_type == ElementType::kFloat64, "only doubles can be too large");
    return;
  }
  require(floats->size() == array.elems, "every value becomes a float");
  if (array.element_type == ElementType::kFloat32 && array.elems > 0) {
    require(std::memcmp(floats->data(), array.data.data(), array.data.size()) == 0,
            "floats stay as they are");
  }
}

void check_doubles(const NpyArray& array) {
  const Doubles doubles = npy_doubles(array);
  require(doubles.size() == array.elems, "every value becomes a double");
  if (array.element_type == ElementType::kFloat64 && array.elems > 0) {
    require(std::memcmp(doubles.data(), array.data.data(), array.data.size()) == 0,
            "doubles stay as they are");
  }
}

// The header that is written for an array is read as that array.
void check_header(const NpyArray& array) {
  Bytes file = npy_header(array.element_type, array.shape);
  require(file.size() % 64 == 0, "values begin at a multiple of 64");
  file.insert(file.end(), array.data.begin(), array.data.end());
  const NpyArray again = parse_npy(file);
  require(again.element_type == array.element_type && again.shape == array.shape &&
              std::ranges::equal(again.data, array.data),
          "an array that is written is read as it was");
}

}  // namespace
}  // namespace tersewire::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tersewire;
  using namespace tersewire::fuzz;
  // Memory of just this size, so that AddressSanitizer sees a read past its end.
  const std::vector<std::uint8_t> file(data, data + size);
  const ByteView bytes = std::as_bytes(std::span(file));
  std::optional<NpyArray> array;
  if (!succeeds([&] { array = parse_npy(bytes); })) return 0;
  check_array(*array, bytes);
  check_floats(*array);
  check_doubles(*array);
  check_header(*array);
  return 0;
}
