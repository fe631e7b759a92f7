#include "apps/files/file_pairs.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <filesystem>
#include <map>
#include <system_error>

#include "apps/cli/failures.h"
#include "apps/files/read_file.h"

namespace tersewire::apps {

namespace fs = std::filesystem;

FilePairs::FilePairs(CLI::App& command, std::string in_extension, std::string out_extension)
    : in_extension_(std::move(in_extension)), out_extension_(std::move(out_extension)) {
  command.add_option("FILES", files_,
                     fmt::format("IN{} and OUT{}, or with --out-dir any number of IN{}; - is "
                                 "standard input or output",
                                 in_extension_, out_extension_, in_extension_));
  command.add_option(
      "--out-dir", out_dir_,
      fmt::format("Directory for one {} of each input, under its name", out_extension_));
  command.add_flag("--force", force_, "Overwrite files that exist");
}

std::vector<FilePair> FilePairs::named() const {
  if (out_dir_.empty()) {
    if (files_.size() == 2) return {{files_[0], files_[1]}};
    throw WrongUsage(
        fmt::format("name two files, IN{} and OUT{}, not {}; or --out-dir and any "
                    "number of IN{}",
                    in_extension_, out_extension_, files_.size(), in_extension_));
  }
  if (files_.empty()) {
    throw WrongUsage(fmt::format("name at least one IN{} for --out-dir", in_extension_));
  }
  std::vector<FilePair> pairs;
  std::map<std::string, std::string> inputs;  // by output
  for (const std::string& input : files_) {
    if (input == kStandardStream) {
      throw WrongUsage("standard input has no file name to use in --out-dir; name OUT");
    }
    fs::path name = fs::path(input).filename();
    if (name.extension() == in_extension_) name.replace_extension();
    const std::string output = (fs::path(out_dir_) / name).string() + out_extension_;
    const auto [other, is_new] = inputs.emplace(output, input);
    if (!is_new) {
      throw WrongUsage(fmt::format("{} and {} would both become {}; give them different names",
                                   other->second, input, output));
    }
    pairs.push_back({input, output});
  }
  return pairs;
}

std::vector<FilePair> FilePairs::pairs() const {
  std::vector<FilePair> pairs = named();
  std::error_code error;
  for (const auto& [input, output] : pairs) {
    refuse_same_file(input, output);
    if (input != kStandardStream && fs::status(input, error).type() == fs::file_type::not_found) {
      fail_file(input, "read", ENOENT);
    }
    if (!force_ && output != kStandardStream && fs::is_regular_file(output, error)) {
      throw Error(ErrorCode::kFailedPrecondition,
                  fmt::format("{} exists; give --force to overwrite it, or name another", output));
    }
  }
  if (!out_dir_.empty()) fs::create_directories(out_dir_, error);
  if (!out_dir_.empty() && error) fail_file(out_dir_, "made", error.value());
  return pairs;
}

}  // namespace tersewire::apps
