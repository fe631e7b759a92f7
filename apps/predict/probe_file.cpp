#include "apps/predict/probe_file.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "apps/files/read_file.h"

namespace tersewire::apps {
namespace {

using Json = nlohmann::json;

// What is beyond makes no sense.
constexpr double kMostRate = 1e15;
constexpr double kMostLatency = 1e3;
constexpr double kMostOfAValue = 64;  // bits, and seconds even more so

[[noreturn]] void refuse(const std::string& path, const std::string& what,
                         const char* advice = "name what 'tersewire probe --json' printed") {
  throw Error(ErrorCode::kDataLoss, fmt::format("{}: {}; {}", path, what, advice));
}

double number(const Json& object, const char* key, const std::string& path, double least,
              double most) {
  if (!object.contains(key) || !object[key].is_number()) {
    refuse(path, fmt::format("it has no number '{}'", key));
  }
  const double value = object[key].get<double>();
  if (!(value >= least && value <= most)) {
    refuse(path, fmt::format("{} is out of range for '{}'", value, key));
  }
  return value;
}

void add_codec(const Json& entry, const std::string& path, ProbeFile& probe) {
  if (!entry.is_object() || !entry.contains("codec") || !entry["codec"].is_string()) {
    refuse(path, "a codec has no name");
  }
  const auto codec = entry["codec"].get<std::string>();
  CodecCost cost = with_file(path, [&] { return measured_codec(codec).cost; });
  // In a dry run of fewer steps than codecs, whose figures are then all 0.
  const auto is_zero = [&](const char* key) { return entry.contains(key) && entry[key] == 0; };
  if (is_zero("looks") && is_zero("bits_per_value")) {
    refuse(path, fmt::format("codec {} was not sampled: the run had too few steps", codec),
           "name the dry.json of a longer run");
  }
  const auto take = [&](const char* key, double& value) {
    if (entry.contains(key)) value = number(entry, key, path, 0, kMostOfAValue);
  };
  take("encode_seconds_per_value", cost.encode_seconds);
  take("decode_seconds_per_value", cost.decode_seconds);
  take("bits_per_value", cost.bits);
  probe.push[codec] = cost;
  take("pull_bits_per_value", cost.bits);
  probe.pull[codec] = cost;
}

}  // namespace

ProbeFile read_probe(const std::string& path) {
  const Json json = parse_json(read_file(path));
  if (!json.is_object()) refuse(path, "it is not a probe");
  ProbeFile probe;
  probe.link = {.bits_per_second = number(json, "rate_bits_per_second", path, 1, kMostRate),
                .latency_seconds = number(json, "latency_seconds", path, 0, kMostLatency)};
  if (!json.contains("codecs") || !json["codecs"].is_array()) refuse(path, "it has no codecs");
  for (const Json& entry : json["codecs"]) add_codec(entry, path, probe);
  return probe;
}

}  // namespace tersewire::apps
