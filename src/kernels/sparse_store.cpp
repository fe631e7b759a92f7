#include "sparse_store.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "sparse_store.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace tersewire::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void store_block(float* HWY_RESTRICT target, float* HWY_RESTRICT block, std::size_t n,
                 bool streaming) {
  const hn::ScalableTag<float> f;
  const std::size_t lanes = hn::Lanes(f);
  const auto zero = hn::Zero(f);
  // Streaming stores want whole vectors at their own alignment.
  const bool aligned = reinterpret_cast<std::uintptr_t>(target) % (lanes * sizeof(float)) == 0;
  std::size_t i = 0;
  if (streaming && aligned) {
    for (; i + lanes <= n; i += lanes) {
      hn::Stream(hn::LoadU(f, block + i), f, target + i);
      hn::StoreU(zero, f, block + i);
    }
  }
  for (; i + lanes <= n; i += lanes) {
    // The next block's line, to be written: hardware fetches none ahead of bursts this short. An
    // address behind the array's end does no harm.
    constexpr int kWrite = 1;
    __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(target + i) +
                                                     n * sizeof(float)),
                       kWrite);
    hn::StoreU(hn::LoadU(f, block + i), f, target + i);
    hn::StoreU(zero, f, block + i);
  }
  for (; i < n; ++i) {
    target[i] = block[i];
    block[i] = 0;
  }
}

}  // namespace tersewire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tersewire::kernels {

HWY_EXPORT(store_block);

void store_block(float* target, float* block, std::size_t n, bool streaming) {
  HWY_DYNAMIC_DISPATCH(store_block)(target, block, n, streaming);
}

}  // namespace tersewire::kernels
#endif  // HWY_ONCE
