// What `tersewire compare` runs: designs x numbers of steps x seeds, each cell a run of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/compare/compare_design.h"
#include "apps/run/numbers/traffic_ratios.h"
#include "trainer/loop/train.h"

namespace tersewire::apps {

// As the command line has it.
struct CompareOptions {
  std::string recipe;  // empty: train's defaults
  std::string designs = "fp32; int8; 3lc:s=1.00; 3lc:s=1.75";
  std::vector<std::string> steps = {"100%"};
  std::vector<std::string> rates{kUsualRates.begin(), kUsualRates.end()};
  std::vector<std::string> settings;  // KEY=VALUE
  std::uint64_t repeat = 1;
};

struct Cell {
  std::size_t design = 0;
  std::uint64_t steps = 0;
  std::uint64_t seed = 0;
  std::string name;                    // of its directory below cells/
  std::vector<std::string> arguments;  // of tersewire, without the directory
};

struct ComparePlan {
  std::string recipe;
  std::vector<Design> designs;
  std::vector<trainer::TrainConfig> configs;  // of the designs, with all steps and the first seed
  std::size_t baseline = 0;                   // fp32, or the first
  std::uint64_t full_steps = 0;               // what 100% is
  std::vector<StepCount> steps;
  std::vector<std::uint64_t> seeds;
  std::vector<Rate> rates;
  std::vector<Cell> cells;  // seed by seed, so that what there is early is there of every design
};

// Checks every design with every number of steps as train does before its first step. Throws
// WrongUsage with the design's name for what makes no sense, and two designs that are the same job;
// an Error where data or recipe cannot be read. Cost: loading the data once.
ComparePlan make_compare_plan(const CompareOptions& options);

// A codec with all its parameters, of which local updates have other defaults.
std::string whole_text(const std::string& codec, int local_updates);

// What decides the cells: designs, steps, seeds and every setting. Two plans with the same may go
// on with each other's cells.
nlohmann::json compare_plan_json(const ComparePlan& plan);

}  // namespace tersewire::apps
