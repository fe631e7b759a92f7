#include <dlfcn.h>

#include <cstdlib>

#include "tersewire/error.h"
#include "trainer/models/models.h"
#include "trainer/models/torch_library.h"

namespace tersewire::trainer {
namespace {

// OpenBLAS chooses its kernels by the processor's model. One that is newer than it gets those of
// 2004, with which a transformer trains three times as slowly (Debian 12's 0.3.21 and Emerald
// Rapids). Null: as it chooses.
const char* openblas_core() {
#ifdef __x86_64__
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return "SkylakeX";
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "Haswell";
#endif
  return nullptr;
}

const TorchLibrary& load() {
  // Before OpenBLAS starts a thread a core, each of which would spin for a tenth of a second.
  ::setenv("OPENBLAS_NUM_THREADS", "1", /*overwrite=*/0);
  if (const char* core = openblas_core()) ::setenv("OPENBLAS_CORETYPE", core, /*overwrite=*/0);
  void* const library = ::dlopen(kTorchLibraryFile, RTLD_LAZY | RTLD_LOCAL);
  const void* const found =
      library == nullptr ? nullptr : ::dlsym(library, "tersewire_torch_library");
  if (found == nullptr) {
    const char* const why = ::dlerror();
    throw Error(ErrorCode::kNotFound, "the libtorch part of tersewire cannot be loaded: " +
                                          std::string(why == nullptr ? kTorchLibraryFile : why) +
                                          "; install tersewire with all its files, and libtorch");
  }
  return *static_cast<const TorchLibrary*>(found);
}

const TorchLibrary& torch_library() {
  static const TorchLibrary& library = load();
  return library;
}

}  // namespace

std::unique_ptr<Network> Network::make(const std::string& name, int classes, std::uint64_t seed,
                                       std::optional<double> dropout) {
  model_info(name);  // an unknown one is refused before anything is loaded
  return torch_library().make_network(name, classes, seed, dropout);
}

std::vector<Network::Parameter> Network::tensors(const std::string& name, int classes,
                                                 std::optional<double> dropout) {
  model_info(name);
  return torch_library().tensors(name, classes, dropout);
}

void hold_library_threads() { torch_library().hold_threads(); }

std::unique_ptr<Optimizer> Optimizer::make(const OptimizerSettings& settings, float* values,
                                           std::size_t elems) {
  return torch_library().make_optimizer(settings, values, elems);
}

}  // namespace tersewire::trainer
