// What a tensor became, and what arrived for one: bytes that know their codec.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "tersewire/bytes.h"
#include "tersewire/codec.h"
#include "tersewire/thread_pool.h"

namespace tersewire::python {

namespace py = pybind11;

// Immutable. `owner` keeps alive what `bytes` shows; as it may be a Python object, payloads are
// copied and destroyed under the GIL.
struct Payload {
  CodecId codec = CodecId::kFp32;
  bool not_finite = false;
  ByteView bytes;
  std::shared_ptr<const void> owner;
};

// Memory for the payloads of one encoder. That of a payload that is gone serves the next: fresh
// pages for a large one would cost more than encoding. Used under the GIL.
class PayloadMemory {
 public:
  // An empty buffer.
  Bytes take() { return std::move(*spare_); }
  // A payload that owns its bytes.
  Payload payload(CodecId codec, bool not_finite, Bytes bytes);

 private:
  std::shared_ptr<Bytes> spare_ = std::make_shared<Bytes>();
};

// The numbers of a codec's name and back, with "levels" and "contributors", which only frames name.
// Throws kInvalidArgument for an unknown name.
CodecId codec_number(std::string_view name);
std::string codec_text(CodecId codec);

// `argument` itself where it is a Payload; other bytes are taken for a payload of `codec`.
Payload payload_argument(const py::object& argument, CodecId codec);

// decode() and decode_add() into an argument, without the GIL while they compute. Throw like these,
// and kInvalidArgument for an `out` that does not fit or lies in the payload's own memory.
void decode_into(const Payload& payload, const py::object& out, ThreadPool* pool);
void decode_add_into(const Payload& payload, float weight, const py::object& out, ThreadPool* pool);

// A numpy array of its own with these values.
py::object numpy_array(std::span<const float> values);

// A numpy array that shares the memory of `owner`, which has the buffer protocol.
py::object numpy_view(const py::object& owner);

}  // namespace tersewire::python
