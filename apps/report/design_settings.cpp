#include "apps/report/design_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "tersewire/codec.h"
#include "tersewire/error.h"
#include "tersewire/setting_text.h"
#include "trainer/settings/train_config.h"

namespace tersewire::apps {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kData = "data";
constexpr const char* kRecipe = "recipe";
constexpr std::array<const char*, 2> kCodecs{"push_codec", "pull_codec"};
// What mostly follows from codec and exchange.
constexpr std::array<const char*, 2> kMinor{"policy", "servers"};

std::string plain(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::vector<std::string> keys_with(trainer::SettingRole role) {
  std::vector<std::string> keys;
  const trainer::TrainConfig any;
  trainer::visit_settings(any, [&](const trainer::Setting& setting, const auto& /*member*/) {
    if (setting.role == role) keys.push_back(trainer::json_key_of(setting));
  });
  return keys;
}

template <std::size_t kSize>
bool is_among(const std::array<const char*, kSize>& keys, const std::string& key) {
  return std::ranges::count(keys, key) > 0;
}

}  // namespace

std::vector<std::string> task_keys() { return keys_with(trainer::SettingRole::kTask); }

DesignConfig design_config(const RunRecord& run) {
  DesignConfig config = run.config();
  for (const std::string& key : keys_with(trainer::SettingRole::kNeither)) config.erase(key);
  config.erase(kRecipe);
  const auto data = config.find(kData);
  if (data != config.end()) data->second = setting_text(run, kData);
  return config;
}

std::string codecs_text(const RunRecord& run) {
  const std::string push = run.config_text("push_codec");
  const std::string pull = run.config_text("pull_codec");
  if (push.empty()) return run.directory().filename().string();
  return pull.empty() || pull == push ? push : push + " / " + pull;
}

DesignConfig usual_config(const std::vector<DesignConfig>& designs) {
  DesignConfig usual;
  std::map<std::string, std::size_t> most;
  for (const DesignConfig& design : designs) {
    for (const auto& [key, value] : design) {
      const auto same = static_cast<std::size_t>(
          std::ranges::count_if(designs, [&key = key, &value = value](const DesignConfig& other) {
            const auto found = other.find(key);
            return found != other.end() && found->second == value;
          }));
      if (same <= most[key]) continue;
      most[key] = same;
      usual[key] = value;
    }
  }
  return usual;
}

std::string design_name(const RunRecord& run, const DesignConfig& usual, bool with_minor) {
  std::string name = codecs_text(run);
  for (const auto& [key, value] : design_config(run)) {
    if (is_among(kCodecs, key) || (is_among(kMinor, key) && !with_minor)) continue;
    const auto found = usual.find(key);
    if (found == usual.end() || found->second != value) {
      name += fmt::format(", {}={}", key, plain(value));
    }
  }
  return name;
}

std::size_t unusual_keys(const RunRecord& run, const DesignConfig& usual) {
  std::size_t count = 0;
  for (const auto& [key, value] : design_config(run)) {
    const auto found = usual.find(key);
    count += found == usual.end() || found->second != value ? 1 : 0;
  }
  return count;
}

std::string setting_text(const RunRecord& run, const std::string& key) {
  const auto found = run.config().find(key);
  if (found == run.config().end()) return "";
  if (key != kData) return plain(found->second);
  fs::path path = plain(found->second);
  if (!path.has_filename()) path = path.parent_path();
  return path.filename().string();
}

std::optional<CodecSetting> codec_setting(const RunRecord& run, const std::string& key) {
  const std::string said = codecs_text(run);
  std::string all;
  try {
    all = make_codec(said)->text();
  } catch (const Error&) {
    return std::nullopt;  // two codecs, or none that this version knows
  }
  SettingText text(all, "codec");
  // A lead that nobody said goes by s.
  if (SettingText(said, "codec").take_word("lead").empty()) text.take_word("lead");
  const auto value = parsed_number<double>(text.take_word(key));
  if (!value) return std::nullopt;
  Json rest = design_config(run);
  for (const char* codec : kCodecs) rest[codec] = text.text();
  return CodecSetting{.value = *value,
                      .rest = rest.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

}  // namespace tersewire::apps
