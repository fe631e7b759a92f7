#include "trainer/loop/compute_slots.h"

#include "tersewire/thread_pool.h"

namespace tersewire::trainer {

ComputeSlots::ComputeSlots() : free_(static_cast<std::ptrdiff_t>(allowed_cores())) {}

}  // namespace tersewire::trainer
