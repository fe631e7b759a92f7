// What two ends of the tcp transport say to each other first: who calls sends this and the token,
// and who has checked both answers with the same of itself. No sockets here.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tersewire {

struct TcpHello {
  int from = 0;
  int to = 0;  // whom it takes the other end for
  int ranks = 0;

  bool operator==(const TcpHello&) const = default;
};

// Raised with every change of what ends say.
inline constexpr std::string_view kTcpGreeting = "tersewire tcp 2\n";
inline constexpr std::size_t kTcpHelloBytes = kTcpGreeting.size() + 12;

// The greeting and each number as 4 bytes, in little-endian order.
std::string packed(const TcpHello& hello);

// Nothing where it is no hello of this version. Its numbers are whatever the other end said.
std::optional<TcpHello> parsed_hello(std::string_view bytes);

}  // namespace tersewire
