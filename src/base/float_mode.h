// The floating point mode that the library computes in, whatever its caller's is: rounding to
// nearest, denormals kept, no traps.
#pragma once

#ifndef __SSE2__
#include <cfenv>
#endif

namespace tersewire {

// Sets the mode in this thread as long as it lives. Every public function that computes with floats
// holds one, and so does every thread that the library starts: else bytes and sums would depend on
// the caller's mode, and with several threads on which of them computed what.
class DefaultFloatMode {
 public:
  DefaultFloatMode() noexcept;
  ~DefaultFloatMode();
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;

 private:
#ifdef __SSE2__
  unsigned int callers_;
#else
  std::fenv_t callers_;
#endif
};

}  // namespace tersewire
