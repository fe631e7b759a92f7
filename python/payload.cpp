#include "python/payload.h"

#include <algorithm>
#include <utility>

#include "python/array_argument.h"
#include "tersewire/error.h"

namespace tersewire::python {
namespace {

constexpr const char* kContributors = "contributors";
constexpr const char* kLevels = "levels";

void check_apart(const Payload& payload, ByteView out) {
  if (!overlap(payload.bytes, out)) return;
  throw Error(ErrorCode::kInvalidArgument,
              "out lies in the payload's own memory; pass another array");
}

}  // namespace

Payload PayloadMemory::payload(CodecId codec, bool not_finite, Bytes bytes) {
  const auto give_back = [spare = spare_](Bytes* gone) {
    gone->clear();
    *spare = std::move(*gone);
    delete gone;
  };
  const std::shared_ptr<Bytes> owner(new Bytes(std::move(bytes)), give_back);
  return {.codec = codec, .not_finite = not_finite, .bytes = *owner, .owner = owner};
}

CodecId codec_number(std::string_view name) {
  if (name == kContributors) return CodecId::kContributors;
  if (name == kLevels) return CodecId::kLevels;
  const auto& codecs = codec_descriptions();
  const std::string_view own = name.substr(0, name.find(':'));
  const auto found = std::ranges::find(codecs, own, &CodecDescription::name);
  if (found != codecs.end()) return found->id;
  throw Error(ErrorCode::kInvalidArgument,
              "unknown codec '" + std::string(name) + "'; tersewire.codecs() lists them all");
}

std::string codec_text(CodecId codec) {
  return std::string(codec == CodecId::kContributors ? kContributors : codec_name(codec));
}

Payload payload_argument(const py::object& argument, CodecId codec) {
  if (py::isinstance<Payload>(argument)) return argument.cast<const Payload&>();
  const auto memory = std::make_shared<ArrayArgument>(argument, "payload");
  return {.codec = codec, .not_finite = false, .bytes = memory->bytes(), .owner = memory};
}

void decode_into(const Payload& payload, const py::object& out, ThreadPool* pool) {
  const ArrayArgument array(out, "out", Access::kWrite);
  check_apart(payload, array.bytes());
  if (array.is_float64()) {
    const auto values = array.doubles();
    const py::gil_scoped_release released;
    return decode_f64(payload.codec, payload.bytes, values, pool);
  }
  const auto values = array.floats();
  const py::gil_scoped_release released;
  decode(payload.codec, payload.bytes, values, pool);
}

void decode_add_into(const Payload& payload, float weight, const py::object& out,
                     ThreadPool* pool) {
  const ArrayArgument array(out, "out", Access::kWrite);
  check_apart(payload, array.bytes());
  const auto values = array.floats();
  const py::gil_scoped_release released;
  decode_add(payload.codec, payload.bytes, weight, values, pool);
}

py::object numpy_array(std::span<const float> values) {
  const py::object array =
      py::module_::import("numpy").attr("empty")(values.size(), py::arg("dtype") = "float32");
  std::ranges::copy(values, ArrayArgument(array, "array").floats().begin());
  return array;
}

py::object numpy_view(const py::object& owner) {
  return py::module_::import("numpy").attr("asarray")(owner);
}

}  // namespace tersewire::python
