#include "apps/files/read_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/cli/failures.h"
#include "apps/files/input_stream.h"
#include "apps/files/npy_file.h"

namespace tersewire::apps {

namespace {

namespace fs = std::filesystem;

}  // namespace

std::string shown(const std::string& path) {
  return path == kStandardStream ? "standard input" : path;
}

void refuse_same_file(const std::string& first, const std::string& second) {
  if (first == kStandardStream || second == kStandardStream) return;
  std::error_code none;
  const auto place = [&](const std::string& path) {
    return fs::weakly_canonical(fs::absolute(path, none), none);
  };
  const bool same = fs::exists(first, none)
                        ? fs::is_regular_file(first, none) && fs::equivalent(first, second, none)
                        : place(first) == place(second);
  if (first == second || same) {
    throw WrongUsage(fmt::format("{} and {} are the same file; name two", first, second));
  }
}

bool advises(std::string_view sentence) {
  constexpr std::array kAdvice{"; use ", "; pass ", "; run "};
  return std::ranges::any_of(
      kAdvice, [&](const char* advice) { return sentence.find(advice) != std::string_view::npos; });
}

std::optional<Bytes> read_file_if_exists(const std::string& path) {
  const auto stream = InputStream::if_exists(path);
  if (!stream) return std::nullopt;
  try {
    return stream->read_rest();
  } catch (const std::bad_alloc&) {
    fail_file(path, "read", ENOMEM);
  }
}

Bytes read_file(const std::string& path) {
  std::optional<Bytes> bytes = read_file_if_exists(path);
  if (!bytes) fail_file(path, "read", ENOENT);
  return std::move(*bytes);
}

Floats load_npy_floats(const std::string& path) {
  InputStream stream(path);
  return with_file(path, [&] {
    NpyReader reader(stream);
    Floats values;
    reader.read(reader.header().elems, values);
    reader.expect_end();
    if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) {
      throw Error(ErrorCode::kInvalidArgument,
                  "it holds a NaN or an infinity, which no codec compresses; name another array");
    }
    return values;
  });
}

std::vector<fs::directory_entry> entries_in(const fs::path& directory) {
  std::error_code error;
  auto entries = entries_in(directory, error);
  if (error) fail_file(directory.string(), "read", error.value());
  return entries;
}

std::vector<fs::directory_entry> entries_in(const fs::path& directory, std::error_code& error) {
  std::vector<fs::directory_entry> entries;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    entries.push_back(*entry);
  }
  return entries;
}

std::string string_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

nlohmann::json parse_json(ByteView bytes) {
  const auto* begin = reinterpret_cast<const char*>(bytes.data());
  return nlohmann::json::parse(begin, begin + bytes.size(), nullptr, false);
}

}  // namespace tersewire::apps
