// Files as a whole, and how sentences name them.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <new>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "tersewire/bytes.h"
#include "tersewire/error.h"

namespace tersewire::apps {

// What to do with a .tw file that is damaged.
inline constexpr std::string_view kUseAnotherCopy =
    "use another copy of it, or the release of tersewire that wrote it";

// In the place of a file's name: standard input, or standard output.
inline constexpr std::string_view kStandardStream = "-";

// A file's name as sentences have it.
std::string shown(const std::string& path);

// Throws WrongUsage where two paths are one file: writing one would destroy the other.
void refuse_same_file(const std::string& first, const std::string& second);

// Runs `task`, which works on the file's contents; what it throws is thrown on with the file's
// name, where it has none yet: what fails to read the file says it.
template <typename Task>
auto with_file(const std::string& path, Task&& task) {
  try {
    return std::forward<Task>(task)();
  } catch (const Error& error) {
    const std::string_view sentence = error.what();
    if (sentence.starts_with(shown(path) + " cannot be read")) throw;
    if (sentence.starts_with(shown(path) + " ends after ")) throw;
    throw Error(error.code(), fmt::format("{}: {}", shown(path), error.what()));
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kResourceExhausted,
                fmt::format("{}: there is not enough memory for its array; use a machine with more",
                            shown(path)));
  }
}

// Whether a sentence of the library says itself what to do with a message.
bool advises(std::string_view sentence);

// As with_file(), for a .tw file or a state; of what is damaged, `advice` says what to do.
template <typename Task>
auto with_tw_file(const std::string& path, std::string_view advice, Task&& task) {
  return with_file(path, [&] {
    try {
      return std::forward<Task>(task)();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kDataLoss || advises(error.what())) throw;
      throw Error(error.code(), fmt::format("{}; {}", error.what(), advice));
    }
  });
}

// The whole of a regular file, a pipe or, for -, standard input. Throws an Error that names it and
// says what to do.
Bytes read_file(const std::string& path);
// The same; nothing where it does not exist.
std::optional<Bytes> read_file_if_exists(const std::string& path);

// The values of an .npy file; f8 is rounded to f32. Throws as well where one is too large for that
// or not finite.
Floats load_npy_floats(const std::string& path);

// What a directory holds. Throws an Error that names it where it cannot be listed.
std::vector<std::filesystem::directory_entry> entries_in(const std::filesystem::path& directory);
// The same, or as much of it as can be listed.
std::vector<std::filesystem::directory_entry> entries_in(const std::filesystem::path& directory,
                                                         std::error_code& error);

// What a file holds, as text.
std::string string_of(const Bytes& bytes);

// What a file holds; is_discarded() where that is no JSON.
nlohmann::json parse_json(ByteView bytes);

}  // namespace tersewire::apps
