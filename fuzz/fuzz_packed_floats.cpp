// Arbitrary bytes as packed floats, and packed.
#include <optional>
#include <vector>

#include "fuzz_support.h"
#include "trainer/members/packed_floats.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tersewire;
  using namespace tersewire::fuzz;
  // Memory of just this size, so that AddressSanitizer sees a read past its end.
  const std::vector<std::uint8_t> given(data, data + size);
  const ByteView bytes = std::as_bytes(std::span(given));
  std::optional<Bytes> unpacked;
  if (succeeds([&] { unpacked = unpack_floats(bytes); })) {
    require(unpack_floats(pack_floats(*unpacked)) == *unpacked, "what is packed is unpacked");
  }
  const Bytes packed = pack_floats(bytes);
  const Bytes again = unpack_floats(packed);
  require(std::ranges::equal(again, bytes), "what is packed is unpacked");
  return 0;
}
