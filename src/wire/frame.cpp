#include "frame.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include "errors.h"
#include "shape.h"

namespace tersewire {
namespace {

constexpr std::uint8_t kDescribedBit = 1;
constexpr std::uint8_t kNotFiniteBit = 2;
constexpr std::uint8_t kPartBit = 4;
constexpr std::uint8_t kCutBit = 8;
constexpr std::uint8_t kReservedBits = 0x30;

constexpr std::uint64_t kMaxPayloadBytes = (std::uint64_t{1} << 35) - 1;
constexpr std::uint64_t kMaxParts = std::uint64_t{1} << 32;
constexpr std::uint64_t kPartMultiple = 4;
constexpr std::size_t kMaxRank = 32;

[[noreturn]] void fail_at(std::size_t offset, std::string_view what) {
  fail(ErrorCode::kDataLoss, "{} at offset {}", what, offset);
}

// Whether so many values a part cut a tensor of so many into some.
bool cuts(std::uint64_t part_values, std::uint64_t elems) {
  return part_values > 0 && part_values % kPartMultiple == 0 && part_values < elems &&
         (elems - 1) / part_values < kMaxParts;
}

Description read_description(ByteReader& reader, bool cut) {
  Description description;
  const std::size_t start = reader.offset();
  const auto type = reader.read<std::uint8_t>("element type");
  if (type != static_cast<std::uint8_t>(ElementType::kFloat32) &&
      type != static_cast<std::uint8_t>(ElementType::kFloat64)) {
    fail(ErrorCode::kDataLoss, "unknown element type {} at offset {}", type, start);
  }
  description.element_type = static_cast<ElementType>(type);
  const auto rank = reader.read<std::uint8_t>("rank");
  if (rank > kMaxRank) fail(ErrorCode::kDataLoss, "rank {} at offset {} is above 32", rank, start);
  for (std::size_t i = 0; i < rank; ++i) {
    description.dims.push_back(reader.varint(kMaxElems, "dimension"));
  }
  const auto elems = checked_elems(description.dims);
  if (!elems) fail_at(start, "the dimensions multiply to more than 2^40 elements");
  if (!cut) return description;
  description.part_values = reader.varint(kMaxElems, "number of a part's values");
  if (!cuts(description.part_values, *elems)) {
    fail(ErrorCode::kDataLoss, "parts of {} values cannot divide an array of {}, at offset {}",
         description.part_values, *elems, start);
  }
  return description;
}

CodecId read_codec(ByteReader& reader) {
  const std::size_t start = reader.offset();
  const auto codec = reader.read<std::uint8_t>("codec");
  if (codec > static_cast<std::uint8_t>(kLastCodecId)) {
    fail(ErrorCode::kDataLoss, "codec number {} at offset {} is unknown to this version", codec,
         start);
  }
  return static_cast<CodecId>(codec);
}

// 0 is said by the flag alone, so that a frame has one form.
std::uint32_t read_part(ByteReader& reader) {
  constexpr std::uint64_t kMaxPart = std::numeric_limits<std::uint32_t>::max();
  const std::size_t start = reader.offset();
  const auto part = static_cast<std::uint32_t>(reader.varint(kMaxPart, "part number"));
  if (part == 0) fail_at(start, "part number 0 is written, although an unset flag stands for it");
  return part;
}

// Whether the format can hold it.
void check_frame(const Frame& frame) {
  if (frame.payload.size() > kMaxPayloadBytes) {
    fail(ErrorCode::kInvalidArgument,
         "tensor {}: a payload of {} bytes is above a frame's 2^35 - 1", frame.tensor,
         frame.payload.size());
  }
  if (!frame.description) return;
  const auto& dims = frame.description->dims;
  const auto elems = checked_elems(dims);
  if (dims.size() > kMaxRank || !elems) {
    fail(ErrorCode::kInvalidArgument,
         "a tensor of rank {} cannot be described: at most 32 dimensions and 2^40 elements",
         dims.size());
  }
  const std::uint64_t part_values = frame.description->part_values;
  if (part_values != 0 && !cuts(part_values, *elems)) {
    fail(ErrorCode::kInvalidArgument,
         "a tensor of {} values cannot be cut into parts of {}: a multiple of 4, less than the "
         "tensor, and at most 2^32 parts",
         *elems, part_values);
  }
}

std::uint8_t flags_of(const Frame& frame) {
  const bool cut = frame.description && frame.description->part_values > 0;
  return static_cast<std::uint8_t>((frame.description ? kDescribedBit : 0) |
                                   (frame.not_finite ? kNotFiniteBit : 0) |
                                   (frame.part != 0 ? kPartBit : 0) | (cut ? kCutBit : 0));
}

void append_description(Bytes& out, const Description& description) {
  append_value(out, static_cast<std::uint8_t>(description.element_type));
  append_value(out, static_cast<std::uint8_t>(description.dims.size()));
  for (const std::uint64_t dim : description.dims) append_varint(out, dim);
  if (description.part_values > 0) append_varint(out, description.part_values);
}

}  // namespace

std::size_t Description::elems() const {
  const auto product = checked_elems(dims);
  if (!product) fail(ErrorCode::kOutOfRange, "the dimensions multiply to more than 2^40 elements");
  return *product;
}

std::uint64_t Description::parts() const {
  return part_values == 0 ? 1 : (elems() + part_values - 1) / part_values;
}

std::optional<std::size_t> Frame::elems() const {
  if (!description) return std::nullopt;
  const std::size_t all = description->elems();
  const std::size_t each = description->part_values;
  if (each == 0) return all;
  return part < description->parts() ? std::min(each, all - part * each) : 0;
}

std::size_t read_frame_head(ByteReader& reader, Frame& frame) {
  const std::size_t start = reader.offset();
  constexpr std::uint64_t kMaxTensor = std::numeric_limits<std::uint32_t>::max();
  frame.tensor = static_cast<std::uint32_t>(reader.varint(kMaxTensor, "tensor number"));
  frame.codec = read_codec(reader);
  const auto flags = reader.read<std::uint8_t>("flags");
  if ((flags & kReservedBits) != 0) fail_at(start, "reserved flags are set in the frame");
  const bool described = (flags & kDescribedBit) != 0;
  const bool cut = (flags & kCutBit) != 0;
  if (cut && !described)
    fail_at(start, "the flag of a tensor that is cut is set without its shape in the frame");
  frame.not_finite = (flags & kNotFiniteBit) != 0;
  if (frame.not_finite && frame.codec != CodecId::kFp32) {
    fail_at(start, "values that are not finite must be sent as fp32 in the frame");
  }
  if ((flags & kPartBit) != 0) frame.part = read_part(reader);
  if (described) frame.description = read_description(reader, cut);
  return static_cast<std::size_t>(reader.varint(kMaxPayloadBytes, "payload length"));
}

Frame read_frame(ByteReader& reader) {
  Frame frame;
  const std::size_t bytes = read_frame_head(reader, frame);
  frame.payload = reader.take(bytes, "payload");
  return frame;
}

void append_frame(Bytes& out, const Frame& frame) {
  append_frame_head(out, frame);
  append(out, frame.payload.data(), frame.payload.size());
}

void append_frame_head(Bytes& out, const Frame& frame) {
  check_frame(frame);
  append_varint(out, frame.tensor);
  append_value(out, static_cast<std::uint8_t>(frame.codec));
  append_value(out, flags_of(frame));
  if (frame.part != 0) append_varint(out, frame.part);
  if (frame.description) append_description(out, *frame.description);
  append_varint(out, frame.payload.size());
}

Frames::Iterator::Iterator(ByteView rest, std::size_t left) : rest_(rest), left_(left) {
  if (left_ > 0) read();
}

Frames::Iterator& Frames::Iterator::operator++() {
  if (--left_ > 0) read();
  return *this;
}

void Frames::Iterator::read() {
  ByteReader reader(rest_);
  frame_ = read_frame(reader);
  rest_ = rest_.subspan(reader.offset());
}

Frame Frames::operator[](std::size_t place) const {
  Iterator found = begin();
  for (std::size_t i = 0; i < place; ++i) ++found;
  return *found;
}

}  // namespace tersewire
