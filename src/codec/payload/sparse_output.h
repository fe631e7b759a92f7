// Sparse payloads on their way into tensors: what decode and decode_add do with the elements that a
// reader of positions.h finds.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels.h"
#include "positions.h"
#include "sparse_store.h"

namespace tersewire {

// Overwrites a tensor with values put in ascending order and zeros between them: once, from the
// first element to the last, and past the caches where it would not stay in them.
class SparseFill {
 public:
  explicit SparseFill(std::span<float> out)
      : out_(out),
        streaming_(out.size() >= kernels::kStreamingElems),
        before_(reinterpret_cast<std::uintptr_t>(out.data()) / sizeof(float) % kLineElems) {
    block_.fill(0.0F);
  }

  // The elements that were found get use(element).
  template <typename Use>
  void put(std::span<const FoundElement> found, const Use& use) {
    // In registers: what `this` points to would be loaded for each element.
    std::size_t first = begin_ - before_;  // wraps around in the first block, and back below
    float* const block = block_.data();
    for (const FoundElement& element : found) {
      while (element.elem() - first >= kBlockElems) {
        store_block();
        first += kBlockElems;
      }
      block[element.elem() - first] = use(element);
    }
  }
  // Call it when all is put.
  void finish() {
    while (begin_ < out_.size() + before_) store_block();
    if (streaming_) kernels::end_streaming();
  }

 private:
  // What is stored at once: whole cache lines, except the tensor's first and last.
  static constexpr std::size_t kLineElems = 64 / sizeof(float);
  static constexpr std::size_t kBlockElems = 1024;

  void store_block() {
    const std::size_t first = std::max(begin_, before_);
    const std::size_t last = std::min(begin_ + kBlockElems, out_.size() + before_);
    kernels::store_block(out_.data() + (first - before_), block_.data() + (first - begin_),
                         last - first, streaming_);
    begin_ += kBlockElems;
  }

  std::span<float> out_;
  bool streaming_;
  std::size_t before_;     // elements of the first cache line that are not the tensor's
  std::size_t begin_ = 0;  // of the block, counted from that line's start
  alignas(64) std::array<float, kBlockElems> block_;
};

// Fills `out` with the elements that a reader finds: the i-th gets value(i, element). `make` makes
// a reader; one reads to the end, which checks the payload, before anything is written.
template <typename Make, typename Value>
void fill_sparse(const Make& make, Value value, std::span<float> out) {
  check_elements(make());
  auto reader = make();
  SparseFill fill(out);
  std::size_t i = 0;
  for (auto found = reader.next(); !found.empty(); found = reader.next()) {
    fill.put(found, [&](const FoundElement& element) { return value(i++, element); });
  }
  fill.finish();
}

// Adds them to `out`, in the same way, and touches nothing else.
template <typename Make, typename Value>
void add_sparse(const Make& make, Value value, std::span<float> out) {
  check_elements(make());
  auto reader = make();
  std::size_t i = 0;
  for (auto found = reader.next(); !found.empty(); found = reader.next()) {
    // All of them are asked for before the first is waited for.
    for (const FoundElement& element : found) __builtin_prefetch(out.data() + element.elem(), 1);
    for (const FoundElement& element : found) {
      out[element.elem()] += value(i++, element);
    }
  }
}

}  // namespace tersewire
