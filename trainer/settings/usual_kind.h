// A tensor's role in its network, where nothing but its name and its shape is known.
#pragma once

#include <cstddef>
#include <string_view>

#include "tersewire/tensor.h"

namespace tersewire::trainer {

// As networks mostly have them, and PyTorch names them: of one dimension there are biases, and the
// weights of norms.
TensorKind usual_kind(std::string_view name, std::size_t dimensions);

}  // namespace tersewire::trainer
