#include "trainer/files/message_json.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "tersewire/codec.h"
#include "tersewire/message.h"
#include "tersewire/setting_text.h"
#include "tersewire/tw_file.h"

namespace tersewire::trainer {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr double kBitsPerByte = 8;

// Numbers as numbers, switches as booleans, the rest as text.
OrderedJson json_value(const std::string& text) {
  if (text == "on") return true;
  if (text == "off") return false;
  if (const auto number = parsed_number<double>(text)) return *number;
  return text;
}

OrderedJson parameters_json(const Frame& frame) {
  OrderedJson parameters = OrderedJson::object();
  if (frame.codec == CodecId::kContributors) return parameters;
  for (const CodecParameter& parameter : payload_parameters(frame.codec, frame.payload)) {
    parameters[parameter.key] = json_value(parameter.value);
  }
  return parameters;
}

// The ranks whose bits are set.
OrderedJson contributors_json(ByteView bitmap) {
  OrderedJson ranks = OrderedJson::array();
  for (std::size_t bit = 0; bit < 8 * bitmap.size(); ++bit) {
    if ((bitmap[bit / 8] >> (bit % 8) & std::byte{1}) != std::byte{0}) ranks.push_back(bit);
  }
  return ranks;
}

// The number of values where the message itself tells it.
std::optional<std::size_t> known_elems(const Frame& frame) {
  if (const auto elems = frame.elems()) return elems;
  if (frame.codec == CodecId::kFp32) return frame.payload.size() / sizeof(float);
  return std::nullopt;
}

OrderedJson frame_json(const Frame& frame) {
  const bool contributors = frame.codec == CodecId::kContributors;
  const auto elems = known_elems(frame);
  if (elems) check_payload(frame.codec, frame.payload, *elems);
  OrderedJson json;
  json["tensor"] = frame.tensor;
  json["part"] = frame.part;
  json["codec"] = contributors ? "contributors" : codec_name(frame.codec);
  json["parameters"] = parameters_json(frame);
  if (contributors) json["contributors"] = contributors_json(frame.payload);
  json["elems"] = elems ? OrderedJson(*elems) : OrderedJson();
  json["shape"] = frame.description ? OrderedJson(frame.description->dims) : OrderedJson();
  json["dtype"] = OrderedJson();
  if (frame.description) {
    const bool f32 = frame.description->element_type == ElementType::kFloat32;
    json["dtype"] = f32 ? "float32" : "float64";
  }
  json["payload_bytes"] = frame.payload.size();
  json["not_finite"] = frame.not_finite;
  json["payload_verified"] = elems.has_value();
  return json;
}

// Of an array: what its first part says, and what all its parts come to.
class ArraySummary {
 public:
  void add(const OrderedJson& part) {
    const bool not_finite = part["not_finite"].get<bool>();
    if (parts_ == 0) json_ = part;
    // A part that is not finite travels in another codec than the rest.
    if (!not_finite && !any_finite_) {
      json_["codec"] = part["codec"];
      json_["parameters"] = part["parameters"];
    }
    any_finite_ = any_finite_ || !not_finite;
    not_finite_ = not_finite_ || not_finite;
    elems_ += part["elems"].get<std::size_t>();
    payload_bytes_ += part["payload_bytes"].get<std::size_t>();
    ++parts_;
  }

  [[nodiscard]] OrderedJson json(std::size_t wire_bytes) const {
    OrderedJson json = json_;
    json["parts"] = parts_;
    json["elems"] = elems_;
    json["payload_bytes"] = payload_bytes_;
    json["not_finite"] = not_finite_;
    const auto bytes = static_cast<double>(wire_bytes);
    const auto n = static_cast<double>(elems_);
    json["wire_bytes"] = wire_bytes;
    json["bits_per_value"] = elems_ > 0 ? OrderedJson(bytes * kBitsPerByte / n) : OrderedJson();
    json["compression_ratio"] = elems_ > 0 ? OrderedJson(n * sizeof(float) / bytes) : OrderedJson();
    return json;
  }

 private:
  OrderedJson json_;
  bool any_finite_ = false;
  bool not_finite_ = false;
  std::size_t parts_ = 0;
  std::size_t elems_ = 0;
  std::size_t payload_bytes_ = 0;
};

OrderedJson header_json(const MessageHeader& header) {
  return {{"kind", to_string(header.kind)}, {"sender", header.sender}, {"step", header.step}};
}

class MemorySource : public ByteSource {
 public:
  explicit MemorySource(ByteView bytes) : bytes_(bytes) {}

  std::size_t read(std::span<std::byte> out) override {
    const std::size_t got = std::min(out.size(), bytes_.size());
    std::copy_n(bytes_.begin(), got, out.begin());
    bytes_ = bytes_.subspan(got);
    return got;
  }
  [[nodiscard]] std::optional<std::uint64_t> left() const override { return bytes_.size(); }

 private:
  ByteView bytes_;
};

// Counts what is read.
class CountedSource : public ByteSource {
 public:
  explicit CountedSource(ByteSource& source) : source_(source) {}

  std::size_t read(std::span<std::byte> out) override {
    const std::size_t got = source_.read(out);
    bytes_ += got;
    return got;
  }
  [[nodiscard]] std::optional<std::uint64_t> left() const override { return source_.left(); }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  ByteSource& source_;
  std::size_t bytes_ = 0;
};

}  // namespace

OrderedJson tw_file_json(ByteSource& source, bool with_frames) {
  CountedSource counted(source);
  TwReader reader(counted);
  ArraySummary array;
  OrderedJson json;
  OrderedJson frames = OrderedJson::array();
  while (const auto message = reader.next()) {
    if (json.is_null()) json = header_json(message->header);
    OrderedJson frame = frame_json(message->frames.front());
    array.add(frame);
    if (with_frames) frames.push_back(std::move(frame));
  }
  json.update(array.json(counted.bytes()));
  if (with_frames) json["frames"] = std::move(frames);
  return json;
}

OrderedJson message_json(ByteView bytes) {
  if (begins_as_tw_file(bytes)) {
    MemorySource source(bytes);
    return tw_file_json(source, true);
  }
  const Message message = parse_message(bytes);
  OrderedJson frames = OrderedJson::array();
  for (const Frame& frame : message.frames) frames.push_back(frame_json(frame));
  OrderedJson json = header_json(message.header);
  json["wire_bytes"] = bytes.size();
  json["frames"] = std::move(frames);
  return json;
}

}  // namespace tersewire::trainer
