#include "apps/predict/dry_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>
#include <vector>

#include "apps/files/read_file.h"
#include "tersewire/codec.h"
#include "tersewire/error.h"

namespace tersewire::apps {
namespace {

using Json = nlohmann::json;

struct Row {
  std::string codec;
  double bits = 0;
  double residual = 0;
};

struct Looked {
  std::string name;
  double values = 0;
  std::vector<Row> rows;
};

[[noreturn]] void refuse(const std::string& path, const std::string& what,
                         const char* advice = "name the dry.json of a run with --dry") {
  throw Error(ErrorCode::kDataLoss, fmt::format("{}: {}; {}", path, what, advice));
}

template <typename Value>
Value member(const Json& entry, const char* key, const std::string& path) {
  const bool fits =
      entry.is_object() && entry.contains(key) &&
      (std::is_same_v<Value, double> ? entry[key].is_number() : entry[key].is_string());
  if (!fits) refuse(path, fmt::format("an entry of 'tensors' has no '{}'", key));
  return entry[key].get<Value>();
}

// Rules are read up to a colon, and end with a semicolon.
void check_name(const std::string& name, const std::string& path) {
  if (name.find_first_of(":;*?") == std::string::npos) return;
  refuse(path, fmt::format("no rule of a policy can name tensor '{}'", name),
         "give it a name without colons, semicolons, * and ?, and make the dry run again");
}

std::vector<Looked> looked_at(const std::string& path) {
  const Json json = parse_json(read_file(path));
  if (!json.is_object() || !json.contains("tensors") || !json["tensors"].is_array() ||
      json["tensors"].empty()) {
    refuse(path, "it has no tensors");
  }
  std::vector<Looked> tensors;
  for (const Json& entry : json["tensors"]) {
    const auto name = member<std::string>(entry, "tensor", path);
    if (tensors.empty() || tensors.back().name != name) {
      check_name(name, path);
      tensors.push_back(
          {.name = name, .values = member<double>(entry, "values", path), .rows = {}});
    }
    if (member<double>(entry, "looks", path) < 1) {
      refuse(path, fmt::format("tensor '{}' was not sampled: the run had too few steps", name),
             "name the dry.json of a longer run");
    }
    // What was tried, where the policy of the dry run had something else for this tensor.
    const Row row{
        .codec = member<std::string>(entry, entry.contains("used") ? "used" : "codec", path),
        .bits = member<double>(entry, "bits_per_value", path),
        .residual = member<double>(entry, "residual", path)};
    with_file(path, [&] { return make_codec(row.codec); });
    tensors.back().rows.push_back(row);
  }
  return tensors;
}

const Row& chosen(const Looked& tensor, double most_residual) {
  const auto rank = [&](const Row& row) {
    const bool will_do = row.residual <= most_residual;
    return std::pair(!will_do, will_do ? row.bits : row.residual);
  };
  return *std::ranges::min_element(tensor.rows, {}, rank);
}

}  // namespace

std::string policy_from_dry_run(const std::string& path, double most_residual) {
  const std::vector<Looked> tensors = looked_at(path);
  std::map<std::string, double> values;  // by codec
  for (const Looked& tensor : tensors) values[chosen(tensor, most_residual).codec] += tensor.values;
  const auto common =
      std::ranges::max_element(values, {}, &std::pair<const std::string, double>::second);
  std::string policy;
  for (const Looked& tensor : tensors) {
    const std::string& codec = chosen(tensor, most_residual).codec;
    if (codec != common->first) policy += fmt::format("name={}:{}; ", tensor.name, codec);
  }
  return policy + "*:" + common->first;
}

}  // namespace tersewire::apps
