#include "apps/train/notice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <stop_token>
#include <system_error>
#include <utility>

#include "apps/cli/failures.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/output.h"
#include "tersewire/setting_text.h"

namespace tersewire::apps {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLook(50);
constexpr double kLeastSeconds = 1;
constexpr double kMostSeconds = 30 * 24 * 3600;

bool is_there(const std::string& file) {
  std::error_code error;
  return !file.empty() && std::filesystem::exists(file, error);
}

// What is left of the limit when the program is ended: for that, and for a notice that was seen a
// moment late.
milliseconds spare(milliseconds limit) { return std::min(limit / 5, milliseconds(1000)); }

}  // namespace

NoticeWatch::NoticeWatch(const std::string& text) {
  if (text.empty()) return;
  const std::size_t comma = text.find(',');
  limit_text_ = text.substr(0, comma);
  const bool in_seconds = limit_text_.ends_with('s');
  const auto seconds = parsed_number<double>(text.substr(0, limit_text_.size() - 1));
  if (!in_seconds || !seconds || !(*seconds >= kLeastSeconds && *seconds <= kMostSeconds) ||
      comma + 1 == text.size()) {
    throw WrongUsage(
        fmt::format("'{}' is not a notice; write how long it lasts, at least 1s, and the file that "
                    "announces it, if any: 30s, or 30s,/run/notice",
                    text));
  }
  limit_ = milliseconds(static_cast<std::int64_t>(*seconds * 1e3));
  if (comma != std::string::npos) file_ = text.substr(comma + 1);
  if (is_there(file_)) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("the notice file {} already exists, so this machine will be reclaimed; "
                            "start the node elsewhere, or remove the file",
                            file_));
  }
  standing_ = [] { return Standing{.sentence = "nothing of the run is saved"}; };
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void NoticeWatch::ask(std::function<Standing()> standing) {
  const std::lock_guard lock(mutex_);
  standing_ = std::move(standing);
}

bool NoticeWatch::has_come() const { return interrupting_signal() > 0 || is_there(file_); }

void NoticeWatch::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const auto never = [] { return false; };
  while (!has_come()) {
    changed_.wait_for(lock, stop, kLook, never);
    if (stop.stop_requested()) return;
  }
  note(fmt::format("a notice of {} has come\n", limit_text_));
  interrupted = true;
  changed_.wait_for(lock, stop, limit_ - spare(limit_), never);
  if (stop.stop_requested()) return;
  const Standing standing = standing_();
  const std::string sentence =
      fmt::format("the notice of {} is nearly over: {}", limit_text_, standing.sentence);
  if (!standing.saved) {
    say_failure(sentence);
    std::_Exit(failure_code());
  }
  note(sentence + "\n");
  std::_Exit(EXIT_SUCCESS);
}

}  // namespace tersewire::apps
