// What network.cpp and optimizer.cpp do with libtorch; network.h and optimizer.h say what.
#pragma once

#include "trainer/models/network.h"
#include "trainer/models/optimizer.h"

namespace tersewire::trainer {

// network.cpp
std::unique_ptr<Network> make_torch_network(const std::string& name, int classes,
                                            std::uint64_t seed, std::optional<double> dropout);
std::vector<Network::Parameter> torch_tensors(const std::string& name, int classes,
                                              std::optional<double> dropout);
void hold_torch_threads();

// optimizer.cpp
std::unique_ptr<Optimizer> make_torch_optimizer(const OptimizerSettings& settings, float* values,
                                                std::size_t elems);

}  // namespace tersewire::trainer
