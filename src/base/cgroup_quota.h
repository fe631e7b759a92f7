// The processor time that a process's control groups allow it, which is not in its affinity. Linux
// alone; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace tersewire {

// The cores that the smallest quota of this process's groups (version 1 or 2) and their parents
// comes to, rounded up, at least 1; nothing where none has a quota.
//   root  the directory that has proc/ and sys/
std::optional<std::size_t> cores_of_quota(const std::string& root = "/");

}  // namespace tersewire
