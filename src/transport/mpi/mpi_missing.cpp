// What a build without MPI has in place of the mpi transport.
#include "errors.h"
#include "tersewire/transport.h"

namespace tersewire {

std::unique_ptr<Transport> join_mpi_network(const WaitLimits& /*limits*/) {
  fail(ErrorCode::kUnimplemented,
       "this build has no transport 'mpi'; install an MPI library ('make deps' does), run CMake "
       "again and build, or use another transport");
}

}  // namespace tersewire
