// What the exchanges of tersewire.torch call for each bucket: many parts of one flat array at once,
// because a call a part costs more than encoding a small one.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "python/array_argument.h"
#include "python/bindings.h"
#include "python/tensor_encoder.h"
#include "tersewire/codec.h"
#include "tersewire/error.h"

namespace tersewire::python {
namespace {

// Where a part lies in its array: first value and number of values.
using Stretch = std::pair<std::uint64_t, std::uint64_t>;

std::span<float> values_of(std::span<float> values, Stretch stretch) {
  const auto [begin, elems] = stretch;
  if (begin > values.size() || elems > values.size() - begin) {
    throw Error(ErrorCode::kInvalidArgument,
                "a part lies beyond the end of the values; pass the whole bucket");
  }
  return values.subspan(begin, elems);
}

// Payloads one behind the other.
struct PackedParts {
  std::vector<std::int64_t> heads;  // codec and length of each
  std::uint64_t not_finite = 0;     // how many parts were
  Payload joined;
};

// Encodes parts. The memory of packed parts that are gone serves the next.
class PartPacker {
 public:
  std::shared_ptr<PackedParts> pack(const std::vector<std::shared_ptr<TensorEncoder>>& encoders,
                                    const py::object& values,
                                    const std::vector<std::uint64_t>& begins, std::uint64_t step) {
    const ArrayArgument array(values, "values");
    const auto all = array.floats();
    if (begins.size() != encoders.size()) {
      throw Error(ErrorCode::kInvalidArgument, "pass as many beginnings as encoders");
    }
    auto packed = std::make_shared<PackedParts>();
    Bytes bytes = memory_.take();
    {
      const py::gil_scoped_release released;
      for (std::size_t i = 0; i < encoders.size(); ++i) {
        const std::size_t before = bytes.size();
        const Encoded encoded =
            encoders[i]->append(values_of(all, {begins[i], encoders[i]->elems()}), step, bytes);
        packed->not_finite += encoded.not_finite ? 1 : 0;
        packed->heads.push_back(static_cast<std::int64_t>(encoded.codec));
        packed->heads.push_back(static_cast<std::int64_t>(bytes.size() - before));
      }
    }
    packed->joined = memory_.payload(CodecId::kFp32, false, std::move(bytes));
    return packed;
  }

 private:
  PayloadMemory memory_;
};

py::buffer_info buffer_of(const PackedParts& packed) {
  // An empty buffer must have an address too. Nobody writes, but torch warns of what is read-only.
  static std::byte none{};
  auto* const data =
      packed.joined.bytes.empty() ? &none : const_cast<std::byte*>(packed.joined.bytes.data());
  return {reinterpret_cast<std::uint8_t*>(data),
          static_cast<py::ssize_t>(packed.joined.bytes.size()), false};
}

// Payloads that came from another rank, which may send anything.
class ArrivedParts {
 public:
  // Throws kDataLoss where the heads are not those of so many payloads in so many bytes.
  ArrivedParts(const py::object& heads, const py::object& bytes, std::size_t count)
      : bytes_(bytes, "bytes") {
    const ArrayArgument array(heads, "heads");
    const auto numbers = array.longs();
    if (numbers.size() != 2 * count) fail();
    ByteView rest = bytes_.bytes();
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t codec = numbers[2 * i];
      const auto length = static_cast<std::uint64_t>(numbers[2 * i + 1]);
      if (codec < 0 || codec > std::numeric_limits<std::uint8_t>::max() || length > rest.size()) {
        fail();
      }
      payloads_.emplace_back(static_cast<CodecId>(codec), rest.first(length));
      rest = rest.subspan(length);
    }
  }

  void decode_into(std::size_t part, std::span<float> values) const {
    const auto& [codec, payload] = payloads_[part];
    decode(codec, payload, values);
  }
  void add_to(std::size_t part, float weight, std::span<float> values) const {
    const auto& [codec, payload] = payloads_[part];
    decode_add(codec, payload, weight, values);
  }

 private:
  [[noreturn]] static void fail() {
    throw Error(ErrorCode::kDataLoss,
                "what another rank sent is damaged or of another model; give every rank the same "
                "model and settings");
  }

  ArrayArgument bytes_;
  std::vector<std::pair<CodecId, ByteView>> payloads_;
};

void decode_parts(const py::object& heads, const py::object& bytes, const py::object& values,
                  const std::vector<Stretch>& stretches) {
  const ArrivedParts arrived(heads, bytes, stretches.size());
  const ArrayArgument array(values, "values", Access::kWrite);
  const auto all = array.floats();
  const py::gil_scoped_release released;
  for (std::size_t i = 0; i < stretches.size(); ++i) {
    arrived.decode_into(i, values_of(all, stretches[i]));
  }
}

void add_parts(const std::vector<std::pair<py::object, py::object>>& received, float weight,
               const py::object& values, const std::vector<Stretch>& stretches, bool from_zero) {
  std::vector<std::unique_ptr<ArrivedParts>> arrived;
  for (const auto& [heads, bytes] : received) {
    arrived.push_back(std::make_unique<ArrivedParts>(heads, bytes, stretches.size()));
  }
  const ArrayArgument array(values, "values", Access::kWrite);
  const auto all = array.floats();
  const py::gil_scoped_release released;
  for (std::size_t i = 0; i < stretches.size(); ++i) {
    const auto sums = values_of(all, stretches[i]);
    if (from_zero) std::ranges::fill(sums, 0.0F);
    for (const auto& parts : arrived) parts->add_to(i, weight, sums);
  }
}

}  // namespace

void bind_parts(py::module_& module) {
  py::class_<PackedParts, std::shared_ptr<PackedParts>>(
      module, "_PackedParts", py::buffer_protocol(), "Payloads one behind the other, as bytes.")
      .def_buffer([](PackedParts& packed) { return buffer_of(packed); })
      .def_property_readonly(
          "heads",
          [](const PackedParts& packed) {
            return py::bytearray(reinterpret_cast<const char*>(packed.heads.data()),
                                 packed.heads.size() * sizeof(packed.heads.front()));
          },
          "Codec and length of each payload in turn, as int64.")
      .def_readonly("not_finite", &PackedParts::not_finite, "How many of the parts were.")
      .def("__len__", [](const PackedParts& packed) { return packed.joined.bytes.size(); });
  py::class_<PartPacker>(module, "_PartPacker", "Encodes parts, in memory that it uses again.")
      .def(py::init())
      .def("pack", &PartPacker::pack, py::arg("encoders"), py::arg("values"), py::arg("begins"),
           py::arg("step"),
           "Has each encoder encode its shape's values of the flat array `values`, from its own "
           "beginning on.");
  module.def("_decode_parts", &decode_parts, py::arg("heads"), py::arg("bytes"), py::arg("values"),
             py::arg("stretches"),
             R"(Decodes packed parts into stretches (first value, number) of a flat array.

heads  int64, codec and length of each part. Raises Error (kDataLoss) where bytes are damaged; parts
before the damaged one are then decoded.)");
  module.def("_add_parts", &add_parts, py::arg("received"), py::arg("weight"), py::arg("values"),
             py::arg("stretches"), py::arg("from_zero"),
             R"(Adds weight times the packed parts of several ranks, (heads, bytes) each, in turn.

from_zero  what is in the stretches before does not count)");
}

}  // namespace tersewire::python
