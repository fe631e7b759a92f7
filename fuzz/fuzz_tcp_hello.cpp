// Arbitrary bytes as what an end of the tcp transport hears first: only a greeting with its numbers
// is one, and it means what packs to the same bytes.
#include <string>
#include <string_view>

#include "fuzz_support.h"
#include "tcp_hello.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tersewire;
  const auto bytes = fuzz::Input(data, size).copy_of_rest();
  const std::string_view said(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto hello = parsed_hello(said);
  fuzz::require(hello.has_value() == (said.size() == 28 && said.starts_with("tersewire tcp 2\n")),
                "a hello of this version is read, and nothing else");
  if (hello) fuzz::require(packed(*hello) == said, "a hello means what packs to it");
  return 0;
}
