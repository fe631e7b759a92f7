#include "tersewire/simd.h"

#include <fmt/ranges.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cctype>
#include <cstdint>

#include "errors.h"

namespace tersewire {
namespace {

std::string lower_name(std::int64_t target) {
  std::string name = hwy::TargetName(target);
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

std::string joined(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

// What the machine supports, whatever has been forced, best (lowest bit) first.
std::vector<std::int64_t> machine_targets() {
  static const std::int64_t supported = hwy::SupportedTargets() & (HWY_TARGETS);
  std::vector<std::int64_t> targets;
  for (std::int64_t left = supported; left != 0; left &= left - 1) targets.push_back(left & -left);
  return targets;
}

// Before anything is forced.
[[maybe_unused]] const auto kMachineTargets = machine_targets();

void use_only(std::int64_t target) {
  hwy::SetSupportedTargetsForTest(target);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace

std::vector<std::string> simd_targets() {
  std::vector<std::string> names;
  for (const std::int64_t target : machine_targets()) names.push_back(lower_name(target));
  return names;
}

std::string simd_target() {
  const std::int64_t usable = hwy::SupportedTargets() & (HWY_TARGETS);
  return lower_name(usable & -usable);
}

void force_simd_target(std::string_view target) {
  if (target == "best") return use_only(0);
  for (const std::int64_t candidate : machine_targets()) {
    if (lower_name(candidate) == target) return use_only(candidate);
  }
  fail(ErrorCode::kInvalidArgument, "unknown SIMD target '{}' on this machine; use best, {}",
       target, joined(simd_targets()));
}

}  // namespace tersewire
