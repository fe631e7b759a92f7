// What a safetensors file holds: a model, or a node's file of a checkpoint.
#include <fmt/format.h>

#include <cstring>

#include "apps/inspect/inspection.h"
#include "apps/run/checkpoint_directory.h"
#include "tersewire/error.h"
#include "trainer/files/tensor_file.h"

namespace tersewire::apps {
namespace {

constexpr std::size_t kLengthBytes = 8;

// One without a checksum may be another program's; one with a wrong checksum is refused.
TensorFile parse(ByteView bytes, bool& checked) {
  try {
    checked = true;
    return parse_tensor_file(bytes, true);
  } catch (const Error&) {
    checked = false;
    return parse_tensor_file(bytes);
  }
}

Json tensors_json(const TensorFile& file) {
  const auto type_of = [&](const std::string& name) {
    const auto found = file.types.find(name);
    return found == file.types.end() ? "F32" : found->second;
  };
  Json tensors = Json::array();
  for (const auto& [name, array] : file.arrays) {
    Json tensor{{"name", name}, {"type", type_of(name)}, {"shape", array.shape}};
    tensor.update(values_json(array.values));
    tensors.push_back(std::move(tensor));
  }
  for (const auto& [name, shape] : file.unread) {
    tensors.push_back({{"name", name}, {"type", type_of(name)}, {"shape", shape}});
  }
  return tensors;
}

Json file_json(ByteView bytes) {
  bool checked = false;
  const TensorFile file = parse(bytes, checked);
  std::uint64_t values = 0;
  for (const auto& [name, array] : file.arrays) values += array.values.size();
  return {{"kind", is_checkpoint_file(file) ? "node of a checkpoint" : "tensors"},
          {"bytes", bytes.size()},
          {"checksum", checked ? "valid" : "none"},
          {"values", values},
          {"facts", Json(file.facts)},
          {"tensors", tensors_json(file)}};
}

std::string file_text(Json json) {
  const Json tensors = std::move(json["tensors"]);
  const Json facts = std::move(json["facts"]);
  json.erase("tensors");
  json.erase("facts");
  json["tensors"] = tensors.size();
  std::string text = lines_of(json, "") + lines_of(facts, "");
  if (tensors.empty()) return text;
  text += fmt::format("\n{:>14} {:>7} {:>12} {:>12} {:>12} {:>10}  tensor\n", "shape", "type",
                      "least", "greatest", "rms", "not finite");
  for (const Json& tensor : tensors) {
    const bool is_read = tensor.contains("values");
    text += fmt::format("{:>14} {:>7} {:>12} {:>12} {:>12} {:>10}  {}{}\n", plain(tensor, "shape"),
                        plain(tensor, "type"), plain(tensor, "least"), plain(tensor, "greatest"),
                        plain(tensor, "rms"), plain(tensor, "not_finite"), plain(tensor, "name"),
                        is_read ? "" : " (its type is not read: convert it to F32)");
  }
  return text;
}

}  // namespace

bool looks_like_tensor_file(ByteView bytes) {
  std::uint64_t length = 0;
  if (bytes.size() <= kLengthBytes) return false;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  return length <= bytes.size() - kLengthBytes && bytes[kLengthBytes] == std::byte{'{'};
}

Inspection inspect_tensor_file(ByteView bytes) {
  Json json = file_json(bytes);
  std::string text = file_text(json);
  return {std::move(json), std::move(text)};
}

}  // namespace tersewire::apps
