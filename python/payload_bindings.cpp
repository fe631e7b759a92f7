// Payload, and what can be read from one.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "python/array_argument.h"
#include "python/bindings.h"
#include "python/payload.h"
#include "tersewire/thread_pool.h"

namespace tersewire::python {
namespace {

py::buffer_info buffer_of(const Payload& payload) {
  // An empty view has no address, and a buffer must have one.
  static const std::byte none{};
  const std::byte* data = payload.bytes.empty() ? &none : payload.bytes.data();
  return {reinterpret_cast<const std::uint8_t*>(data),
          static_cast<py::ssize_t>(payload.bytes.size()), true};
}

Payload make_payload(const std::string& codec, const py::object& data, bool not_finite) {
  const CodecId number = codec_number(codec);
  const auto memory = std::make_shared<ArrayArgument>(data, "data");
  return {.codec = number, .not_finite = not_finite, .bytes = memory->bytes(), .owner = memory};
}

py::bytes bytes_of(const Payload& payload) {
  return {reinterpret_cast<const char*>(payload.bytes.data()), payload.bytes.size()};
}

std::string repr(const Payload& payload) {
  return "<tersewire.Payload of " + codec_text(payload.codec) + ", " +
         std::to_string(payload.bytes.size()) + " bytes" +
         (payload.not_finite ? ", not finite>" : ">");
}

bool is_equal(const Payload& a, const Payload& b) {
  return a.codec == b.codec && a.not_finite == b.not_finite && std::ranges::equal(a.bytes, b.bytes);
}

py::tuple state_of(const Payload& payload) {
  return py::make_tuple(codec_text(payload.codec), bytes_of(payload), payload.not_finite);
}

void bind_payload(py::module_& module) {
  py::class_<Payload>(module, "Payload", py::buffer_protocol(),
                      R"(What one tensor became: bytes that know their codec.

It has the buffer protocol, so bytes(), memoryview(), numpy.frombuffer() and file.write() take it;
only bytes() makes a copy. Immutable; any thread.)")
      .def(py::init(&make_payload), py::arg("codec"), py::arg("data"), py::kw_only(),
           py::arg("not_finite") = false,
           R"(A payload that arrived as bytes.

codec       the codec's name, "3lc", or its text, of which only the name counts
data        anything with the buffer protocol or DLPack; it is not copied, so leave it unchanged
not_finite  whether the sender said that the tensor holds a NaN or an infinity

Nothing is checked except the name: decode() checks.)")
      .def_buffer([](Payload& payload) { return buffer_of(payload); })
      .def_property_readonly(
          "codec", [](const Payload& payload) { return codec_text(payload.codec); },
          "Name of the codec: \"fp32\" where the tensor was not finite.")
      .def_readonly("not_finite", &Payload::not_finite,
                    "Whether the tensor, or its sum with the residual, held a NaN or an infinity.")
      .def("__bytes__", &bytes_of)
      .def("__len__", [](const Payload& payload) { return payload.bytes.size(); })
      .def("__repr__", &repr)
      .def("__eq__", &is_equal, py::is_operator())
      .def("__hash__", [](const Payload& payload) { return py::hash(state_of(payload)); })
      .def(py::pickle(&state_of, [](const py::tuple& state) {
        return make_payload(state[0].cast<std::string>(), state[1], state[2].cast<bool>());
      }));
}

void check(const Payload& payload, std::size_t elems) {
  const py::gil_scoped_release released;
  check_payload(payload.codec, payload.bytes, elems);
}

py::dict parameters(const Payload& payload) {
  py::dict found;
  for (const CodecParameter& parameter : payload_parameters(payload.codec, payload.bytes)) {
    found[py::str(parameter.key)] = parameter.value;
  }
  return found;
}

py::tuple scalers(const Payload& payload, std::size_t elems) {
  const PayloadScalers found = payload_scalers(payload.codec, payload.bytes, elems);
  return py::make_tuple(found.bucket_elems, numpy_array(found.scalers));
}

void add_levels(const Payload& payload, const py::object& levels) {
  const ArrayArgument sums(levels, "levels", Access::kWrite);
  const auto into = sums.ints();
  const py::gil_scoped_release released;
  decode_levels_add(payload.codec, payload.bytes, into);
}

Payload levels_payload(const py::object& sums, std::uint32_t workers, const py::object& scalers,
                       std::uint64_t bucket_elems, bool dense) {
  const ArrayArgument digits(sums, "sums");
  const ArrayArgument shared(scalers, "scalers");
  const auto from = digits.ints();
  const auto under = shared.floats();
  Bytes bytes;
  {
    const py::gil_scoped_release released;
    append_levels(from, workers, under, bucket_elems, dense, bytes);
  }
  return PayloadMemory().payload(CodecId::kLevels, false, std::move(bytes));
}

void bind_readers(py::module_& module) {
  module.def("check_payload", &check, py::arg("payload"), py::arg("elems"),
             R"(Checks what decoding would check, for so many values, and writes nothing.

Raises Error (kDataLoss) where the payload is not one for that many values. No payload holds their
number, which the caller must know: only those of fp32, fp16, bf16, int8 and truncate, which spend a
byte or more on each value, reveal every wrong one. Payloads of positions (3lc, adacomp,
local-selection, dryden, topk) pass for many numbers, all others for a few more or fewer.)");
  module.def("decode", &decode_into, py::arg("payload"), py::arg("out"), py::kw_only(),
             py::arg("pool") = py::none(),
             R"(Overwrites `out` with the payload's values.

payload  a Payload, which says its codec
out      float32 or float64, contiguous, on the CPU, as many values as the payload holds, any shape
pool     a ThreadPool to use; without one the calling thread alone

The payload is checked whole first: where it is not one for so many values, Error (kDataLoss) is
raised and `out` is unchanged; which wrong numbers its bytes reveal, check_payload() says. Codecs
whose values are floats are widened to float64. Any thread. Cost: one pass over `out`, which is not
copied.)");
  module.def("decode_add", &decode_add_into, py::arg("payload"), py::arg("weight"), py::arg("out"),
             py::kw_only(), py::arg("pool") = py::none(),
             R"(Adds weight times the payload's values to `out`, float32. Otherwise like decode().

The product is rounded to float32 first.)");
  module.def("payload_parameters", &parameters, py::arg("payload"),
             R"(The parameters that a payload itself carries (m, s, layout, ...), for people.

Raises Error (kDataLoss) where the payload's head is malformed.)");
}

void bind_levels(py::module_& module) {
  module.def("payload_scalers", &scalers, py::arg("payload"), py::arg("elems"),
             R"(The scalers in a payload of terngrad or stoch3 for so many values.

Returns (bucket_elems, scalers): one scaler for each bucket of so many values, one in all where
bucket_elems is 0. Raises Error like decode_levels_add().)");
  module.def("decode_levels_add", &add_levels, py::arg("payload"), py::arg("levels"),
             R"(Adds the digits -1, 0 and 1 of a payload of terngrad or stoch3 to `levels`.

levels  int32, as many as the payload has values; the caller sees to it that none leaves its range

Payloads under the same scalers add up exactly; encode_levels() takes the sums. Raises Error:
kInvalidArgument for other codecs, kDataLoss for a malformed payload; `levels` is then
unchanged.)");
  module.def("encode_levels", &levels_payload, py::arg("sums"), py::arg("workers"),
             py::arg("scalers"), py::kw_only(), py::arg("bucket_elems") = 0,
             py::arg("dense") = false,
             R"(The payload of codec levels for the mean of workers' ternary gradients.

sums          int32, of the workers' digits: each from -workers to workers
workers       1 to 65535
scalers       float32, which the workers shared: one a bucket, one in all where bucket_elems is 0
bucket_elems  values a bucket, at most 2^40; the last may be short
dense         up to a fifth smaller, and slower

Value e decodes to sums[e] * (its scaler / workers): TernGrad, section 3.1. Raises Error
(kInvalidArgument) where something is not so.)");
}

}  // namespace

void bind_payloads(py::module_& module) {
  bind_payload(module);
  bind_readers(module);
  bind_levels(module);
}

}  // namespace tersewire::python
