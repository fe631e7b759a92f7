// What makes the design of a run: its settings, by the roles that they have
// (trainer/settings/train_config.h), and a name for people.
#pragma once

#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/run/run_record.h"

namespace tersewire::apps {

using DesignConfig = std::map<std::string, nlohmann::json>;

// The keys of config.json in which runs of one task agree.
std::vector<std::string> task_keys();

// A run's configuration without what repeats and lengths differ in.
DesignConfig design_config(const RunRecord& run);

// Of each key the value that most designs have, of several such the first.
DesignConfig usual_config(const std::vector<DesignConfig>& designs);

// How many keys of a run's design are not as usual.
std::size_t unusual_keys(const RunRecord& run, const DesignConfig& usual);

// The codec, and what else is unusual; `with_minor`: also what mostly follows from these.
std::string design_name(const RunRecord& run, const DesignConfig& usual, bool with_minor);

// The codecs that a run pushes and pulls with; the directory where it does not say.
std::string codecs_text(const RunRecord& run);

// What a run's configuration says of a key, for people, and of data the name alone: the same may be
// reached by many paths. Empty where it says nothing.
std::string setting_text(const RunRecord& run, const std::string& key);

// One parameter of the codec that a run pushes and pulls with, and all else that makes its design.
struct CodecSetting {
  double value = 0;
  std::string rest;
};

// Nothing where the codec has no number of that name, or pushes and pulls differ.
std::optional<CodecSetting> codec_setting(const RunRecord& run, const std::string& key);

}  // namespace tersewire::apps
