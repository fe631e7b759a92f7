#include "apps/cli/failures.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "apps/cli/interrupt.h"
#include "apps/cli/output.h"

namespace tersewire::apps {

namespace {

const char* advice(int error) {
  switch (error) {
    case ENOSPC:
    case EFBIG:
    case EDQUOT:
      return "make room or choose another place";
    case EACCES:
    case EPERM:
      return "check its permissions";
    case EROFS:
      return "choose another place";
    case EMFILE:
    case ENFILE:
      return "raise the limit of open files (ulimit -n)";
    case EIO:
      return "check the disk";
    case EISDIR:
      return "name a file, not a directory";
    case ENOMEM:
      return "use a machine with more";
    default:
      return "check the path";
  }
}

}  // namespace

void say_failure(const std::string& sentence) {
  complain(fmt::format("tersewire: {}\n", one_line(sentence)));
}

int failure_code() {
  // What shells say of a program that a signal has ended.
  constexpr int kSignalled = 128;
  return interrupting_signal() > 0 ? kSignalled + interrupting_signal() : EXIT_FAILURE;
}

bool told_by_rank_0(const std::exception& failure) {
  if (dynamic_cast<const WrongUsage*>(&failure) != nullptr) return true;
  const auto* error = dynamic_cast<const Error*>(&failure);
  return error != nullptr &&
         (error->code() == ErrorCode::kAborted || error->code() == ErrorCode::kCancelled);
}

void fail_file(const std::string& path, const char* done, int error) {
  throw Error(error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kResourceExhausted,
              fmt::format("{} cannot be {}: {}; {}", path, done,
                          std::generic_category().message(error), advice(error)));
}

}  // namespace tersewire::apps
