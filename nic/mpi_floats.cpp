// The paper's MPI_collective_communication_comp (section VI-B) for programs as they are: while
// MPI_Allreduce or MPI_Reduce adds up MPI_FLOAT, both of its buffers hold floats that may be lossy.
// Other calls, a broadcast of weights above all, stay exact. Written against Open MPI's binary
// interface, so that it needs no MPI to build and none to be loaded.
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "tersewire/nic.h"

namespace {

// A function behind this library's own of the same name, or an object, of which a program may have
// a copy. Those of an MPI that was loaded behind other libraries' backs are found by its name.
void* mpi_symbol(void* where, const char* name) {
  if (void* found = ::dlsym(where, name)) return found;
  void* library = ::dlopen("libmpi.so.40", RTLD_LAZY | RTLD_NOLOAD);
  return library == nullptr ? nullptr : ::dlsym(library, name);
}

// MPI_IN_PLACE is the address 1, and no buffer's.
bool is_buffer(const void* buffer) { return reinterpret_cast<std::uintptr_t>(buffer) > 1; }

class FloatBuffers {
 public:
  FloatBuffers(const void* first, const void* second, int count, const void* type, const void* op) {
    static const void* const floats = mpi_symbol(RTLD_DEFAULT, "ompi_mpi_float");
    static const void* const sum = mpi_symbol(RTLD_DEFAULT, "ompi_mpi_op_sum");
    if (type != floats || floats == nullptr || op != sum || sum == nullptr || count <= 0) return;
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
    for (const void* buffer : {first, second}) {
      if (!is_buffer(buffer)) continue;
      tersewire_nic_floats(buffer, bytes);
      buffers_[count_++] = buffer;
    }
  }
  ~FloatBuffers() {
    while (count_ > 0) tersewire_nic_forget(buffers_[--count_]);
  }
  FloatBuffers(const FloatBuffers&) = delete;
  FloatBuffers& operator=(const FloatBuffers&) = delete;

 private:
  const void* buffers_[2] = {};
  int count_ = 0;
};

}  // namespace

extern "C" {

int MPI_Allreduce(const void* from, void* to, int count, void* type, void* op, void* communicator) {
  using Function = int(const void*, void*, int, void*, void*, void*);
  static auto* const real = reinterpret_cast<Function*>(mpi_symbol(RTLD_NEXT, "MPI_Allreduce"));
  const FloatBuffers floats(from, to, count, type, op);
  return real(from, to, count, type, op, communicator);
}

int MPI_Reduce(const void* from, void* to, int count, void* type, void* op, int root,
               void* communicator) {
  using Function = int(const void*, void*, int, void*, void*, int, void*);
  static auto* const real = reinterpret_cast<Function*>(mpi_symbol(RTLD_NEXT, "MPI_Reduce"));
  const FloatBuffers floats(from, to, count, type, op);
  return real(from, to, count, type, op, root, communicator);
}

}  // extern "C"
