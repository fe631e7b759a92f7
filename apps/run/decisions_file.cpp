#include "apps/run/decisions_file.h"

#include <fmt/format.h>

#include "apps/files/read_file.h"
#include "tersewire/error.h"
#include "trainer/train_config.h"

namespace tersewire::apps {
namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(const std::string& path, const char* what) {
  throw Error(
      ErrorCode::kDataLoss,
      fmt::format("{}: {}; name the decisions.json of a run with --codec auto", path, what));
}

Json seen(double times) { return times > 0 ? Json(times) : Json(); }

double times_in(const Json& entry, const char* key) {
  return entry.contains(key) && entry[key].is_number() ? entry[key].get<double>() : 0;
}

}  // namespace

Json decisions_json(const trainer::CodecDecisions& decisions) {
  Json list = Json::array();
  for (const trainer::CodecDecision& each : decisions) {
    list.push_back({{"step", each.step},
                    {"codec", each.codec},
                    {"expected_speedup", seen(each.expected)},
                    {"measured_speedup", seen(each.measured)},
                    {"sentence", each.sentence}});
  }
  return list;
}

trainer::CodecDecisions read_decisions(const std::string& path) {
  const Json json = parse_json(read_file(path));
  if (!json.is_array() || json.empty()) refuse(path, "it holds no decisions");
  trainer::CodecDecisions decisions;
  for (const Json& entry : json) {
    if (!entry.is_object() || !entry.contains("step") || !entry["step"].is_number_unsigned() ||
        !entry.contains("codec") || !entry["codec"].is_string()) {
      refuse(path, "an entry has no step, or no codec");
    }
    trainer::CodecDecision decision{.step = entry["step"].get<std::uint64_t>(),
                                    .codec = entry["codec"].get<std::string>(),
                                    .expected = times_in(entry, "expected_speedup"),
                                    .measured = times_in(entry, "measured_speedup"),
                                    .sentence = {}};
    if (entry.contains("sentence") && entry["sentence"].is_string()) {
      decision.sentence = entry["sentence"].get<std::string>();
    }
    const std::uint64_t before = decisions.empty() ? 0 : decisions.back().step;
    if (decision.step <= before || decision.step > trainer::kMostSteps) {
      refuse(path, "its steps do not rise");
    }
    decisions.push_back(std::move(decision));
  }
  return decisions;
}

}  // namespace tersewire::apps
