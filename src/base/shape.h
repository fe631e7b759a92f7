// Numbers of elements, without overflow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace tersewire {

// No tensor has more elements (spec/wire-format.md, "Description").
inline constexpr std::uint64_t kMaxElems = std::uint64_t{1} << 40;

// How many runs of `by` elements `n` elements are, the last of which may be short.
constexpr std::size_t divide_up(std::size_t n, std::size_t by) {
  return n / by + (n % by != 0 ? 1 : 0);
}

// The product of `dims`, 1 for none; nothing where it, or the product of those that are not 0,
// exceeds kMaxElems.
std::optional<std::size_t> checked_elems(std::span<const std::uint64_t> dims);

}  // namespace tersewire
