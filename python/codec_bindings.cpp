// Codec and Encoder, the list of codecs, and policies.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "python/array_argument.h"
#include "python/bindings.h"
#include "python/tensor_encoder.h"
#include "tersewire/codec.h"
#include "tersewire/error.h"
#include "tersewire/policy.h"
#include "trainer/settings/usual_kind.h"

namespace tersewire::python {
namespace {

Shape shape_argument(const py::object& shape, bool is_number) {
  try {
    if (!py::isinstance<py::bool_>(shape)) {
      return is_number ? Shape{shape.cast<std::uint64_t>()} : shape.cast<Shape>();
    }
  } catch (const py::cast_error&) {
    // Refused below.
  }
  refuse("shape is " + std::string(py::repr(shape)) +
         "; pass a tuple of sides or a number of values");
}

std::shared_ptr<TensorEncoder> make_tensor_encoder(const Codec& codec, const py::object& shape,
                                                   std::uint64_t seed, std::uint32_t sender,
                                                   std::uint32_t tensor, std::uint64_t first_elem,
                                                   const std::string& kind) {
  // numpy's integers are no int, and its arrays of sides are no number.
  const bool any_shape = PyIndex_Check(shape.ptr()) != 0 && PySequence_Check(shape.ptr()) == 0;
  return std::make_shared<TensorEncoder>(codec, shape_argument(shape, any_shape), any_shape,
                                         EncoderContext{.seed = seed,
                                                        .sender = sender,
                                                        .tensor = tensor,
                                                        .first_elem = first_elem,
                                                        .kind = tensor_kind(kind)});
}

// The residual of an encoder, which it keeps alive, with the buffer protocol.
struct ResidualMemory {
  std::shared_ptr<TensorEncoder> encoder;
};

py::buffer_info buffer_of(const ResidualMemory& memory) {
  const Shape& shape = memory.encoder->shape();
  const std::vector<py::ssize_t> sides(shape.begin(), shape.end());
  constexpr py::ssize_t kItemBytes = sizeof(float);
  return {
      memory.encoder->residual().data(),      kItemBytes, py::format_descriptor<float>::format(),
      static_cast<py::ssize_t>(sides.size()), sides,      py::detail::c_strides(sides, kItemBytes)};
}

py::object residual_of(const std::shared_ptr<TensorEncoder>& encoder) {
  if (encoder->residual().empty()) return py::none();
  return numpy_view(py::cast(ResidualMemory{encoder}));
}

py::dict state_of(const std::shared_ptr<TensorEncoder>& encoder) {
  const py::object residual = residual_of(encoder);
  py::dict state;
  state[kResidual] = residual.is_none() ? residual : residual.attr("copy")();
  return state;
}

void bind_encoder(py::module_& module) {
  py::class_<ResidualMemory>(module, "_ResidualMemory", py::buffer_protocol())
      .def_buffer([](ResidualMemory& memory) { return buffer_of(memory); });

  py::class_<TensorEncoder, std::shared_ptr<TensorEncoder>>(
      module, "Encoder",
      R"(The compression context of one tensor in one direction (3LC, section 3).

Codec.encoder() makes it. Its only state, beside an observed gradient, is the residual. Threads that
use one encoder at once wait for each other; different encoders run in parallel.)")
      .def_property_readonly(
          "shape",
          [](const TensorEncoder& encoder) { return py::tuple(py::cast(encoder.shape())); },
          "The shape of its tensor.")
      .def_property_readonly(
          "residual", &residual_of,
          R"(What is still to be sent: a float32 numpy array of the tensor's shape.

It shares the encoder's memory: writing to it changes the residual, and encoding changes the array.
None where error accumulation is off and for tensors without values.)")
      .def("encode", &TensorEncoder::encode, py::arg("input"), py::arg("step"), py::kw_only(),
           py::arg("pool") = py::none(),
           R"(Encodes residual + input and keeps in the residual what the payload leaves out.

input  float32 or float64, of the encoder's shape, contiguous, on the CPU; it is not copied, except
       float64 for codecs that keep no more than float32. It must not be the residual
step   the training step: stochastic codecs repeat their random numbers where it repeats
pool   a ThreadPool to use; without one the calling thread alone. The bytes do not depend on it

Returns a Payload; the memory of one that is gone serves the next. An input with a NaN or an
infinity, or whose sum with the residual has one or would leave one in it, is sent uncompressed, in
codec fp32, and leaves the residual as it was; with non-finite=reject Error (kInvalidArgument) is
raised. After an error the residual is as before.
Cost: two passes over input and residual.)")
      .def("local_scalers", &TensorEncoder::local_scalers, py::arg("input"), py::kw_only(),
           py::arg("pool") = py::none(),
           R"(The first half of encoding under scalers that senders share (TernGrad, section 3.1).

Returns this tensor's own, float32: one, or one a bucket; none for codecs that have nothing to agree
on. A tensor that is not finite offers infinity. Changes nothing.)")
      .def("encode_under", &TensorEncoder::encode_under, py::arg("agreed"), py::arg("input"),
           py::arg("step"), py::kw_only(), py::arg("pool") = py::none(),
           R"(The second half: encodes under the largest of all senders' offers for each scaler.

agreed  float32; where one of them is infinite the input is sent as it is, in codec fp32
input   float32

Raises Error (kInvalidArgument) where the codec has nothing to agree on, for another count, or for a
scaler below this tensor's own. Otherwise like encode().)")
      .def("observe_gradient", &TensorEncoder::observe_gradient, py::arg("gradient"),
           R"(Tells the gradient of the loss by the values that will be encoded, float32.

oland-raj with bits-from=gradient takes its number of bits from it; others have no use for it. It is
no part of the state: observe again after a restart.)")
      .def("give_back", &TensorEncoder::give_back, py::arg("payload"),
           R"(Adds a payload that this encoder made, and that nobody used, back to the residual.

Without a residual, and for payloads of fp32, there is nothing to add back.)")
      .def("state_dict", &state_of,
           R"(What a restart would lose: {"residual": a copy, or None where there is none}.

With it and the next step's number, encoding goes on to the same bits.)")
      .def("load_state_dict", &TensorEncoder::load_state_dict, py::arg("state"),
           R"(Takes back what state_dict() returned, of an encoder for as many values.

Raises Error (kInvalidArgument) where it does not fit or is not finite; the residual is then
unchanged.)");
}

void bind_codec(py::module_& module) {
  py::class_<Codec, std::shared_ptr<Codec>>(module, "Codec",
                                            R"(How a tensor becomes bytes. Immutable; any thread.

text  NAME or NAME:KEY=VALUE,KEY=VALUE, as "3lc:s=1.75"; codecs() lists names and parameters

Raises Error (kInvalidArgument) that names the part that is wrong and what would be right.)")
      .def(py::init([](const std::string& text) {
             return std::const_pointer_cast<Codec>(make_codec(text));
           }),
           py::arg("text"))
      .def_property_readonly("text", &Codec::text, "The full text, with every parameter.")
      .def_property_readonly(
          "name", [](const Codec& codec) { return codec_text(codec.id()); }, "\"3lc\".")
      .def_property_readonly(
          "id", [](const Codec& codec) { return static_cast<int>(codec.id()); },
          "The codec's number on the wire.")
      .def_property_readonly(
          "shares_scalers", [](const Codec& codec) { return codec.traits().shares_scalers; },
          "Whether ranks can agree on its scalers, so that payloads add up as whole numbers.")
      .def_property_readonly("keeps_residual", &Codec::keeps_residual,
                             "Whether its encoders keep what they have not sent for later calls.")
      .def_property_readonly("adaptive_rate_gain", &Codec::adaptive_rate_gain,
                             "What Adam's learning rate is to be multiplied by with it.")
      .def("max_encoded_bytes", &Codec::max_encoded_bytes, py::arg("elems"),
           "No payload for so many values is longer.")
      .def("encoder", &make_tensor_encoder, py::arg("shape"), py::kw_only(), py::arg("seed") = 0,
           py::arg("sender") = 0, py::arg("tensor") = 0, py::arg("first_elem") = 0,
           py::arg("kind") = "other",
           R"(An Encoder for tensors of one shape.

shape       the sides, or a number of values, which any shape may have
seed        the job's, for stochastic codecs
sender      rank of the node that encodes, below 2^24
tensor      the tensor's number in its job
first_elem  where the values begin in it: a multiple of 4
kind        conv, dense, recurrent, norm, bias, embedding or other; adacomp depends on it

Stochastic codecs draw by seed, sender, tensor, step and element, and nothing else. Raises Error
(kInvalidArgument) for any other shape.
Cost: a float per value for the residual.)")
      .def(
          "decode",
          [](const Codec& codec, const py::object& payload, const py::object& out,
             ThreadPool* pool) { decode_into(payload_argument(payload, codec.id()), out, pool); },
          py::arg("payload"), py::arg("out"), py::kw_only(), py::arg("pool") = py::none(),
          R"(tersewire.decode(), where plain bytes are taken for a payload of this codec.

A tensor that was not finite is sent in codec fp32: where payloads are sent as plain bytes, have the
receiver make a Payload that says so.)")
      .def(
          "decode_add",
          [](const Codec& codec, const py::object& payload, float weight, const py::object& out,
             ThreadPool* pool) {
            decode_add_into(payload_argument(payload, codec.id()), weight, out, pool);
          },
          py::arg("payload"), py::arg("weight"), py::arg("out"), py::kw_only(),
          py::arg("pool") = py::none(),
          "tersewire.decode_add(), where plain bytes are taken for a payload of this codec.")
      .def("__repr__", [](const Codec& codec) { return "tersewire.Codec('" + codec.text() + "')"; })
      .def(
          "__eq__", [](const Codec& a, const Codec& b) { return a.text() == b.text(); },
          py::is_operator())
      .def("__hash__", [](const Codec& codec) { return py::hash(py::str(codec.text())); })
      .def(py::pickle([](const Codec& codec) { return codec.text(); },
                      [](const std::string& text) {
                        return std::const_pointer_cast<Codec>(make_codec(text));
                      }));
}

void bind_descriptions(py::module_& module) {
  py::class_<CodecParameter>(module, "CodecParameter", "A parameter of a codec's text.")
      .def_readonly("key", &CodecParameter::key)
      .def_readonly("default", &CodecParameter::value)
      .def_readonly("range", &CodecParameter::range, "Allowed values.")
      .def_readonly("meaning", &CodecParameter::meaning, "One line of description.");
  py::class_<CodecDescription>(module, "CodecDescription", "What Codec() can make.")
      .def_property_readonly(
          "id", [](const CodecDescription& codec) { return static_cast<int>(codec.id); },
          "The codec's number on the wire.")
      .def_readonly("name", &CodecDescription::name)
      .def_readonly("summary", &CodecDescription::summary, "One line of description.")
      .def_readonly("parameters", &CodecDescription::parameters);
  module.def(
      "codecs", [] { return codec_descriptions(); }, "All codecs.");
}

TensorInfo make_tensor_info(const std::string& name, const Shape& shape, const std::string& kind,
                            bool exact) {
  return {.name = name, .shape = shape, .kind = tensor_kind(kind), .exact = exact};
}

std::vector<std::shared_ptr<Codec>> choose(const std::string& policy, const std::string& fallback,
                                           const std::vector<TensorInfo>& tensors,
                                           int local_updates) {
  std::vector<std::shared_ptr<Codec>> codecs;
  for (const auto& codec : choose_codecs(policy, fallback, tensors, local_updates)) {
    codecs.push_back(std::const_pointer_cast<Codec>(codec));
  }
  return codecs;
}

void bind_policies(py::module_& module) {
  py::class_<TensorInfo>(module, "TensorInfo", "A tensor of a job, as policies see it.")
      .def(py::init(&make_tensor_info), py::arg("name"), py::arg("shape"),
           py::arg("kind") = "other", py::arg("exact") = false,
           "kind   conv, dense, recurrent, norm, bias, embedding or other\n"
           "exact  whether it gets fp32 and no condition sees it")
      .def_readonly("name", &TensorInfo::name)
      .def_property_readonly(
          "shape", [](const TensorInfo& tensor) { return py::tuple(py::cast(tensor.shape)); })
      .def_property_readonly(
          "kind", [](const TensorInfo& tensor) { return std::string(to_string(tensor.kind)); })
      .def_readonly("exact", &TensorInfo::exact);
  module.def("_adaptive_pull_codec", &adaptive_pull_codec, py::arg("push_codec"),
             "The codec for means that servers send, for an optimizer as Adam.");
  module.def(
      "_usual_kind",
      [](const std::string& name, std::size_t dimensions) {
        return to_string(trainer::usual_kind(name, dimensions));
      },
      py::arg("name"), py::arg("dimensions"), "Of a parameter whose module is not known.");
  module.def(
      "_adaptive_rate_gain",
      [](const std::vector<TensorInfo>& tensors,
         const std::vector<std::shared_ptr<Codec>>& codecs) {
        return adaptive_rate_gain(
            tensors, std::vector<std::shared_ptr<const Codec>>(codecs.begin(), codecs.end()));
      },
      py::arg("tensors"), py::arg("codecs"),
      "Of the codec that most values have: what makes up for smaller steps of Adam.");
  module.def("choose_codecs", &choose, py::arg("policy"), py::arg("fallback"), py::arg("tensors"),
             py::arg("local_updates") = 0,
             R"(Chooses a codec for each tensor of a job; the first rule that matches wins.

policy    "CONDITION:CODEC; ...", as "size<1000:fp32; kind=norm:fp32; last:fp32"; or the name of a
          ready-made one: auto, small, light, 3lc-paper, terngrad-paper, adacomp-paper
fallback  the codec of tensors that no rule matches
tensors   TensorInfo of each, in the order in which the forward pass uses them
local_updates  steps that workers take on their own between two exchanges; above 0 codecs keep a
          residual where small changes would be lost, and above 1 they have no lead, unless their
          texts say otherwise

Returns a Codec a tensor; tensors with the same text share one. Conditions are *, size<N (and <=, >,
>=, =), rank<N, kind=K, name=GLOB, first, last. Raises Error (kInvalidArgument) for a rule that
cannot be read, and for one of `policy` whose condition no tensor meets.)");
}

}  // namespace

void bind_codecs(py::module_& module) {
  bind_encoder(module);
  bind_codec(module);
  bind_descriptions(module);
  bind_policies(module);
}

}  // namespace tersewire::python
