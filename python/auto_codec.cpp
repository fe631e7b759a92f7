#include "python/auto_codec.h"

#include <utility>

namespace tersewire::python {

using trainer::CodecDecisions;

AutoCodec::AutoCodec(Job& job, Transport& end, CodecDecisions before,
                     std::optional<CodecDecisions> replay, std::optional<double> bytes_a_day,
                     bool overlaps)
    : end_(end),
      limits_(job.wait_limits()),
      codecs_(job.ladder->codecs),
      replay_(std::move(replay)),
      rungs_(std::make_shared<trainer::DecidedRungs>(*job.ladder)) {
  if (end.rank() == 0) {
    for (const trainer::CodecDecision& each : before) said_.push_back(each.sentence);
    pilot_.emplace(
        job, bytes_a_day, end, *rungs_, [this](const CodecDecisions& all) { note(all); },
        std::move(before), replay_ ? &*replay_ : nullptr, overlaps);
  } else {
    others_.emplace(end, *rungs_);
  }
  job.ladder = trainer::decided_by(
      job, [rungs = rungs_](std::uint64_t step) { return rungs->rung(step); }, {});
}

// Codecs may have worked while training went on, so that what it stood still for is neither theirs
// alone nor all that was waited for.
void AutoCodec::begin_step(std::uint64_t step, double stood_seconds, const Counters& counters) {
  if (pilot_) {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began_;
    Counters seen = counters;
    seen.wait_seconds = stood_seconds - counters.encode_seconds - counters.decode_seconds;
    pilot_->begin(step, seconds.count(), seen);
  } else {
    others_->wait(step, limits_);
  }
  step_ = step;
}

void AutoCodec::note(const CodecDecisions& all) {
  said_.resize(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (said_[i] == all[i].sentence) continue;
    news_.push_back(said_[i] = all[i].sentence);
  }
}

CodecDecisions AutoCodec::decisions() const {
  return pilot_ ? pilot_->decisions() : CodecDecisions();
}

std::string AutoCodec::codec() const {
  return step_ == 0 ? std::string() : codecs_[rungs_->rung(step_)];
}

}  // namespace tersewire::python
