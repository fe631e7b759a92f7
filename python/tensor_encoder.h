// What Python calls an Encoder.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "python/payload.h"
#include "tersewire/codec.h"
#include "tersewire/thread_pool.h"

namespace tersewire::python {

namespace py = pybind11;

using Shape = std::vector<std::uint64_t>;

// The key of an encoder's state.
inline constexpr const char* kResidual = "residual";

class ArrayArgument;

// An encoder for tensors of one shape. Threads that call it at once wait for each other; they wait
// without the GIL, which the one that computes may need to end.
class TensorEncoder {
 public:
  // any_shape: the shape is but a number of values.
  TensorEncoder(const Codec& codec, Shape shape, bool any_shape, const EncoderContext& context);

  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] std::size_t elems() const { return elems_; }
  [[nodiscard]] std::span<float> residual() { return encoder_->residual(); }

  Payload encode(const py::object& input, std::uint64_t step, ThreadPool* pool);
  Payload encode_under(const py::object& agreed, const py::object& input, std::uint64_t step,
                       ThreadPool* pool);
  py::object local_scalers(const py::object& input, ThreadPool* pool);
  void observe_gradient(const py::object& gradient);
  void give_back(const Payload& payload);
  void load_state_dict(const py::dict& state);

 private:
  template <typename Task>
  void alone(const Task& task) {
    const py::gil_scoped_release released;
    const std::lock_guard lock(mutex_);
    task();
  }

  template <typename Encode>
  Payload made(const Encode& encode);
  void check(const ArrayArgument& input);

  Shape shape_;
  bool any_shape_;
  std::size_t elems_;
  std::mutex mutex_;
  std::unique_ptr<Encoder> encoder_;
  PayloadMemory memory_;
};

}  // namespace tersewire::python
