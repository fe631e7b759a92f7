#include "trainer/models/torch_library.h"

namespace tersewire::trainer {

extern "C" const TorchLibrary tersewire_torch_library = {make_torch_network, torch_tensors,
                                                         hold_torch_threads, make_torch_optimizer};

}  // namespace tersewire::trainer
