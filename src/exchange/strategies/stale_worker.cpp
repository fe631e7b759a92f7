#include <algorithm>
#include <deque>

#include "stale_server.h"

namespace tersewire {
namespace {

// A part's deltas of a version that have arrived and have not been added yet.
struct Change {
  std::uint64_t step;  // that the answer which they came in brings to
  SharedBytes bytes;   // what `frame` points into
  Frame frame;
};

struct WorkerPart {
  std::unique_ptr<Encoder> encoder;
  std::deque<Change> changes;
};

// What a worker has asked of a bucket's server, and heard.
struct Asked {
  std::uint64_t pushed = 0;    // the step of the last push that was sent
  std::uint64_t answered = 0;  // the version that the last answer brings to
};

// Its steps are the numbers of versions: it computes the one after the last that it knows of.
class StaleWorker final : public Worker {
 public:
  StaleWorker(std::shared_ptr<const Placement> placed, Transport& transport, Update update,
              ThreadPool* threads)
      : Worker(std::move(placed), transport, threads),
        update_(std::move(update)),
        parts_(parts().size()),
        asked_(placement().buckets.size()),
        ended_(static_cast<std::size_t>(placement().servers), false) {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      parts_[i].encoder = encoder_for(placement(), placement().push_codecs, i, rank());
    }
  }

 private:
  void keep(Received received) override;
  void contribute(std::size_t part, std::uint64_t step, std::span<const float> gradient) override;
  [[nodiscard]] bool change_is_here(std::size_t part) const override {
    return !parts_[part].changes.empty();
  }
  void apply_change(std::size_t part, std::span<float> parameters, Counters& counted) override;
  // A push has one answer; once this worker is done, whatever comes is for it.
  [[nodiscard]] bool lacks_change(std::size_t part, std::uint64_t step) const override {
    const Asked& bucket = asked_[placement().bucket_of[part]];
    return pushed_step(part) <= step && (bucket.pushed > bucket.answered || change_is_here(part));
  }
  [[nodiscard]] std::uint64_t change_step(std::size_t part) const override {
    return parts_[part].changes.back().step;
  }
  void wait_for_step() override;
  [[nodiscard]] std::uint64_t next_step() const override;
  [[nodiscard]] std::uint64_t last_step() const override { return newest_; }
  void say_done() override;
  [[nodiscard]] std::vector<ResidualRun> residual_runs() override { return residuals_of(parts_); }
  void skip_to(std::uint64_t step) override {
    newest_ = step;
    std::ranges::fill(asked_, Asked{.pushed = step, .answered = step});
  }
  // Replicas of different versions differ: they are compared before the first step and at the end.
  [[nodiscard]] bool replicas_agree_before(std::uint64_t step) const override {
    return step == step_before_first() + 1;
  }

  void take_end(const Received& received);
  void check_answer(const Received& received) const;

  Update update_;  // none: the servers own the model
  std::vector<WorkerPart> parts_;
  std::vector<Asked> asked_;  // by bucket
  bool done_ = false;
  std::vector<bool> ended_;   // by server
  std::uint64_t newest_ = 0;  // version of any bucket
  Floats mean_;
};

// In the name of the step, or of a later one where that bucket has a newer version already than
// the step was chosen by.
void StaleWorker::contribute(std::size_t part, std::uint64_t begun,
                             std::span<const float> gradient) {
  counters_.pushed_values += gradient.size();
  Asked& bucket = asked_[placement().bucket_of[part]];
  const std::uint64_t step = std::max(begun, bucket.answered + 1);
  add_to_push(MessageKind::kPush, *parts_[part].encoder, part, step, gradient);
  const SharedBytes push =
      take_push(part, step, placement().share_node(rank(), placement().owners[part]));
  if (!push) return;
  bucket.pushed = step;
  send(placement().owners[part], push);
}

// The first answer says it, and that others may know of newer versions does no harm. But in two
// jobs every push of a step must have its number: where states are saved, lest one be of a saved
// step and another not; and where a version waits for several pushes. There the workers of the step
// after the newest version push it for all buckets, and wait meanwhile for none that is older; with
// numbers of their own each might wait, in another bucket, for the others.
void StaleWorker::wait_for_step() {
  const auto awaits_answer = [](const Asked& bucket) { return bucket.pushed > bucket.answered; };
  const bool one_number = job().state_steps > 0 || job().backup_workers > 0;
  wait_until(
      [&] {
        return one_number ? std::ranges::none_of(asked_, awaits_answer)
                          : exchanged_step() != step() || newest_ >= step();
      },
      [] { return "an answer to what was pushed"; });
}

// Where states are saved every worker is there.
std::uint64_t StaleWorker::next_step() const {
  const std::uint64_t latest = std::max(step(), newest_) + 1;
  for (std::uint64_t next = step() + 1; next < latest; ++next) {
    if (is_saved_after(job(), next)) return next;
  }
  return latest;
}

void StaleWorker::say_done() {
  done_ = true;
  tell_done(job().workers, placement().servers);
  wait_until([&] { return std::ranges::find(ended_, false) == ended_.end(); },
             [] { return "the last deltas, which come when every worker is done"; });
}

void StaleWorker::keep(Received received) {
  const MessageHeader& header = received.message.header;
  counters_.pulled_bytes += received.bytes->size();
  if (header.kind != MessageKind::kPull) {
    fail(ErrorCode::kDataLoss, "message from rank {}: workers take pulls only", received.from);
  }
  if (received.message.frames.empty()) return take_end(received);
  check_answer(received);
  for (const Frame& frame : received.message.frames) {
    const std::size_t part = part_in(placement(), received.from, frame);
    asked_[placement().bucket_of[part]].answered = header.step;
    parts_[part].changes.push_back({header.step, received.bytes, frame});
  }
  newest_ = std::max(newest_, header.step);
}

void StaleWorker::take_end(const Received& received) {
  const int server = received.from - job().workers;
  const bool awaited = done_ && server >= 0 && server < placement().servers &&
                       !ended_[static_cast<std::size_t>(server)];
  if (!awaited) {
    fail(ErrorCode::kDataLoss, "message from rank {}: a pull without a delta", received.from);
  }
  ended_[static_cast<std::size_t>(server)] = true;
  newest_ = std::max(newest_, received.message.header.step);
}

// Every part of one bucket as often as each other, version by version.
void StaleWorker::check_answer(const Received& received) const {
  const std::size_t first = part_in(placement(), received.from, received.message.frames.front());
  const std::size_t number = placement().bucket_of[first];
  const std::vector<std::size_t>& bucket = placement().buckets[number];
  if (placement().owners[first] != received.from) {
    fail(ErrorCode::kDataLoss, "message from rank {}: {} is not its to send", received.from,
         name(first));
  }
  const Asked& asked = asked_[number];
  const std::uint64_t step = received.message.header.step;
  if (step <= asked.answered ||
      (!done_ && (asked.pushed <= asked.answered || step < asked.pushed))) {
    fail(ErrorCode::kDataLoss,
         "message from rank {}: {} came for step {}, which is not due after step {}", received.from,
         name(first), step, asked.answered);
  }
  std::size_t place = 0;
  for (const Frame& frame : received.message.frames) {
    const std::size_t part = part_in(placement(), received.from, frame);
    if (part != bucket[place]) {
      fail(ErrorCode::kDataLoss, "message from rank {}: {} came where {} is due", received.from,
           name(part), name(bucket[place]));
    }
    check_length(received.from, name(part), frame, placement().most_pulled_bytes(part));
    place = (place + 1) % bucket.size();
  }
  if (place == 0) return;
  fail(ErrorCode::kDataLoss, "message from rank {}: it ends where {} is due", received.from,
       name(bucket[place]));
}

// Version by version, so that workers at the same one have added the same in the same order.
void StaleWorker::apply_change(std::size_t part, std::span<float> parameters, Counters& counted) {
  const std::deque<Change> changes = std::exchange(parts_[part].changes, {});
  for (const Change& change : changes) {
    with_context([&] { return "delta of " + name(part); },
                 [&] {
                   const Stopwatch watch(counted.decode_seconds, processor_seconds);
                   if (!update_) {
                     return decode_add(change.frame.codec, change.frame.payload, 1.0F, parameters,
                                       pool());
                   }
                   mean_.resize(parameters.size());
                   decode(change.frame.codec, change.frame.payload, mean_, pool());
                   apply_mean(update_, part, mean_, parameters);
                 });
    counted.pulled_values += parameters.size();
  }
}

}  // namespace

std::unique_ptr<Worker> make_stale_worker(std::shared_ptr<const Placement> placement,
                                          Transport& transport, const Update& update,
                                          ThreadPool* pool) {
  return std::make_unique<StaleWorker>(std::move(placement), transport, update, pool);
}

}  // namespace tersewire
