// Arbitrary bytes as an .npy file, known to have an end and as a stream.
#include <algorithm>
#include <optional>
#include <vector>

#include "apps/files/npy_file.h"
#include "fuzz_support.h"
#include "tests/support/trickle.h"

namespace tersewire::fuzz {
namespace {

struct Array {
  NpyHeader header;
  Floats floats;
  Doubles doubles;  // of f8 alone
};

template <typename Values>
Values read_values(ByteView file, std::size_t piece, bool as_stream, NpyHeader& header) {
  Trickle source(file, as_stream ? piece + 1 : file.size() + 1, !as_stream);
  NpyReader reader(source);
  header = reader.header();
  Values all;
  Values values;
  while (all.size() < header.elems) {
    reader.read(std::min(piece, header.elems - all.size()), values);
    all.insert(all.end(), values.begin(), values.end());
  }
  reader.expect_end();
  return all;
}

std::optional<Array> read_array(ByteView file, std::size_t piece, bool as_stream) {
  Array array;
  const bool sound = succeeds([&] {
    array.floats = read_values<Floats>(file, piece, as_stream, array.header);
    if (array.header.element_type == ElementType::kFloat64) {
      array.doubles = read_values<Doubles>(file, piece, as_stream, array.header);
    }
  });
  return sound ? std::optional(array) : std::nullopt;
}

ByteView bytes_of(const Array& array) {
  return array.header.element_type == ElementType::kFloat64
             ? std::as_bytes(std::span(array.doubles))
             : std::as_bytes(std::span(array.floats));
}

void check_array(const Array& array, ByteView file) {
  const NpyHeader& header = array.header;
  require(header.elems == Description{header.element_type, header.shape}.elems(),
          "an array has as many elements as its shape says");
  require(array.floats.size() == header.elems, "and a value for each");
  const ByteView bytes = bytes_of(array);
  require(std::ranges::equal(bytes, file.last(bytes.size())), "values are the end of the file");
}

// The header that is written for an array is read as that array.
void check_written(const Array& array) {
  Bytes file = npy_header(array.header.element_type, array.header.shape);
  require(file.size() % 64 == 0, "values begin at a multiple of 64");
  const ByteView bytes = bytes_of(array);
  file.insert(file.end(), bytes.begin(), bytes.end());
  const auto again = read_array(file, 4096, false);
  require(again && again->header.element_type == array.header.element_type &&
              again->header.shape == array.header.shape &&
              std::ranges::equal(bytes_of(*again), bytes),
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
  const auto array = read_array(bytes, size + 1, false);
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}}) {
    const auto streamed = read_array(bytes, piece, true);
    require(streamed.has_value() == array.has_value(), "a stream is read where a file is");
    require(!array || std::ranges::equal(bytes_of(*streamed), bytes_of(*array)), "and as the same");
  }
  if (!array) return 0;
  check_array(*array, bytes);
  check_written(*array);
  return 0;
}
