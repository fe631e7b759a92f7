// The lock by which processes that work in a directory keep others out of it.
#pragma once

#include <filesystem>

namespace tersewire::apps {

// Throws kFailedPrecondition where another process works in the directory. Held until this one
// ends; where the file system knows no locks there is none.
void lock_directory(const std::filesystem::path& path);

// The same where no other process does; otherwise nothing.
void lock_directory_if_free(const std::filesystem::path& path);

// Whether another process has locked it.
bool is_locked(const std::filesystem::path& path);

}  // namespace tersewire::apps
