#include "apps/run/numbers/object_lines.h"

#include <cerrno>
#include <system_error>

#include "apps/cli/failures.h"
#include "apps/run/numbers/json_object.h"
#include "tersewire/error.h"
#include "trainer/settings/train_config.h"

namespace tersewire::apps {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxLineBytes = std::size_t{1} << 26;

// 0 where there is none.
std::uint64_t step_of(const nlohmann::json& line) {
  const auto step = line.is_object() ? line.find("step") : line.end();
  return step != line.end() && step->is_number_unsigned() ? step->get<std::uint64_t>() : 0;
}

}  // namespace

ObjectLines::ObjectLines(const fs::path& file) : name_(file.string()) {
  std::error_code error;
  if (!fs::exists(file, error)) return;
  if (!fs::is_regular_file(file, error)) {
    throw Error(ErrorCode::kDataLoss,
                name_ + " is not a regular file, as a run would have left; remove it");
  }
  stream_.open(file, std::ios::binary);
  if (!stream_.is_open()) fail_file(name_, "read", errno);
}

std::optional<nlohmann::json> ObjectLines::next() {
  while (read_line()) {
    nlohmann::json line = parse_json_object(text_);
    const std::uint64_t step = step_of(line);
    if (step > step_ && step <= trainer::kMostSteps) {
      step_ = step;
      return line;
    }
    ++damaged_;
  }
  return std::nullopt;
}

bool ObjectLines::read_line() {
  text_.clear();
  if (!stream_.is_open()) return false;
  std::streambuf& bytes = *stream_.rdbuf();
  constexpr int kEnd = std::char_traits<char>::eof();
  for (int c = bytes.sbumpc(); c != '\n'; c = bytes.sbumpc()) {
    if (c == kEnd) {
      torn_ = torn_ || !text_.empty();
      return !text_.empty();
    }
    if (text_.size() == kMaxLineBytes) {
      throw Error(ErrorCode::kDataLoss,
                  name_ + " has a line longer than any that a run writes; name another run");
    }
    text_.push_back(static_cast<char>(c));
  }
  return true;
}

}  // namespace tersewire::apps
