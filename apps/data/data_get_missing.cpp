// Where the program is built without what downloading needs.
#include "apps/data/data_get.h"
#include "tersewire/error.h"

namespace tersewire::apps {

void get_data_set(const DataSet& /*set*/, const std::string& /*directory*/,
                  const DataSetReport& /*report*/, long /*stall_seconds*/) {
  throw Error(ErrorCode::kUnimplemented,
              "this build cannot download; install libcurl, OpenSSL and libarchive with their "
              "headers ('make deps' does), run CMake again and build, or fetch the files by other "
              "means");
}

}  // namespace tersewire::apps
