// Looking at files from outside, and refusing them. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tersewire::trainer {

// Whether there is a regular file, or a directory. What cannot be looked at is not there.
bool is_file(const std::string& path);
bool is_directory(const std::string& path);

// The paths of what a directory holds, in the order of their names, without what systems and
// programs leave behind: names with a dot, __MACOSX and the like. Throws kNotFound where it cannot
// be listed.
std::vector<std::string> entries_in(const std::string& directory);

// The names of the directories among them. Throws likewise.
std::vector<std::string> directories_in(const std::string& directory);

// "DIRECTORY/NAME", with one slash.
std::string path_in(const std::string& directory, const std::string& name);

// A whole file. Throws kNotFound where it cannot be opened, kDataLoss where it has more than
// `max_bytes` or ends before its size. Cost: one pass; memory only after the size was checked.
std::vector<std::uint8_t> read_file(const std::string& path, std::uint64_t max_bytes);

// Throws kDataLoss: "PATH: WHAT".
[[noreturn]] void refuse_file(const std::string& path, const std::string& what);

}  // namespace tersewire::trainer
