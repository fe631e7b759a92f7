#include "tcp_hello.h"

#include <cstdint>
#include <span>

#include "byte_io.h"

namespace tersewire {

std::string packed(const TcpHello& hello) {
  std::string text(kTcpGreeting);
  Bytes numbers;
  for (const std::int32_t number : {hello.from, hello.to, hello.ranks}) {
    append_value(numbers, number);
  }
  return text.append(reinterpret_cast<const char*>(numbers.data()), numbers.size());
}

std::optional<TcpHello> parsed_hello(std::string_view bytes) {
  if (bytes.size() != kTcpHelloBytes || !bytes.starts_with(kTcpGreeting)) return std::nullopt;
  ByteReader numbers(std::as_bytes(std::span(bytes)).subspan(kTcpGreeting.size()));
  return TcpHello{.from = numbers.read<std::int32_t>("rank"),
                  .to = numbers.read<std::int32_t>("other rank"),
                  .ranks = numbers.read<std::int32_t>("number of ranks")};
}

}  // namespace tersewire
