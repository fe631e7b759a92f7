// What a safetensors file holds: a model, or a node's file of a checkpoint.
#include <fmt/format.h>

#include <cstring>

#include "apps/inspect/inspection.h"
#include "apps/run/checkpoint_directory.h"
#include "tersewire/error.h"
#include "trainer/tensor_file.h"

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
  Json tensors = Json::array();
  for (const auto& [name, array] : file.arrays) {
    Json tensor{{"name", name}, {"shape", array.shape}};
    tensor.update(values_json(array.values));
    tensors.push_back(std::move(tensor));
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
  text += fmt::format("\n{:>14} {:>12} {:>12} {:>12} {:>10}  tensor\n", "shape", "least",
                      "greatest", "rms", "not finite");
  for (const Json& tensor : tensors) {
    text += fmt::format("{:>14} {:>12} {:>12} {:>12} {:>10}  {}\n", plain(tensor, "shape"),
                        plain(tensor, "least"), plain(tensor, "greatest"), plain(tensor, "rms"),
                        plain(tensor, "not_finite"), plain(tensor, "name"));
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
