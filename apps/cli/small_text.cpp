#include "apps/cli/small_text.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <fstream>
#include <string_view>

#include "apps/cli/failures.h"

namespace tersewire::apps {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 16;
// Some editors begin a text with it.
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool is_control(unsigned char c) {
  return (c < ' ' && c != '\t' && c != '\n' && c != '\r') || c == 0x7F;
}

}  // namespace

std::optional<std::string> small_text_if_exists(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file && errno == ENOENT) return std::nullopt;
  if (!file) fail_file(path, "read", errno);
  std::string text(kMaxBytes + 1, '\0');
  errno = 0;
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) fail_file(path, "read", errno != 0 ? errno : EIO);
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMaxBytes) {
    throw Error(ErrorCode::kInvalidArgument, path + " is larger than 64 KiB; name another");
  }
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  if (std::ranges::any_of(text, is_control)) {
    throw Error(ErrorCode::kInvalidArgument, path + " is not text; name another");
  }
  return text;
}

}  // namespace tersewire::apps
