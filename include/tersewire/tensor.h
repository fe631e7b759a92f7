// How a job describes its tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tersewire {

// A tensor's role in its network; policies choose by it.
enum class TensorKind : std::uint8_t {
  kOther,
  kConv,
  kDense,
  kRecurrent,
  kNorm,
  kBias,
  kEmbedding
};

// "conv", "dense", ... ; "other" for kOther.
std::string_view to_string(TensorKind kind);
// The inverse. Throws kInvalidArgument, naming the known kinds.
TensorKind tensor_kind(std::string_view name);

// One tensor of a job. A job lists its tensors in the order in which the forward pass uses them; a
// tensor's position in that list is its number on the wire.
struct TensorInfo {
  std::string name;
  std::vector<std::uint64_t> shape;
  TensorKind kind = TensorKind::kOther;
  bool exact = false;  // travels as fp32, unseen by policies: an application's own numbers

  // Product of the shape; 1 for an empty shape. Throws kOutOfRange where that of the dimensions
  // above 0 is more than 2^40.
  [[nodiscard]] std::size_t elems() const;
};

}  // namespace tersewire
