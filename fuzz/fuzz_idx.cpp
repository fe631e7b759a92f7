// Arbitrary bytes as an IDX file.
#include <optional>
#include <vector>

#include "fuzz_support.h"
#include "trainer/data/idx_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tersewire::fuzz;
  using tersewire::trainer::IdxArray;
  const std::vector<std::uint8_t> file(data, data + size);
  std::optional<IdxArray> array;
  if (!succeeds([&] { array = tersewire::trainer::parse_idx(std::as_bytes(std::span(file))); })) {
    return 0;
  }
  std::size_t elems = 1;
  for (const std::uint32_t dim : array->dims) elems *= dim;
  require(elems == array->bytes.size(), "an array has as many elements as its dimensions say");
  const std::size_t header_bytes = 4 + 4 * array->dims.size();
  require(file.size() == header_bytes + elems, "nothing is left over");
  require(std::equal(array->bytes.begin(), array->bytes.end(),
                     file.begin() + static_cast<std::ptrdiff_t>(header_bytes)),
          "the elements are the file's bytes");
  return 0;
}
