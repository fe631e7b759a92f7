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

// In the library: what network.h and optimizer.h say of Network::make(), Network::tensors(),
// hold_library_threads() and Optimizer::make().
std::unique_ptr<Network> make_torch_network(const std::string& name, int classes,
                                            std::uint64_t seed, std::optional<double> dropout);
std::vector<Network::Parameter> torch_tensors(const std::string& name, int classes,
                                              std::optional<double> dropout);
void hold_torch_threads();
std::unique_ptr<Optimizer> make_torch_optimizer(const OptimizerSettings& settings, float* values,
                                                std::size_t elems);

// What it shows to who loads it.
struct TorchLibrary {
  decltype(&make_torch_network) make_network;
  decltype(&torch_tensors) tensors;
  decltype(&hold_torch_threads) hold_threads;
  decltype(&make_torch_optimizer) make_optimizer;
};

// Its file; the program's RUNPATH says where that is.
inline constexpr const char* kTorchLibraryFile = "tersewire-torch.so";

// In the library: load_torch_library.cpp asks for it by this name.
extern "C" __attribute__((visibility("default"))) const TorchLibrary tersewire_torch_library;

}  // namespace tersewire::trainer
