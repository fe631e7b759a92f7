#include "cgroup_quota.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace tersewire {
namespace {

namespace fs = std::filesystem;

// Microseconds of processor time in each period; nothing where a group has no such files or no
// limit.
std::optional<double> quota_in(const fs::path& group, bool is_v2) {
  double quota = 0;
  double period = 0;
  if (is_v2) {
    std::ifstream(group / "cpu.max") >> quota >> period;  // "max 100000" without a limit
  } else {
    std::ifstream(group / "cpu.cfs_quota_us") >> quota;  // -1 without a limit
    std::ifstream(group / "cpu.cfs_period_us") >> period;
  }
  if (!(quota > 0 && period > 0)) return std::nullopt;
  return quota / period;
}

// A group's own path does not exist where a container sees only its own group, as the uppermost.
void visit_up(const fs::path& mount, const std::string& group, bool is_v2,
              std::optional<double>& least) {
  fs::path path = fs::path(group).relative_path();
  for (;; path = path.parent_path()) {
    const auto quota = quota_in(mount / path, is_v2);
    if (quota && (!least || *quota < *least)) least = quota;
    if (path.empty()) return;
  }
}

bool has_cpu(const std::string& controllers) {
  std::istringstream list(controllers);
  for (std::string name; std::getline(list, name, ',');) {
    if (name == "cpu") return true;
  }
  return false;
}

}  // namespace

std::optional<std::size_t> cores_of_quota(const std::string& root) {
  const fs::path mount = fs::path(root) / "sys/fs/cgroup";
  std::optional<double> least;
  std::ifstream groups(fs::path(root) / "proc/self/cgroup");
  // HIERARCHY:CONTROLLERS:PATH; those of version 2 have no controllers.
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      visit_up(mount, group, true, least);
    } else if (has_cpu(controllers)) {
      visit_up(mount / "cpu", group, false, least);
    }
  }
  if (!least) return std::nullopt;
  return static_cast<std::size_t>(std::max(1.0, std::ceil(*least)));
}

}  // namespace tersewire
