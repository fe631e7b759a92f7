// Arbitrary bytes as a file of named arrays.
#include <optional>
#include <vector>

#include "fuzz_support.h"
#include "trainer/files/tensor_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tersewire;
  using namespace tersewire::fuzz;
  // Memory of just this size, so that AddressSanitizer sees a read past its end.
  const std::vector<std::uint8_t> bytes(data, data + size);
  std::optional<TensorFile> file;
  if (!succeeds([&] { file = parse_tensor_file(std::as_bytes(std::span(bytes))); })) return 0;
  std::size_t values = 0;
  for (const auto& [name, array] : file->arrays) values += array.values.size();
  require(values * sizeof(float) <= size, "no file holds more than its bytes");
  const Bytes written = tensor_file_bytes(*file);
  require(tensor_file_bytes(parse_tensor_file(written)) == written,
          "what is written is read as it was");
  return 0;
}
