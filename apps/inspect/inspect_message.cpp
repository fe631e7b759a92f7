// What a message holds: a .tw file, a state, or what an application captured.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "apps/inspect/inspection.h"
#include "tersewire/codec.h"
#include "tersewire/message.h"
#include "tersewire/tw_file.h"

namespace tersewire::apps {
namespace {

constexpr double kBitsPerByte = 8;

// Numbers as numbers, switches as booleans, the rest as text.
Json json_value(const std::string& text) {
  if (text == "on") return true;
  if (text == "off") return false;
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && parsed == end && std::isfinite(number)) return number;
  return text;
}

Json parameters_json(const Frame& frame) {
  Json parameters = Json::object();
  if (frame.codec == CodecId::kContributors) return parameters;
  for (const CodecParameter& parameter : payload_parameters(frame.codec, frame.payload)) {
    parameters[parameter.key] = json_value(parameter.value);
  }
  return parameters;
}

// The ranks whose bits are set.
Json contributors_json(ByteView bitmap) {
  Json ranks = Json::array();
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

Json frame_json(const Frame& frame) {
  const bool contributors = frame.codec == CodecId::kContributors;
  const auto elems = known_elems(frame);
  if (elems) check_payload(frame.codec, frame.payload, *elems);
  Json json;
  json["tensor"] = frame.tensor;
  json["part"] = frame.part;
  json["codec"] = contributors ? "contributors" : codec_name(frame.codec);
  json["parameters"] = parameters_json(frame);
  if (contributors) json["contributors"] = contributors_json(frame.payload);
  json["elems"] = elems ? Json(*elems) : Json();
  json["shape"] = frame.description ? Json(frame.description->dims) : Json();
  json["dtype"] = Json();
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
Json array_json(const Json& parts, std::size_t wire_bytes) {
  Json json = parts.front();
  std::size_t elems = 0;
  std::size_t payload_bytes = 0;
  bool not_finite = false;
  for (const Json& part : parts) {
    elems += part["elems"].get<std::size_t>();
    payload_bytes += part["payload_bytes"].get<std::size_t>();
    not_finite = not_finite || part["not_finite"].get<bool>();
  }
  const auto finite =
      std::ranges::find_if(parts, [](const Json& part) { return !part["not_finite"].get<bool>(); });
  if (finite != parts.end()) {
    json["codec"] = (*finite)["codec"];
    json["parameters"] = (*finite)["parameters"];
  }
  json["parts"] = parts.size();
  json["elems"] = elems;
  json["payload_bytes"] = payload_bytes;
  json["not_finite"] = not_finite;
  const auto bytes = static_cast<double>(wire_bytes);
  const auto n = static_cast<double>(elems);
  json["wire_bytes"] = wire_bytes;
  json["bits_per_value"] = elems > 0 ? Json(bytes * kBitsPerByte / n) : Json();
  json["compression_ratio"] = elems > 0 ? Json(n * sizeof(float) / bytes) : Json();
  return json;
}

Json header_json(const MessageHeader& header) {
  return {{"kind", to_string(header.kind)}, {"sender", header.sender}, {"step", header.step}};
}

// Of a .tw file or a state.
Json file_json(ByteView bytes) {
  const std::vector<Message> messages = parse_tw_file(bytes);
  Json frames = Json::array();
  for (const Message& message : messages) frames.push_back(frame_json(message.frames.front()));
  Json json = header_json(messages.front().header);
  json.update(array_json(frames, bytes.size()));
  json["frames"] = std::move(frames);
  return json;
}

Json message_json(ByteView bytes) {
  const MessageKind kind = message_kind(bytes);
  if (kind == MessageKind::kFile || kind == MessageKind::kState) return file_json(bytes);
  const Message message = parse_message(bytes);
  Json frames = Json::array();
  for (const Frame& frame : message.frames) frames.push_back(frame_json(frame));
  Json json = header_json(message.header);
  json["wire_bytes"] = bytes.size();
  json["frames"] = std::move(frames);
  return json;
}

std::string message_text(const Json& json) {
  std::string text = lines_of(json, "");
  if (json.contains("codec")) return text;
  std::size_t i = 0;
  for (const Json& frame : json["frames"]) {
    text += fmt::format("frame {}\n{}", i++, lines_of(frame, "  "));
  }
  return text;
}

}  // namespace

Inspection inspect_message(ByteView bytes) {
  Json json = message_json(bytes);
  std::string text = message_text(json);
  return {std::move(json), std::move(text)};
}

}  // namespace tersewire::apps
