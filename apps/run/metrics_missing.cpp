// Where the program is built without what serving metrics needs.
#include "apps/run/step_listener.h"
#include "tersewire/error.h"

namespace tersewire::apps {

std::unique_ptr<StepListener> make_metrics_server(const std::string& /*address*/) {
  throw Error(ErrorCode::kUnimplemented,
              "this build serves no metrics; install libmicrohttpd with its header and build with "
              "TERSEWIRE_METRICS=ON, or leave out --metrics");
}

}  // namespace tersewire::apps
