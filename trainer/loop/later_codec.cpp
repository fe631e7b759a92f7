#include "trainer/loop/later_codec.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <memory>

#include "tersewire/codec.h"
#include "tersewire/counted.h"
#include "tersewire/error.h"
#include "trainer/chooser/codec_chooser.h"
#include "trainer/loop/train.h"

namespace tersewire::trainer {
namespace {

constexpr double kWhole = 100;  // percent

[[noreturn]] void refuse_later(const std::string& sentence) {
  throw Error(ErrorCode::kInvalidArgument, sentence);
}

}  // namespace

LaterCodec later_codec(const std::string& text, std::uint64_t steps) {
  double when = 0;
  const char* const text_end = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), text_end, when);
  const std::string rest(end, text_end);
  const bool is_percent = rest.starts_with("%:");
  const std::string codec = is_percent ? rest.substr(2) : rest.substr(rest.empty() ? 0 : 1);
  const bool is_step = rest.starts_with(':') && when == std::floor(when);
  const double most = is_percent ? kWhole : static_cast<double>(steps);
  if (error != std::errc() || !(is_percent || is_step) || codec.empty() ||
      !(when > 0 && when < most)) {
    // With --epochs the number of steps is not known before the data is.
    const std::string of = steps < kTooManySteps ? " for a job of " + counted(steps, "step") : "";
    refuse_later("'" + text + "' is not a later codec" + of +
                 "; write after what share or number of steps it begins, and the codec: "
                 "40%:3lc:s=1.75, or 400:3lc:s=1.75");
  }
  const double after = is_percent ? std::round(when / kWhole * static_cast<double>(steps)) : when;
  return {.after = static_cast<std::uint64_t>(after), .codec = codec};
}

std::string scaled_later_codec(const std::string& text, std::uint64_t steps) {
  const auto [after, codec] = later_codec(text, steps);
  if (text.ends_with("%:" + codec)) return text;
  const double part = static_cast<double>(after) / static_cast<double>(steps);
  return fmt::format("{}%:{}", part * kWhole, codec);
}

void go_on_with(const LaterCodec& later, const TrainConfig& config, Job& job) {
  if (job.push_codec == kAutoCodec || later.codec == kAutoCodec) {
    refuse_later("codec auto chooses later codecs itself; give no later codec");
  }
  if (job.pull_codec != job.push_codec && job.pull_codec != adaptive_pull_codec(job.push_codec)) {
    refuse_later("a later codec is for both directions, but they begin with " + job.push_codec +
                 " and " + job.pull_codec + "; give one of them as --codec");
  }
  const auto a_round = static_cast<std::uint64_t>(job.steps_a_round());
  CodecLadder ladder{.codecs = {job.push_codec, later.codec},
                     .rung = [after = later.after, a_round](std::uint64_t exchange) -> std::size_t {
                       return (exchange - 1) * a_round >= after ? 1 : 0;
                     }};
  std::string pulled = later.codec;
  if (job.pull_codec == default_pull_codec(config, job.push_codec)) {
    pulled = default_pull_codec(config, later.codec);
  } else if (job.pull_codec != job.push_codec) {
    pulled = adaptive_pull_codec(later.codec);
  }
  ladder.pull_codecs = {job.pull_codec, pulled};
  if (job.local_updates > 0) {
    ladder.steps = {job.local_updates, job.local_updates};
    ladder.last_step = [a_round](std::uint64_t exchange) { return exchange * a_round; };
  }
  job.ladder = std::make_shared<const CodecLadder>(std::move(ladder));
}

}  // namespace tersewire::trainer
