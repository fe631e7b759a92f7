// What preloaded libraries share.
#pragma once

#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <string>

// The path of the file behind a descriptor; empty where it cannot be known.
inline std::string descriptor_path(int descriptor) {
  std::array<char, 32> link{};
  std::array<char, 4096> path{};
  std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link.data(), path.data(), path.size());
  return {path.data(), length > 0 ? static_cast<std::size_t>(length) : 0};
}
