// The outer optimizer of local updates: what turns the mean of how far workers came into a step of
// the model that they share.
#pragma once

#include <string>

namespace tersewire::trainer {

// DiLoCo's (Douillard et al., 2023, section 3.1).
inline constexpr const char* kDefaultOuter = "nesterov:lr=0.7,momentum=0.9";

struct OuterOptimizer {
  bool nesterov;
  double learning_rate;
  double momentum;  // above 0 with nesterov
};

// Of a text: sgd or nesterov, with lr and momentum as parameters (sgd:lr=1). Empty: kDefaultOuter.
// Throws kInvalidArgument.
OuterOptimizer outer_optimizer(const std::string& text);

}  // namespace tersewire::trainer
