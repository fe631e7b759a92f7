#include "trainer/compute_slots.h"

#include "trainer/codec_threads.h"

namespace tersewire::trainer {

ComputeSlots::ComputeSlots() : free_(static_cast<std::ptrdiff_t>(allowed_cores())) {}

}  // namespace tersewire::trainer
