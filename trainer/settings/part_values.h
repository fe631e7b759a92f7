// How a setting, a checkpoint and a command line write Job::part_values: a number, or "whole".
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "tersewire/communicator.h"
#include "tersewire/setting_text.h"

namespace tersewire::trainer {

inline constexpr std::string_view kWholeTensorsText = "whole";

inline std::string part_values_text(std::size_t part_values) {
  return part_values == Job::kWholeTensors ? std::string(kWholeTensorsText)
                                           : std::to_string(part_values);
}

// Nothing where the text is neither.
inline std::optional<std::size_t> part_values_in(std::string_view text) {
  if (text == kWholeTensorsText) return Job::kWholeTensors;
  return parsed_number<std::size_t>(text);
}

}  // namespace tersewire::trainer
