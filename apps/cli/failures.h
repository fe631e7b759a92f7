// How a command fails: main() makes an exit code and a sentence of it.
#pragma once

#include <exception>
#include <stdexcept>
#include <string>

#include "tersewire/error.h"

namespace tersewire::apps {

// Thrown for arguments that make no sense: the program ends with 2 instead of 1.
class WrongUsage : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Thrown where rank 0 of the same job says what failed, and ends with the exit code of that: this
// process ends with 0 and without a word. A launcher stops all others at the first exit code but 0,
// perhaps before rank 0 has said its sentence.
class ToldElsewhere : public std::exception {};

// Thrown where nobody reads standard output any more: the program ends as others do then, without a
// word.
class ReaderGone : public std::exception {};

// Says what failed, as main() does, whatever a file's name or a peer brings into the sentence.
void say_failure(const std::string& sentence);

// The exit code of a program that failed: where a signal came, that was the cause, whatever came of
// it.
int failure_code();

// What the library calls an invalid argument came from the command line.
template <typename Task>
auto as_usage(Task&& task) {
  try {
    return task();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInvalidArgument) throw WrongUsage(error.what());
    throw;
  }
}

// Of a job of several processes: whether that of rank 0 fails with the same sentence, and says it.
bool told_by_rank_0(const std::exception& failure);

// Throws an Error that says that `path` cannot be `done` ("read", "written"), why (an errno), and
// what to do.
[[noreturn]] void fail_file(const std::string& path, const char* done, int error);

}  // namespace tersewire::apps
