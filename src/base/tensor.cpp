#include "tersewire/tensor.h"

#include <algorithm>
#include <array>
#include <utility>

#include "errors.h"
#include "shape.h"

namespace tersewire {
namespace {

constexpr std::array<std::pair<TensorKind, std::string_view>, 7> kKinds{{
    {TensorKind::kOther, "other"},
    {TensorKind::kConv, "conv"},
    {TensorKind::kDense, "dense"},
    {TensorKind::kRecurrent, "recurrent"},
    {TensorKind::kNorm, "norm"},
    {TensorKind::kBias, "bias"},
    {TensorKind::kEmbedding, "embedding"},
}};

}  // namespace

std::string_view to_string(TensorKind kind) {
  const auto number = static_cast<std::size_t>(kind);
  if (number >= kKinds.size()) {
    fail(ErrorCode::kInvalidArgument, "there is no tensor kind of number {}", number);
  }
  return kKinds[number].second;
}

TensorKind tensor_kind(std::string_view name) {
  for (const auto& [kind, text] : kKinds) {
    if (text == name) return kind;
  }
  fail(ErrorCode::kInvalidArgument,
       "unknown tensor kind '{}'; use conv, dense, recurrent, norm, bias, embedding or other",
       name);
}

std::size_t TensorInfo::elems() const {
  const auto product = checked_elems(shape);
  if (!product) {
    fail(ErrorCode::kOutOfRange, "tensor '{}' has more than 2^40 elements; split it", name);
  }
  return *product;
}

std::optional<std::size_t> checked_elems(std::span<const std::uint64_t> dims) {
  // A zero hides no overflow: the others' product counts all the same (spec, "Description").
  std::uint64_t nonzero = 1;
  bool empty = false;
  for (const std::uint64_t dim : dims) {
    if (dim > kMaxElems) return std::nullopt;
    if (dim == 0) {
      empty = true;
      continue;
    }
    if (nonzero > kMaxElems / dim) return std::nullopt;
    nonzero *= dim;
  }
  return empty ? 0 : static_cast<std::size_t>(nonzero);
}

}  // namespace tersewire
