// The one exception type of the library.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace tersewire {

// The kind of failure; the numbers are gRPC's status codes.
enum class ErrorCode : std::uint8_t {
  kCancelled = 1,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
};

// Thrown by every function of the library that fails, except where memory runs out: std::bad_alloc,
// or std::length_error for more than can be addressed, passes as it is. what() is one sentence that
// names the tensor, peer, step, offset or file concerned and says what to do.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& sentence) : std::runtime_error(sentence), code_(code) {}

  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace tersewire
