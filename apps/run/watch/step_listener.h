// What watches a run while it lasts, beside its own record.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "trainer/loop/train.h"

namespace tersewire::apps {

// Worker 0's thread calls it. Nothing that goes wrong here ends the run.
class StepListener {
 public:
  StepListener() = default;
  virtual ~StepListener() = default;
  StepListener(const StepListener&) = delete;
  StepListener& operator=(const StepListener&) = delete;

  virtual void on_step(const trainer::StepReport& report) = 0;
  virtual void on_observation(const trainer::Observation& observation) = 0;
};

// Writes an event file for TensorBoard into `directory`, which is made where it does not exist.
// Throws an Error that names the file where that fails, and kUnimplemented in builds without it.
//   config         the run's, shown as text
//   resumed_after  the steps that a resumed run does not take again
std::unique_ptr<StepListener> make_tensorboard_writer(const std::string& directory,
                                                      const nlohmann::json& config,
                                                      std::uint64_t resumed_after);

// Serves what there is to know for as long as it lives, as serve_metrics() does.
std::unique_ptr<StepListener> make_metrics_server(const std::string& address);

}  // namespace tersewire::apps
