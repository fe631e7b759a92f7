#include "trainer/chooser/decisions_json.h"

#include <limits>
#include <string>

#include "tersewire/error.h"
#include "trainer/settings/train_config.h"

namespace tersewire::trainer {
namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kDataLoss, what + "; give the decisions.json of a run with codec auto");
}

Json seen(double times) { return times > 0 ? Json(times) : Json(); }

double times_in(const Json& entry, const char* key) {
  return entry.contains(key) && entry[key].is_number() ? entry[key].get<double>() : 0;
}

int updates_in(const Json& entry) {
  const auto found = entry.find("local_updates");
  if (found == entry.end()) return 0;
  constexpr std::uint64_t kMost = std::numeric_limits<int>::max();
  if (found->is_number_unsigned() && found->get<std::uint64_t>() <= kMost) return found->get<int>();
  refuse("an entry's local_updates is not a number of steps");
}

std::string text_in(const Json& entry, const char* key) {
  return entry.contains(key) && entry[key].is_string() ? entry[key].get<std::string>() : "";
}

}  // namespace

Json decisions_json(const CodecDecisions& decisions) {
  Json list = Json::array();
  for (const CodecDecision& each : decisions) {
    Json entry{{"step", each.step},
               {"codec", each.codec},
               {"expected_speedup", seen(each.expected)},
               {"measured_speedup", seen(each.measured)},
               {"sentence", each.sentence}};
    if (each.local_updates > 0) entry["local_updates"] = each.local_updates;
    list.push_back(std::move(entry));
  }
  return list;
}

CodecDecisions decisions_in_json(const Json& list) {
  if (!list.is_array()) refuse("this is not a list of codec decisions");
  CodecDecisions decisions;
  std::uint64_t before = 0;
  for (const Json& entry : list) {
    const std::string codec = entry.is_object() ? text_in(entry, "codec") : "";
    if (codec.empty() || !entry.contains("step") || !entry["step"].is_number_unsigned()) {
      refuse("an entry has no step, or no codec");
    }
    const auto step = entry["step"].get<std::uint64_t>();
    if (step <= before || step > kMostSteps) refuse("its steps do not increase");
    before = step;
    decisions.push_back({.step = step,
                         .codec = codec,
                         .local_updates = updates_in(entry),
                         .expected = times_in(entry, "expected_speedup"),
                         .measured = times_in(entry, "measured_speedup"),
                         .sentence = text_in(entry, "sentence")});
  }
  return decisions;
}

}  // namespace tersewire::trainer
