// The models that there are, without a word of libtorch.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trainer/data/batch.h"

namespace tersewire::trainer {

struct ModelInfo {
  std::string name;
  SampleKind takes;  // with an empty shape text of any length; its classes may be others
  std::string description;
  // Settings of `train` by key, where SGD is not what trains it: its optimizer and what goes with
  // that.
  std::vector<std::pair<std::string, std::string>> trained_with = {};
  // One in so many steps is of its warm-up; 0: none is.
  std::uint64_t warm_up_of = 0;
};

// Small ones first.
const std::vector<ModelInfo>& models();

// The one of this name. Throws kInvalidArgument where there is none.
const ModelInfo& model_info(const std::string& name);

}  // namespace tersewire::trainer
