#include "trainer/models/torch_library.h"

#include "trainer/models/torch_makers.h"

extern "C" const tersewire::trainer::TorchLibrary tersewire_torch_library = {
    tersewire::trainer::make_torch_network, tersewire::trainer::torch_tensors,
    tersewire::trainer::hold_torch_threads, tersewire::trainer::make_torch_optimizer};
