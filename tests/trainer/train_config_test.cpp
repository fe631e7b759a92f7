// The table of a job's settings.
#include "trainer/settings/train_config.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace tersewire::trainer {
namespace {

using Keys = std::set<std::string>;

template <typename Wanted>
Keys keys_where(const Wanted& wanted) {
  Keys keys;
  const TrainConfig config;
  visit_settings(config, [&](const Setting& setting, const auto& /*member*/) {
    if (wanted(setting)) keys.insert(setting.key);
  });
  return keys;
}

std::map<std::string, std::string> values_of(const TrainConfig& config) {
  std::map<std::string, std::string> values;
  visit_settings(config, [&](const Setting& setting, const auto& member) {
    values[setting.key] = setting_value(member);
  });
  return values;
}

TEST(Settings, HaveKeysOfTheirOwnAndSayWhatTheyAre) {
  std::multiset<std::string> keys;
  std::multiset<std::string> json_keys;
  const TrainConfig config;
  visit_settings(config, [&](const Setting& setting, const auto& /*member*/) {
    keys.insert(setting.key);
    json_keys.insert(json_key_of(setting));
    EXPECT_FALSE(setting.help.empty()) << setting.key;
    EXPECT_TRUE(setting.most == 0 || setting.least < setting.most) << setting.key;
  });
  for (const std::string& key : keys) EXPECT_EQ(keys.count(key), 1U) << key;
  for (const std::string& key : json_keys) EXPECT_EQ(json_keys.count(key), 1U) << key;
  EXPECT_TRUE(json_keys.contains("local_steps"));
  EXPECT_TRUE(json_keys.contains("deadline_seconds"));
}

TEST(Settings, WhatAResumedRunMayChangeIsWhatItsResultDoesNotRestOn) {
  EXPECT_EQ(keys_where([](const Setting& s) { return s.scope != SettingScope::kRun; }),
            (Keys{"workers", "servers", "transport", "deadline", "progress-limit", "data",
                  "checkpoint-steps", "observe-steps", "keep-going", "threads", "dry", "elastic",
                  "budget"}));
  // Nodes may differ in these alone.
  EXPECT_EQ(
      keys_where([](const Setting& s) { return s.scope == SettingScope::kNode; }),
      (Keys{"transport", "deadline", "progress-limit", "data", "observe-steps", "threads", "dry"}));
}

TEST(Settings, OfATaskAreThoseWithoutWhichAccuraciesDoNotCompare) {
  EXPECT_EQ(keys_where([](const Setting& s) { return s.role == SettingRole::kTask; }),
            (Keys{"model", "data", "augment", "skip-unreadable", "workers", "batch", "compute-ms",
                  "slowest"}));
}

TEST(Settings, AreTextsThatTheCommandLineTakes) {
  TrainConfig config;
  auto values = values_of(config);
  EXPECT_EQ(values.at("workers"), "4");
  EXPECT_EQ(values.at("servers"), "");
  EXPECT_EQ(values.at("bucket-bytes"), "");
  EXPECT_EQ(values.at("dropout"), "");
  EXPECT_EQ(values.at("raw-from-all"), "false");
  EXPECT_EQ(values.at("deadline"), "120");
  EXPECT_EQ(values.at("part-values"), std::to_string(Job::kDefaultPartValues));
  config.job.servers = Job::kColocated;
  config.job.part_values = Job::kWholeTensors;
  config.job.bucket_bytes = 65536;
  config.job.raw_from_all = true;
  config.job.staleness = Job::kUnbounded;
  config.learning_rate = 0.1 + 0.2;
  values = values_of(config);
  EXPECT_EQ(values.at("servers"), "colocated");
  EXPECT_EQ(values.at("part-values"), "whole");
  EXPECT_EQ(values.at("staleness"), "unbounded");
  EXPECT_EQ(values.at("bucket-bytes"), "65536");
  EXPECT_EQ(values.at("raw-from-all"), "true");
  EXPECT_EQ(std::stod(values.at("lr")), 0.1 + 0.2);
}

}  // namespace
}  // namespace tersewire::trainer
