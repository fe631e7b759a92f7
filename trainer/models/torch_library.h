// What libtorch does for the trainer: a library of its own, loaded when a model is first needed,
// because libtorch's 300 libraries take a third of a second to load.
//
// C++17, like what includes libtorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/models/network.h"
#include "trainer/models/optimizer.h"

namespace tersewire::trainer {

// As the functions of network.h and optimizer.h that these stand for.
struct TorchLibrary {
  std::unique_ptr<Network> (*make_network)(const std::string& name, int classes, std::uint64_t seed,
                                           std::optional<double> dropout);
  std::vector<Network::Parameter> (*tensors)(const std::string& name, int classes,
                                             std::optional<double> dropout);
  void (*hold_threads)();
  std::unique_ptr<Optimizer> (*make_optimizer)(const OptimizerSettings& settings, float* values,
                                               std::size_t elems);
};

// Its file; the program's RUNPATH says where that is.
inline constexpr const char* kTorchLibraryFile = "tersewire-torch.so";

}  // namespace tersewire::trainer

// In the library alone: load_torch_library.cpp asks for it by this name.
extern "C" const tersewire::trainer::TorchLibrary tersewire_torch_library;
