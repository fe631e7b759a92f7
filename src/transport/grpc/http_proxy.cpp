#include "http_proxy.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

#include "tersewire/setting_text.h"

namespace tersewire {
namespace {

// In gRPC's order; the first that is set counts.
constexpr std::array kProxies = {"grpc_proxy", "https_proxy", "http_proxy"};
constexpr std::array kExceptions = {"no_grpc_proxy", "no_proxy", "NO_PROXY"};

std::string value_of(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

// 4 or 16 bytes; none for a name.
std::vector<std::uint8_t> number_of(const std::string& host) {
  std::vector<std::uint8_t> bytes(16);
  if (::inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1) return bytes;
  bytes.resize(4);
  if (::inet_pton(AF_INET, host.c_str(), bytes.data()) == 1) return bytes;
  return {};
}

bool is_in_network(const std::string& host, const std::string& network, std::size_t bits) {
  const std::vector<std::uint8_t> number = number_of(host);
  const std::vector<std::uint8_t> first = number_of(network);
  if (number.empty() || number.size() != first.size() || bits > 8 * number.size()) return false;
  for (std::size_t bit = 0; bit < bits; ++bit) {
    if (((number[bit / 8] ^ first[bit / 8]) >> (7 - bit % 8) & 1) != 0) return false;
  }
  return true;
}

bool is_excepted(const std::string& host, std::string entry) {
  if (entry == "*") return true;
  if (const std::size_t slash = entry.find('/'); slash != std::string::npos) {
    const auto bits = parsed_number<std::size_t>(entry.substr(slash + 1));
    return bits && is_in_network(host, entry.substr(0, slash), *bits);
  }
  if (entry.starts_with('*')) entry.erase(0, 1);
  if (entry.starts_with('.')) entry.erase(0, 1);
  if (entry.starts_with('[') && entry.ends_with(']')) entry = entry.substr(1, entry.size() - 2);
  return !entry.empty() && (host == entry || host.ends_with("." + entry));
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

bool is_excepted(const std::string& host) {
  return std::ranges::any_of(kExceptions, [&](const char* variable) {
    std::string list = lower(value_of(variable));
    std::ranges::replace(list, ',', ' ');
    std::istringstream entries(list);
    for (std::string entry; entries >> entry;) {
      if (is_excepted(lower(host), entry)) return true;
    }
    return false;
  });
}

}  // namespace

std::string proxy_variable(const std::string& host) {
  for (const char* variable : kProxies) {
    const std::string proxy = value_of(variable);
    if (proxy.empty()) continue;
    // It takes no others.
    return proxy.starts_with("http://") && !is_excepted(host) ? variable : "";
  }
  return {};
}

}  // namespace tersewire
