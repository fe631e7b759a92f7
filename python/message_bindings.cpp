// Frame, Message, and the bytes of messages.
#include <fmt/format.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "python/array_argument.h"
#include "python/bindings.h"
#include "python/payload.h"
#include "tersewire/error.h"
#include "tersewire/message.h"
#include "tersewire/tw_file.h"
#include "trainer/files/message_json.h"

namespace tersewire::python {
namespace {

using Types = std::array<std::pair<ElementType, const char*>, 2>;
constexpr Types kTypes{{{ElementType::kFloat32, "float32"}, {ElementType::kFloat64, "float64"}}};

const char* type_name(ElementType type) {
  return std::ranges::find(kTypes, type, &Types::value_type::first)->second;
}

ElementType type_named(const std::string& name) {
  const auto found = std::ranges::find(kTypes, name, &Types::value_type::second);
  if (found != kTypes.end()) return found->first;
  throw Error(ErrorCode::kInvalidArgument, "unknown dtype '" + name + "'; use float32 or float64");
}

// A Frame whose payload keeps its own memory alive.
struct OwnedFrame {
  std::uint32_t tensor;
  std::uint32_t part;
  Payload payload;
  std::optional<Description> description;

  // For how many values the payload is, where the frame says it.
  [[nodiscard]] std::optional<std::size_t> elems() const {
    return Frame{.tensor = tensor, .part = part, .description = description, .payload = {}}.elems();
  }
};

struct OwnedMessage {
  MessageHeader header;
  std::vector<OwnedFrame> frames;
  std::size_t wire_bytes;
};

OwnedFrame make_frame(std::uint32_t tensor, const Payload& payload,
                      std::optional<std::vector<std::uint64_t>> shape, const std::string& dtype,
                      std::uint32_t part, std::optional<std::uint64_t> part_values) {
  const ElementType type = type_named(dtype);
  if (part_values && !shape) {
    throw Error(ErrorCode::kInvalidArgument,
                "part_values cuts a tensor whose shape is not given; pass shape= too");
  }
  OwnedFrame frame{.tensor = tensor, .part = part, .payload = payload, .description = {}};
  if (shape) frame.description = Description{type, std::move(*shape), part_values.value_or(0)};
  return frame;
}

py::object shape_of(const OwnedFrame& frame) {
  if (!frame.description) return py::none();
  return py::tuple(py::cast(frame.description->dims));
}

py::object dtype_of(const OwnedFrame& frame) {
  if (!frame.description) return py::none();
  return py::str(type_name(frame.description->element_type));
}

void bind_frame(py::module_& module) {
  py::class_<OwnedFrame>(module, "Frame", "The payload of a tensor's part in a message.")
      .def(py::init(&make_frame), py::arg("tensor"), py::arg("payload"), py::kw_only(),
           py::arg("shape") = py::none(), py::arg("dtype") = "float32", py::arg("part") = 0,
           py::arg("part_values") = py::none(),
           R"(tensor       the tensor's number in its job
payload      what it became
shape        its sides, for readers that do not know them: a frame of a file has them
dtype        "float32" or "float64", beside a shape
part         the part's place among the tensor's: 0 where it is not cut
part_values  in files, of a tensor that is cut: how many values each part has but the last)")
      .def_readonly("tensor", &OwnedFrame::tensor, "The tensor's number in its job.")
      .def_readonly("part", &OwnedFrame::part, "The part's place among the tensor's.")
      .def_readonly("payload", &OwnedFrame::payload, "What the part became.")
      .def_property_readonly("shape", &shape_of, "The sides; None where the frame has none.")
      .def_property_readonly("dtype", &dtype_of,
                             "\"float32\" or \"float64\"; None where the frame has no shape.")
      .def_property_readonly(
          "part_values",
          [](const OwnedFrame& frame) -> std::optional<std::uint64_t> {
            if (!frame.description || frame.description->part_values == 0) return std::nullopt;
            return frame.description->part_values;
          },
          "How many values each part but the last has; None where the tensor is not cut.")
      .def_property_readonly("elems", &OwnedFrame::elems,
                             "For how many values the payload is; None without a shape.");
}

void bind_message(py::module_& module) {
  py::class_<OwnedMessage>(module, "Message", "What parse() read. Its payloads are not decoded.")
      .def_property_readonly(
          "kind", [](const OwnedMessage& message) { return to_string(message.header.kind); },
          "\"push\", \"pull\", \"file\", ...")
      .def_property_readonly(
          "sender", [](const OwnedMessage& message) { return message.header.sender; },
          "The sender's rank.")
      .def_property_readonly(
          "step", [](const OwnedMessage& message) { return message.header.step; },
          "The training step.")
      .def_readonly("frames", &OwnedMessage::frames, "In order.")
      .def_readonly("wire_bytes", &OwnedMessage::wire_bytes, "Length of the whole message.");
}

// Refuses what parse() would not read.
void check_packed(const std::string& kind_name, const std::string& packed) {
  try {
    static_cast<void>(parse_tw_file(std::as_bytes(std::span(packed))));
  } catch (const Error& error) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("these frames make no {} ({}); pass one for each part of its array, in "
                            "order, with the array's shape",
                            kind_name, error.what()));
  }
}

// A file has a message for each of its frames.
py::bytes pack(const std::string& kind_name, const std::vector<OwnedFrame>& frames,
               std::uint32_t sender, std::uint64_t step) {
  const MessageHeader header{.kind = message_kind_named(kind_name), .sender = sender, .step = step};
  MessageWriter writer(header);
  std::string packed;
  const auto finish = [&] {
    const ByteView bytes = writer.finish();
    packed.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  bool open = true;
  for (const OwnedFrame& frame : frames) {
    if (!open) writer.clear(header);
    writer.add({.tensor = frame.tensor,
                .part = frame.part,
                .codec = frame.payload.codec,
                .not_finite = frame.payload.not_finite,
                .description = frame.description,
                .payload = frame.payload.bytes});
    open = !is_file_or_state(header.kind);
    if (!open) finish();
  }
  if (open) finish();
  if (is_file_or_state(header.kind)) check_packed(kind_name, packed);
  return packed;
}

OwnedMessage parse(const py::object& data) {
  const auto memory = std::make_shared<ArrayArgument>(data, "data");
  const ByteView bytes = memory->bytes();
  const std::vector<Message> messages = is_file_or_state(message_kind(bytes))
                                            ? parse_tw_file(bytes)
                                            : std::vector{parse_message(bytes)};
  OwnedMessage owned{.header = messages.front().header, .frames = {}, .wire_bytes = bytes.size()};
  for (const Message& message : messages) {
    for (const Frame& frame : message.frames) {
      owned.frames.push_back({.tensor = frame.tensor,
                              .part = frame.part,
                              .payload = {.codec = frame.codec,
                                          .not_finite = frame.not_finite,
                                          .bytes = frame.payload,
                                          .owner = memory},
                              .description = frame.description});
    }
  }
  return owned;
}

// As Python's dicts and lists.
py::object inspect(const py::object& data) {
  const ArrayArgument memory(data, "data");
  const std::string json = trainer::message_json(memory.bytes()).dump();
  return py::module_::import("json").attr("loads")(json);
}

}  // namespace

void bind_messages(py::module_& module) {
  bind_frame(module);
  bind_message(module);
  module.def("pack", &pack, py::arg("kind"), py::arg("frames"), py::kw_only(),
             py::arg("sender") = 0, py::arg("step") = 0,
             R"(The bytes of a message (spec/wire-format.md).

kind    "push", "pull", "file", ...; a .tw file is of kind "file" and has a frame for each part of
        its array, with the array's shape
frames  in order
sender  the sender's rank
step    the training step

Raises Error (kInvalidArgument) where a field exceeds what the format can hold, or the frames make
no file.
Cost: one copy of the payloads; for files also a pass for the checksum.)");
  module.def("parse", &parse, py::arg("data"),
             R"(Checks and reads a whole message, or a .tw file, whose parts become its frames.

data  anything with the buffer protocol or DLPack; the payloads point into it, so leave it unchanged

Raises Error (kDataLoss) that names the offset where it is malformed. Payloads are not decoded.
Cost: one pass for the checksum.)");
  module.def("inspect", &inspect, py::arg("data"),
             R"(Verifies a message (a .tw file, a state, what was captured) and says what it holds.

data  its bytes: anything with the buffer protocol or DLPack

Returns what `tersewire inspect --json` prints. Header, checksum and every payload whose number
of values is known are verified. Raises Error (kDataLoss) where it is damaged.)");
}

}  // namespace tersewire::python
