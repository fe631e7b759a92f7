// The outer optimizer of local updates: what turns the mean of how far workers came into a step of
// the model that they share.
#pragma once

#include <string>

namespace tersewire::trainer {

// Where a job does not say, for rounds of so many steps: a momentum that is milder than DiLoCo's
// (Douillard et al., 2023, section 3.1: nesterov:lr=0.7,momentum=0.9), which diverges where rounds
// are short; none where they are very short (evidence/local-updates, "Which outer optimizer").
constexpr const char* default_outer(int local_updates) {
  constexpr int kFewSteps = 10;
  return local_updates < kFewSteps ? "sgd:lr=1" : "nesterov:lr=1,momentum=0.5";
}

struct OuterOptimizer {
  bool nesterov;
  double learning_rate;
  double momentum;  // above 0 with nesterov
};

// Of a text: sgd or nesterov, with lr and momentum as parameters (sgd:lr=1), DiLoCo's where
// nesterov has none. Throws kInvalidArgument.
OuterOptimizer outer_optimizer(const std::string& text);

}  // namespace tersewire::trainer
