// The tensors of a model: of a network that is known by name, or of a file that lists them.
#pragma once

#include <string>
#include <vector>

#include "tersewire/tensor.h"

namespace tersewire::apps {

// `model` as `bench exchange` takes it, or a JSON file: a list of {"name": ..., "shape": [...]}, in
// the order of the forward pass, with "kind" where it is not to be guessed from the shape. Throws
// WrongUsage for neither, and an Error that names the file for one without shapes.
std::vector<TensorInfo> model_argument(const std::string& model, double scale);

}  // namespace tersewire::apps
