// Where the program is built without what a card in software needs.
#include "nic/daemon.h"
#include "tersewire/error.h"

namespace tersewire::nic {

CardCounters run_daemon(const DaemonConfig& /*config*/, int /*stop*/,
                        const std::function<void()>& /*ready*/) {
  throw Error(ErrorCode::kUnimplemented,
              "this build has no network card; install libnetfilter_queue with its header ('make "
              "deps' does), run CMake again and build");
}

}  // namespace tersewire::nic
