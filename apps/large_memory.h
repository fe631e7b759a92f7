// Where a command's large arrays lie: in files, which the system reads and writes part by part as
// they are used, so that an array may be larger than the machine's memory.
#pragma once

#include <string>

namespace tersewire::apps {

// From now on what this process allocates with new in pieces of 64 MiB and above lies in files
// without names beside `path` (for -, in $TMPDIR or /tmp), one each, for which there is room; and
// in ordinary memory where there can be none. Throws nothing. Before other threads allocate.
void keep_large_memory_beside(const std::string& path);

}  // namespace tersewire::apps
