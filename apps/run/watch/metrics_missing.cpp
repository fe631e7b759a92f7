// Where the program is built without what serving metrics needs.
#include "apps/run/watch/metrics_server.h"
#include "tersewire/error.h"

namespace tersewire::apps {

std::unique_ptr<MetricsServer> serve_metrics(const std::string& /*address*/,
                                             std::function<std::string()> /*text*/) {
  throw Error(ErrorCode::kUnimplemented,
              "this build serves no metrics; install libmicrohttpd with its header ('make deps' "
              "does), run CMake again and build, or omit --metrics");
}

}  // namespace tersewire::apps
