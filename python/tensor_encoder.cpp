#include "python/tensor_encoder.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "python/array_argument.h"
#include "tersewire/error.h"

namespace tersewire::python {

TensorEncoder::TensorEncoder(const Codec& codec, Shape shape, bool any_shape,
                             const EncoderContext& context)
    : shape_(std::move(shape)),
      any_shape_(any_shape),
      elems_(TensorInfo{.name = "input", .shape = shape_}.elems()) {
  const py::gil_scoped_release released;
  encoder_ = codec.make_encoder(elems_, context);
}

template <typename Encode>
Payload TensorEncoder::made(const Encode& encode) {
  Bytes bytes = memory_.take();
  Encoded encoded{};
  alone([&] { encoded = encode(bytes); });
  return memory_.payload(encoded.codec, encoded.not_finite, std::move(bytes));
}

Payload TensorEncoder::encode(const py::object& input, std::uint64_t step, ThreadPool* pool) {
  const ArrayArgument array(input, "input");
  check(array);
  if (array.is_float64()) {
    return made([&, values = array.doubles()](Bytes& out) {
      return encoder_->encode_f64(values, step, out, pool);
    });
  }
  return made([&, values = array.floats()](Bytes& out) {
    return encoder_->encode(values, step, out, pool);
  });
}

Payload TensorEncoder::encode_under(const py::object& agreed, const py::object& input,
                                    std::uint64_t step, ThreadPool* pool) {
  const ArrayArgument array(input, "input");
  const ArrayArgument scalers(agreed, "agreed");
  check(array);
  return made([&, under = scalers.floats(), values = array.floats()](Bytes& out) {
    return encoder_->encode_under(under, values, step, out, pool);
  });
}

py::object TensorEncoder::local_scalers(const py::object& input, ThreadPool* pool) {
  const ArrayArgument array(input, "input");
  check(array);
  std::vector<float> scalers;
  alone([&, values = array.floats()] { scalers = encoder_->local_scalers(values, pool); });
  return numpy_array(scalers);
}

void TensorEncoder::observe_gradient(const py::object& gradient) {
  const ArrayArgument array(gradient, "gradient");
  check(array);
  alone([&, values = array.floats()] { encoder_->observe_gradient(values); });
}

void TensorEncoder::give_back(const Payload& payload) {
  alone([&] { encoder_->give_back(payload.codec, payload.bytes); });
}

void TensorEncoder::load_state_dict(const py::dict& state) {
  if (!state.contains(kResidual)) {
    refuse("the state has no 'residual'; pass what state_dict() returned");
  }
  const py::object saved = state[kResidual];
  if (saved.is_none() && residual().empty()) return;
  const ArrayArgument array(saved, kResidual);
  const auto values = array.floats();
  if (values.size() != residual().size()) {
    refuse("the saved residual has " + std::to_string(values.size()) +
           " values and this encoder keeps " + std::to_string(residual().size()) +
           "; load the state of the same tensor and codec");
  }
  if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) {
    refuse("the saved residual holds a NaN or an infinity; start without it");
  }
  alone([&] { std::ranges::copy(values, residual().begin()); });
}

void TensorEncoder::check(const ArrayArgument& input) {
  if (!any_shape_ || input.elems() != shape_.front()) input.check_shape(shape_);
  if (overlap(input.bytes(), std::as_bytes(residual()))) {
    refuse("the values are the encoder's own residual; pass a copy");
  }
}

}  // namespace tersewire::python
