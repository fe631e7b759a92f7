#include "tcp_hello.h"

namespace tersewire {
namespace {

constexpr std::size_t kNumberBytes = 4;

int number_in(std::string_view bytes) {
  unsigned number = 0;
  for (std::size_t i = 0; i < kNumberBytes; ++i) {
    number |= static_cast<unsigned>(static_cast<unsigned char>(bytes[i])) << 8 * i;
  }
  return static_cast<int>(number);
}

}  // namespace

std::string packed(const TcpHello& hello) {
  std::string text(kTcpGreeting);
  for (const int number : {hello.from, hello.to, hello.ranks}) {
    for (std::size_t i = 0; i < kNumberBytes; ++i) {
      text += static_cast<char>(static_cast<unsigned>(number) >> 8 * i);
    }
  }
  return text;
}

std::optional<TcpHello> parsed_hello(std::string_view bytes) {
  if (bytes.size() != kTcpHelloBytes || !bytes.starts_with(kTcpGreeting)) return std::nullopt;
  bytes.remove_prefix(kTcpGreeting.size());
  return TcpHello{.from = number_in(bytes),
                  .to = number_in(bytes.substr(kNumberBytes)),
                  .ranks = number_in(bytes.substr(2 * kNumberBytes))};
}

}  // namespace tersewire
