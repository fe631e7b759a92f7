#include "apps/predict/model_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/bench/model_tensors.h"
#include "apps/cli/failures.h"
#include "apps/files/read_file.h"
#include "trainer/settings/usual_kind.h"

namespace tersewire::apps {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostTensors = std::size_t{1} << 16;
constexpr std::size_t kMostValues = std::size_t{1} << 37;

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format(R"({}: {}; write a JSON list of {{"name": "fc.weight", "shape": [10, 64]}},)"
                  " one for each tensor in the order of the forward pass",
                  path, what));
}

TensorInfo tensor_of(const Json& entry, std::size_t number, const std::string& path) {
  const auto wrong = [&](const char* what) {
    refuse(path, fmt::format("tensor number {} {}", number, what));
  };
  if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string()) {
    wrong("has no name");
  }
  if (!entry.contains("shape") || !entry["shape"].is_array()) wrong("has no shape");
  TensorInfo tensor{.name = entry["name"].get<std::string>(), .shape = {}};
  for (const Json& size : entry["shape"]) {
    if (!size.is_number_unsigned() || size.get<std::uint64_t>() == 0) {
      wrong("has a shape that is not of whole numbers from 1 on");
    }
    tensor.shape.push_back(size.get<std::uint64_t>());
  }
  tensor.kind = trainer::usual_kind(tensor.name, tensor.shape.size());
  if (entry.contains("kind")) {
    if (!entry["kind"].is_string()) wrong("has a kind that is not text");
    tensor.kind = with_file(path, [&] { return tensor_kind(entry["kind"].get<std::string>()); });
  }
  with_file(path, [&] { static_cast<void>(tensor.elems()); });  // throws where it is too large
  return tensor;
}

std::vector<TensorInfo> read_model(const Bytes& bytes, const std::string& path) {
  const Json list = parse_json(bytes);
  if (!list.is_array() || list.empty()) refuse(path, "it lists no tensors with shapes");
  if (list.size() > kMostTensors) refuse(path, "it lists more than 2^16 tensors");
  std::vector<TensorInfo> tensors;
  std::size_t values = 0;
  for (const Json& entry : list) {
    tensors.push_back(tensor_of(entry, tensors.size(), path));
    values += tensors.back().elems();
    if (values > kMostValues) refuse(path, "it has more than 2^37 values");
  }
  return tensors;
}

}  // namespace

std::vector<TensorInfo> model_argument(const std::string& model, double scale) {
  const auto names = bench::model_names();
  if (std::ranges::find(names, model) != names.end()) {
    return as_usage([&] { return bench::model_tensors(model, scale); });
  }
  const std::optional<Bytes> bytes = read_file_if_exists(model);
  if (!bytes) {
    throw WrongUsage(fmt::format("'{}' is neither a file nor a model; use {}, or a file of shapes",
                                 model, fmt::join(names, ", ")));
  }
  if (scale != 1) throw WrongUsage("--scale is for named models; a file gives its own shapes");
  return read_model(*bytes, model);
}

}  // namespace tersewire::apps
