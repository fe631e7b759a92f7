#include "trainer/settings/usual_kind.h"

namespace tersewire::trainer {

TensorKind usual_kind(std::string_view name, std::size_t dimensions) {
  const std::string_view own = name.substr(name.rfind('.') + 1);  // all of it where there is none
  if (own.find("bias") != std::string_view::npos) return TensorKind::kBias;
  if (dimensions == 0) return TensorKind::kOther;
  if (dimensions == 1) return TensorKind::kNorm;
  return dimensions == 2 ? TensorKind::kDense : TensorKind::kConv;
}

}  // namespace tersewire::trainer
