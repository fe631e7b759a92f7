// Counts what a test program allocates, for tests of functions that allocate nothing. It replaces
// operator new: one file of a program may include it.
#pragma once

#include <atomic>
#include <cstdlib>
#include <new>

#include "codec_test_support.h"

namespace tersewire::test {

inline std::atomic<std::size_t> allocations{0};

}  // namespace tersewire::test

// Not inlined: gcc would take the pair of malloc and delete for a mistake.
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++tersewire::test::allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace tersewire::test {

// Once its buffer has grown, a codec encodes and decodes without allocating.
inline void expect_no_allocations(const std::string& text) {
  SCOPED_TRACE(text);
  ThreadPool pool(2);
  const auto codec = make_codec(text);
  const Floats input = heavy_tailed(200'001, 6);
  for (ThreadPool* threads : {static_cast<ThreadPool*>(nullptr), &pool}) {
    const auto encoder = codec->make_encoder(input.size());
    Floats decoded(input.size());
    Bytes out;
    const auto step = [&] {
      out.clear();
      encoder->encode(input, 0, out, threads);
      decode(codec->id(), out, decoded, threads);
      decode_add(codec->id(), out, 0.5F, decoded, threads);
    };
    step();
    const std::size_t before = allocations;
    for (int i = 0; i < 3; ++i) step();
    EXPECT_EQ(allocations, before);
  }
}

}  // namespace tersewire::test
