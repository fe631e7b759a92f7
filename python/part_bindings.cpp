// What the exchanges of tersewire.torch call for each bucket: many parts of one flat array at once,
// because a call a part costs more than encoding a small one.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "python/array_argument.h"
#include "python/bindings.h"
#include "python/tensor_encoder.h"
#include "tersewire/codec.h"
#include "tersewire/error.h"
#include "tersewire/thread_pool.h"

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

// Payloads one behind the other, from this rank's encoders or from another rank, which may send
// anything. Immutable; destroyed under the GIL, as its owner may be a Python object.
struct PackedParts {
  std::vector<std::int64_t> heads;  // codec and length of each
  ByteView bytes;
  std::shared_ptr<const void> owner;  // keeps alive what `bytes` shows
};

using SharedParts = std::shared_ptr<PackedParts>;

constexpr std::size_t kHead = 2;  // numbers in a head

[[noreturn]] void refuse_parts() {
  throw Error(ErrorCode::kDataLoss,
              "what another rank sent is damaged or of another model; give every rank the same "
              "model and settings");
}

SharedParts arrived_parts(const py::object& heads, const py::object& bytes) {
  const ArrayArgument numbers(heads, "heads");
  const auto memory = std::make_shared<ArrayArgument>(bytes, "bytes");
  const auto values = numbers.longs();
  return std::make_shared<PackedParts>(PackedParts{
      .heads = {values.begin(), values.end()}, .bytes = memory->bytes(), .owner = memory});
}

struct PartPayload {
  CodecId codec;
  ByteView bytes;
};

// Throws kDataLoss where these are not so many payloads.
std::vector<PartPayload> payloads_of(const PackedParts& parts, std::size_t count) {
  if (parts.heads.size() != kHead * count) refuse_parts();
  std::vector<PartPayload> payloads;
  ByteView rest = parts.bytes;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t codec = parts.heads[kHead * i];
    const auto length = static_cast<std::uint64_t>(parts.heads[kHead * i + 1]);
    if (codec < 0 || codec > std::numeric_limits<std::uint8_t>::max() || length > rest.size()) {
      refuse_parts();
    }
    payloads.push_back({static_cast<CodecId>(codec), rest.first(length)});
    rest = rest.subspan(length);
  }
  return payloads;
}

std::vector<SharedParts> split(const PackedParts& parts, const std::vector<std::size_t>& counts) {
  const auto all = payloads_of(parts, std::reduce(counts.begin(), counts.end()));
  std::span<const PartPayload> payloads = all;
  std::span<const std::int64_t> heads = parts.heads;
  ByteView rest = parts.bytes;
  std::vector<SharedParts> pieces;
  for (const std::size_t count : counts) {
    std::size_t bytes = 0;
    for (const PartPayload& payload : payloads.first(count)) bytes += payload.bytes.size();
    const auto own = heads.first(kHead * count);
    pieces.push_back(std::make_shared<PackedParts>(PackedParts{
        .heads = {own.begin(), own.end()}, .bytes = rest.first(bytes), .owner = parts.owner}));
    payloads = payloads.subspan(count);
    heads = heads.subspan(own.size());
    rest = rest.subspan(bytes);
  }
  return pieces;
}

py::buffer_info buffer_of(const PackedParts& packed) {
  // An empty buffer must have an address too. Nobody writes, but torch warns of what is read-only.
  static std::byte none{};
  auto* const data = packed.bytes.empty() ? &none : const_cast<std::byte*>(packed.bytes.data());
  return {reinterpret_cast<std::uint8_t*>(data), static_cast<py::ssize_t>(packed.bytes.size()),
          false};
}

void decode_parts(const PackedParts& packed, const py::object& values,
                  const std::vector<Stretch>& stretches, ThreadPool* pool) {
  const auto payloads = payloads_of(packed, stretches.size());
  const ArrayArgument array(values, "values", Access::kWrite);
  const auto all = array.floats();
  const py::gil_scoped_release released;
  for (std::size_t i = 0; i < stretches.size(); ++i) {
    decode(payloads[i].codec, payloads[i].bytes, values_of(all, stretches[i]), pool);
  }
}

// Adds weight times each rank's payload of a part to it.
class PartSums {
 public:
  // from_zero: what was there before does not count.
  PartSums(const std::vector<SharedParts>& received, std::size_t parts, float weight,
           bool from_zero, ThreadPool* pool)
      : weight_(weight), from_zero_(from_zero), pool_(pool) {
    for (const SharedParts& packed : received) of_ranks_.push_back(payloads_of(*packed, parts));
  }

  void add(std::size_t part, std::span<float> values) const {
    if (from_zero_) std::ranges::fill(values, 0.0F);
    for (const auto& payloads : of_ranks_) {
      decode_add(payloads[part].codec, payloads[part].bytes, weight_, values, pool_);
    }
  }

 private:
  std::vector<std::vector<PartPayload>> of_ranks_;
  float weight_;
  bool from_zero_;
  ThreadPool* pool_;
};

void add_parts(const std::vector<SharedParts>& received, float weight, const py::object& values,
               const std::vector<Stretch>& stretches, bool from_zero, ThreadPool* pool) {
  const PartSums sums(received, stretches.size(), weight, from_zero, pool);
  const ArrayArgument array(values, "values", Access::kWrite);
  const auto all = array.floats();
  const py::gil_scoped_release released;
  for (std::size_t i = 0; i < stretches.size(); ++i) sums.add(i, values_of(all, stretches[i]));
}

// Encodes parts that lie at the same places of each bucket. The memory of packed parts that are
// gone serves the next.
class PartEncoders {
 public:
  PartEncoders(std::vector<std::shared_ptr<TensorEncoder>> encoders,
               const std::vector<std::uint64_t>& begins, std::shared_ptr<PayloadMemory> memory,
               ThreadPool* pool)
      : encoders_(std::move(encoders)),
        memory_(std::move(memory)),
        pool_(pool),
        encoded_bytes_(encoders_.size()) {
    if (begins.size() != encoders_.size()) {
      throw Error(ErrorCode::kInvalidArgument, "pass as many beginnings as encoders");
    }
    for (std::size_t i = 0; i < begins.size(); ++i) {
      stretches_.emplace_back(begins[i], encoders_[i]->elems());
    }
  }

  SharedParts encode(const py::object& values, std::uint64_t step) {
    const ArrayArgument array(values, "values");
    return encoded(array.floats(), step, nullptr);
  }

  SharedParts encode_mean(const std::vector<SharedParts>& received, const py::object& values,
                          std::uint64_t step) {
    const PartSums mean(received, stretches_.size(), 1.0F / static_cast<float>(received.size()),
                        true, pool_);
    const ArrayArgument array(values, "values", Access::kWrite);
    return encoded(array.floats(), step, &mean);
  }

  [[nodiscard]] const std::vector<std::uint64_t>& encoded_bytes() const { return encoded_bytes_; }
  [[nodiscard]] std::uint64_t not_finite() const { return not_finite_; }

 private:
  SharedParts encoded(std::span<float> values, std::uint64_t step, const PartSums* mean) {
    auto packed = std::make_shared<PackedParts>();
    Bytes bytes = memory_->take();
    {
      const py::gil_scoped_release released;
      for (std::size_t i = 0; i < encoders_.size(); ++i) {
        const auto own = values_of(values, stretches_[i]);
        if (mean != nullptr) mean->add(i, own);
        const std::size_t before = bytes.size();
        const Encoded encoded = encoders_[i]->append(own, step, bytes, pool_);
        const std::size_t length = bytes.size() - before;
        not_finite_ += encoded.not_finite ? 1 : 0;
        encoded_bytes_[i] += length;
        packed->heads.push_back(static_cast<std::int64_t>(encoded.codec));
        packed->heads.push_back(static_cast<std::int64_t>(length));
      }
    }
    Payload joined = memory_->payload(CodecId::kFp32, false, std::move(bytes));
    packed->bytes = joined.bytes;
    packed->owner = std::move(joined.owner);
    return packed;
  }

  std::vector<std::shared_ptr<TensorEncoder>> encoders_;
  std::vector<Stretch> stretches_;
  std::shared_ptr<PayloadMemory> memory_;
  ThreadPool* pool_;
  std::vector<std::uint64_t> encoded_bytes_;
  std::uint64_t not_finite_ = 0;
};

}  // namespace

void bind_parts(py::module_& module) {
  py::class_<PackedParts, SharedParts>(module, "_PackedParts", py::buffer_protocol(),
                                       "Payloads of several parts, one behind the other; as bytes.")
      .def(py::init(&arrived_parts), py::arg("heads"), py::arg("bytes"),
           "What another rank sent; decoding checks it.")
      .def_buffer([](PackedParts& packed) { return buffer_of(packed); })
      .def_property_readonly(
          "heads",
          [](const PackedParts& packed) {
            return py::bytearray(reinterpret_cast<const char*>(packed.heads.data()),
                                 packed.heads.size() * sizeof(packed.heads.front()));
          },
          "Codec and length of each payload in turn, as int64.")
      .def("split", &split, py::arg("counts"),
           "The first counts[0] payloads, the next counts[1], ... in the same memory.");
  py::class_<PayloadMemory, std::shared_ptr<PayloadMemory>>(
      module, "_PayloadMemory", "Memory of packed parts that are gone, for the next.")
      .def(py::init());
  py::class_<PartEncoders>(module, "_PartEncoders",
                           "Encodes parts that lie at the same places of each bucket.")
      .def(py::init<std::vector<std::shared_ptr<TensorEncoder>>, const std::vector<std::uint64_t>&,
                    std::shared_ptr<PayloadMemory>, ThreadPool*>(),
           py::keep_alive<1, 5>(), py::arg("encoders"), py::arg("begins"), py::arg("memory"),
           py::arg("pool") = py::none(), "pool: threads to use; the bytes do not depend on it.")
      .def("encode", &PartEncoders::encode, py::arg("values"), py::arg("step"),
           "Has each encoder encode its shape's values of a flat array, from its own beginning on.")
      .def("encode_mean", &PartEncoders::encode_mean, py::arg("received"), py::arg("values"),
           py::arg("step"),
           "As encode(), once the mean of what several ranks sent has taken the values' place.")
      .def_property_readonly("encoded_bytes", &PartEncoders::encoded_bytes,
                             "Of each part, all encodings together.")
      .def_property_readonly("not_finite", &PartEncoders::not_finite,
                             "How many encodings were of a NaN or an infinity.");
  module.def("_decode_parts", &decode_parts, py::arg("packed"), py::arg("values"),
             py::arg("stretches"), py::arg("pool") = py::none(),
             R"(Decodes packed parts into stretches (first value, number) of a flat array.

Raises Error (kDataLoss) where bytes are damaged; parts before the damaged one are then decoded.)");
  module.def("_add_parts", &add_parts, py::arg("received"), py::arg("weight"), py::arg("values"),
             py::arg("stretches"), py::arg("from_zero"), py::arg("pool") = py::none(),
             R"(Adds weight times the packed parts of several ranks, in turn.

from_zero  what is in the stretches before does not count)");
}

}  // namespace tersewire::python
