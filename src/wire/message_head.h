// What stands where in a message's head (spec/wire-format.md, "Message").
#pragma once

#include <cstddef>
#include <cstdint>

namespace tersewire {

inline constexpr std::uint8_t kMessageMagic[2] = {'T', 'W'};
inline constexpr std::uint8_t kMessageVersion = 2;
inline constexpr std::size_t kVersionOffset = 2;
inline constexpr std::size_t kKindOffset = 3;
inline constexpr std::size_t kCountOffset = 16;
inline constexpr std::size_t kChecksumOffset = 20;

}  // namespace tersewire
