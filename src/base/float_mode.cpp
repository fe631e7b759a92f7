// Not inline: a compiler knows of no mode, and moves arithmetic past what sets one, but not past a
// call.
#include "float_mode.h"

#ifdef __SSE2__
#include <xmmintrin.h>
#endif

namespace tersewire {

#ifdef __SSE2__
// All that is computed with is SSE's or wider; <cfenv> would set x87's mode too, for 50 times the
// price.
DefaultFloatMode::DefaultFloatMode() noexcept : callers_(_mm_getcsr()) {
  constexpr unsigned int kNearestWithoutTraps = _MM_MASK_MASK | _MM_ROUND_NEAREST;
  _mm_setcsr(kNearestWithoutTraps);
}
DefaultFloatMode::~DefaultFloatMode() { _mm_setcsr(callers_); }
#else
DefaultFloatMode::DefaultFloatMode() noexcept {
  std::fegetenv(&callers_);
  std::fesetenv(FE_DFL_ENV);
}
DefaultFloatMode::~DefaultFloatMode() { std::fesetenv(&callers_); }
#endif

}  // namespace tersewire
