// The number of elements of a shape, without overflow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace tersewire {

// No tensor has more elements (spec/wire-format.md, "Description").
inline constexpr std::uint64_t kMaxElems = std::uint64_t{1} << 40;

// The product of `dims`, 1 for none; nothing where it, or the product of those that are not 0,
// exceeds kMaxElems.
std::optional<std::size_t> checked_elems(std::span<const std::uint64_t> dims);

}  // namespace tersewire
