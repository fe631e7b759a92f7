// What has to survive a power cut.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

namespace tersewire::apps {

// Brings a file's or a directory's name, which its directory holds, to the disk. Throws an Error
// that names the file `told`.
void sync_name(const std::filesystem::path& path, const std::string& told);

// Brings to the disk what a file holds; nothing where there is none. Throws an Error that names it.
void sync_file(const std::filesystem::path& path);

// As std::filesystem::create_directories(), but the names of those that it makes are on the disk.
// Throws as sync_name().
bool make_directories(const std::filesystem::path& path, std::error_code& error);

}  // namespace tersewire::apps
