// Where the program is built without what TensorBoard's files need.
#include "apps/run/watch/step_listener.h"
#include "tersewire/error.h"

namespace tersewire::apps {

std::unique_ptr<StepListener> make_tensorboard_writer(const std::string& /*directory*/,
                                                      const nlohmann::json& /*config*/,
                                                      std::uint64_t /*resumed_after*/) {
  throw Error(ErrorCode::kUnimplemented,
              "this build writes no files for TensorBoard; install protobuf and ISA-L with their "
              "headers ('make deps' does), run CMake again and build, or omit --tensorboard");
}

}  // namespace tersewire::apps
