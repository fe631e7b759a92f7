// Byte buffers without the cost of zeroing them first.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace tersewire {

// An allocator whose resize() leaves new elements uninitialised: an encoder reserves its worst
// case on every call, and zeroing that would cost more than encoding.
template <typename T>
struct UninitializedAllocator : std::allocator<T> {
  template <typename U>
  struct rebind {
    using other = UninitializedAllocator<U>;
  };
  template <typename U, typename... Args>
  void construct(U* p, Args&&... args) {
    if constexpr (sizeof...(Args) == 0 && std::is_trivially_default_constructible_v<U>) {
      ::new (static_cast<void*>(p)) U;
    } else {
      ::new (static_cast<void*>(p)) U(std::forward<Args>(args)...);
    }
  }
};

using Bytes = std::vector<std::byte, UninitializedAllocator<std::byte>>;
using ByteView = std::span<const std::byte>;

// Arrays with uninitialised contents, for outputs that are about to be overwritten.
using Floats = std::vector<float, UninitializedAllocator<float>>;
using Doubles = std::vector<double, UninitializedAllocator<double>>;

}  // namespace tersewire
