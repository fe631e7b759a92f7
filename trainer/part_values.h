// How a setting, a checkpoint and a command line write Job::part_values: a number, or "whole".
#pragma once

#include <charconv>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "tersewire/communicator.h"

namespace tersewire::trainer {

inline constexpr std::string_view kWholeTensorsText = "whole";

inline std::string part_values_text(std::size_t part_values) {
  return part_values == Job::kWholeTensors ? std::string(kWholeTensorsText)
                                           : std::to_string(part_values);
}

// Nothing where the text is neither.
inline std::optional<std::size_t> part_values_in(std::string_view text) {
  if (text == kWholeTensorsText) return Job::kWholeTensors;
  std::size_t values = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), values);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return values;
}

}  // namespace tersewire::trainer
