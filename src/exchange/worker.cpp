#include "worker.h"

#include <cmath>
#include <numeric>
#include <utility>

#include "tersewire/counted.h"

namespace tersewire {
namespace {

// What a worker may have pushed without an answer, in buckets' bytes, or a message where that is
// longer. Enough to keep a link busy while answers travel: 8 MiB are 67 ms at 1 Gbit/s.
constexpr std::size_t kWindowBuckets = 8;
constexpr std::size_t kLeastWindowBytes = std::size_t{8} << 20;  // where the job does not say

}  // namespace

Worker::Worker(std::shared_ptr<const Placement> placement, Transport& transport, ThreadPool* pool)
    : placement_(std::move(placement)),
      transport_(transport),
      pool_(pool),
      me_(fmt::format("worker {}", transport.rank())),
      progress_(placement_->parts.size()),
      open_pushes_(placement_->buckets.size()),
      replicas_(placement_->job.tensors.size(), placement_->job.workers),
      encoded_bytes_(placement_->job.tensors.size(), 0.0) {
  // Where workers share scalers they agree on this too, as infinite ones.
  if (!job().raw_from_all || placement_->options.scaler_sharing) return;
  held_.emplace(placement_);
  if (rank() == 0) count_.emplace(placement_);
}

Worker::~Worker() {
  if (finished_ || leaves_with_means()) return;
  transport_.abort(me_ + " left the job before it was finished");
}

void Worker::resume(const NodeState& state) {
  try {
    const auto runs = residual_runs();
    load_residuals(*placement_, state.pushed, runs);
    // A colocated server's are its own.
    const auto followed = followed_runs();
    if (!followed.empty()) load_residuals(*placement_, state.followed, followed);
  } catch (...) {
    finished_ = true;  // the job ends with this error instead
    throw;
  }
  step_ = step_before_first_ = under_way_.step = exchanges_in(job(), state);
  std::ranges::fill(progress_, Progress{.pushed_step = step_, .applied_step = step_});
  skip_to(step_);
}

NodeState Worker::state() {
  check_has_states(job(), placement().options);
  const bool begun = step_ > step_before_first_;
  const bool took_means = leaves_with_means();
  for (std::size_t i = 0; i < progress_.size() && begun && !took_means; ++i) {
    if (progress_[i].applied_step + 1 == step_ && progress_[i].pushed_step < step_) continue;
    fail(ErrorCode::kFailedPrecondition,
         "{} is not between its pull and its push of {} {}; take the state when every tensor has "
         "been pulled in a step, and none has been pushed",
         name(i), step_noun(), step_);
  }
  NodeState state = empty_state(*placement_, rank(), took_means || !begun ? step_ : step_ - 1);
  state.pushed = save_residuals(*placement_, residual_runs());
  state.followed = save_residuals(*placement_, followed_runs());
  return state;
}

std::vector<std::vector<float>> Worker::residuals() {
  return by_tensor(*placement_, save_residuals(*placement_, residual_runs()));
}

std::uint64_t Worker::begin_step() {
  return guarded([&] {
    check_unfinished();
    check_pushed();
    keep_what_has_arrived();
    wait_for_verdicts();
    wait_for_step();
    if (job().undoable) before_step_.keep(residual_runs());
    return step_ = next_step();
  });
}

void Worker::pull(std::size_t tensor, std::span<float> parameters) {
  guarded([&] {
    check_unfinished();
    if (step_ == step_before_first_)
      fail(ErrorCode::kFailedPrecondition, "begin a step before tensor number {} is pulled",
           tensor);
    bring_to(tensor, step_ - 1, parameters);
    const std::uint64_t next = next_change(tensor);
    if (is_checked_before(next)) sum_up(tensor, next, parameters);
  });
}

void Worker::push(std::size_t tensor, std::span<const float> gradient) {
  guarded([&] {
    check_unfinished();
    check_values(job(), tensor, gradient.size());
    const auto fragment = turn_of(tensor);
    if (!fragment) fail_no_turn(tensor);
    note_began(*fragment);
    // From the last on, as the backward pass comes to tensors, and as buckets are made.
    std::vector<std::size_t> pushed;
    for (std::size_t part = placement_->first_part[tensor + 1];
         part-- > placement_->first_part[tensor];) {
      if (placement_->fragment_of[part] == *fragment) pushed.push_back(part);
    }
    std::span<const std::size_t> rest = pushed;
    while (!rest.empty()) {
      const auto some = next_at_once(rest, placement_->push_codecs, pool_);
      encode_ahead(some, gradient);
      for (const std::size_t part : some) {
        wait_for_room();
        take_gradient(part, values_of(part, gradient));
        progress_[part].pushed_step = step_;
      }
      ahead_.clear();
      keep_what_has_arrived();
    }
  });
}

std::optional<std::size_t> Worker::turn_of(std::size_t tensor) const {
  std::optional<std::size_t> turn;
  for (std::size_t part = placement_->first_part[tensor]; part < placement_->first_part[tensor + 1];
       ++part) {
    if (pushed_step(part) == step_ || lacks_change(part, step_ - 1)) continue;
    turn =
        std::min(turn.value_or(placement_->fragment_parts.size()), placement_->fragment_of[part]);
  }
  return turn;
}

void Worker::fail_no_turn(std::size_t tensor) const {
  const std::string& name = job().tensors[tensor].name;
  if (step_ == step_before_first_) {
    fail(ErrorCode::kFailedPrecondition, "begin a step before tensor '{}' is pushed", name);
  }
  for (std::size_t part = placement_->first_part[tensor]; part < placement_->first_part[tensor + 1];
       ++part) {
    if (pushed_step(part) == step_) continue;
    fail(ErrorCode::kFailedPrecondition,
         "what came of tensor '{}' in {} {} has not been taken; pull it, or take its mean, before "
         "it is pushed again",
         name, step_noun(), step_ - 1);
  }
  fail(ErrorCode::kFailedPrecondition,
       "tensor '{}' has been pushed in {} {} already; begin the next step first", name, step_noun(),
       step_);
}

void Worker::mean(std::size_t tensor, std::span<float> mean) {
  guarded([&] {
    check_values(job(), tensor, mean.size());
    if (!job().in_lock_step()) {
      fail(ErrorCode::kFailedPrecondition,
           "workers that do not wait for each other have no mean gradient of a step; omit "
           "staleness, or pull() what servers send");
    }
    if (job().backup_workers > 0) {
      fail(ErrorCode::kFailedPrecondition,
           "workers that others may overtake have no mean gradient of every step; use 0 backup "
           "workers, or pull() what servers send");
    }
    const std::size_t first = placement_->first_part[tensor];
    if (job().local_steps > 1 || job().local_updates > 0) {
      fail(ErrorCode::kFailedPrecondition,
           "single steps have no mean gradient with local steps or local updates; pull() the "
           "model, or use neither");
    }
    if (pushed_step(first) != step_ || applied_step(first) + 1 != step_) {
      fail(ErrorCode::kFailedPrecondition,
           "tensor '{}' has no mean to take in step {}; push it first, and take its mean once",
           job().tensors[tensor].name, step_);
    }
    std::vector<std::size_t> taken(placement_->parts_of(tensor));
    std::iota(taken.begin(), taken.end(), first);
    for (const std::size_t part : taken) wait_for_change(part, "the mean of ");
    for_each_part(taken, pool_for(placement(), taken, pool_), counters_,
                  [&](std::size_t part, Counters& counted) {
                    take_mean(part, values_of(part, mean), counted);
                  });
    for (const std::size_t part : taken) note_applied(part, step_);
    keep_what_has_arrived();
  });
}

void Worker::undo(std::size_t tensor) {
  guarded([&] {
    check_tensor(job(), tensor);
    const std::size_t first = placement_->first_part[tensor];
    if (!job().undoable || pushed_step(first) != step_ || applied_step(first) != step_) {
      fail(ErrorCode::kFailedPrecondition,
           "nothing of tensor '{}' can be undone in step {}; make an undoable job, and take the "
           "tensor's mean first",
           job().tensors[tensor].name, step_);
    }
    before_step_.restore(placement(), tensor, residual_runs());
  });
}

void Worker::say_skipped(std::uint64_t steps) {
  guarded([&] {
    if (job().checksum_steps > 0 || step_ == step_before_first_) {
      fail(ErrorCode::kFailedPrecondition,
           "announce a skipped step only after the step has begun, and only in a job without "
           "checksum_steps");
    }
    tell_checksum(step_, steps);
  });
}

void Worker::take_mean(std::size_t /*part*/, std::span<float> /*mean*/, Counters& /*counted*/) {
  fail(ErrorCode::kFailedPrecondition,
       "exchange {} has no mean gradient of a step; use gradient-server, all-gather or ring",
       job().exchange);
}

void Worker::check_unfinished() const {
  if (!finished_) return;
  fail(ErrorCode::kFailedPrecondition,
       "this worker has finished the job; make another communicator for another job");
}

void Worker::check_pushed() const {
  if (step_ == step_before_first_) return;
  const auto missing = std::ranges::find_if(
      progress_, [&](const Progress& part) { return part.pushed_step < step_; });
  if (missing == progress_.end()) return;
  fail(ErrorCode::kFailedPrecondition, "{} was not pushed; push every tensor in every step",
       name(static_cast<std::size_t>(missing - progress_.begin())));
}

bool Worker::leaves_with_means() const {
  return !finished_ && step_ > step_before_first_ &&
         std::ranges::all_of(progress_, [&](const Progress& part) {
           return part.pushed_step == step_ && part.applied_step == step_;
         });
}

void Worker::submit(std::size_t part, std::uint64_t step, std::span<const float> values) {
  if (!held_) return contribute(part, step, values);
  const SharedBytes said = held_->hold(rank(), part, step, values);
  if (!said) return;
  if (rank() == 0) return take_finiteness(0, parse_message(*said, true));
  send(0, said);
}

void Worker::take_finiteness(int from, const Message& message) {
  if (!held_ || (rank() != 0 && from != 0)) {
    fail(ErrorCode::kDataLoss,
         "message from rank {}: its report of what is finite is not for worker {}", from, rank());
  }
  if (rank() != 0) return release(message);
  const SharedBytes verdict = count_->take(from, message);
  if (!verdict) return;
  for (int other = 1; other < job().workers; ++other) send(other, verdict);
  release(parse_message(*verdict, true));
}

void Worker::release(const Message& verdict) {
  for (const HeldPushes::Push& push : held_->release(verdict)) {
    contribute(push.part, verdict.header.step, push.values);
  }
}

// What was pushed is on its way then.
void Worker::wait_for_verdicts() {
  wait_until([&] { return !held_ || !held_->awaits_verdict(); },
             [] { return "the agreement on tensors that are not finite"; });
}

void Worker::take(Incoming incoming) {
  guarded([&] { sort_in(parse_incoming(std::move(incoming))); });
}

void Worker::keep_what_has_arrived() {
  while (auto incoming = transport_.receive(std::chrono::milliseconds(0))) {
    sort_in(parse_incoming(std::move(*incoming)));
  }
}

bool Worker::awaits_what_is_here() const {
  return std::ranges::any_of(awaited_, [](const auto* is_here) { return (*is_here)(); });
}

void Worker::wait_until(const std::function<bool()>& is_here,
                        const std::function<std::string()>& what,
                        const std::function<bool(int)>& needs) {
  if (is_here()) return;
  const Stopwatch watch(counters_.wait_seconds, wall_seconds);
  awaited_.push_back(&is_here);
  const auto not_awaited = [&](void*) { std::erase(awaited_, &is_here); };
  const std::unique_ptr<void, decltype(not_awaited)> waits(this, not_awaited);
  while (!is_here()) {
    Incoming incoming = receive_within(transport_, job().wait_limits(), what(), needs);
    // Who receives for this worker has sorted it in.
    if (incoming.bytes) sort_in(parse_incoming(std::move(incoming)));
  }
}

void Worker::sort_in(Received received) {
  const MessageHeader& header = received.message.header;
  if (header.kind == MessageKind::kChecksum) {
    counters_.pulled_bytes += received.bytes->size();
    if (rank() == 0) {
      return take_checksum(received.from, header.step, checksum_in(received.message));
    }
    fail(ErrorCode::kDataLoss, "message from rank {}: checksums go to worker 0", received.from);
  }
  if (header.kind == MessageKind::kFiniteness) {
    counters_.pulled_bytes += received.bytes->size();
    return take_finiteness(received.from, received.message);
  }
  if (header.step == under_way_.step) under_way_.last_arrival = received.arrived;
  keep(std::move(received));
}

void Worker::finish(std::span<const std::span<float>> parameters) {
  guarded([&] {
    const std::size_t tensors = job().tensors.size();
    if (parameters.size() != tensors) {
      fail(ErrorCode::kInvalidArgument, "the job has {}, and finish() was given {}",
           counted(tensors, "tensor"), parameters.size());
    }
    check_unfinished();
    if (exchanged_step() == step_) check_pushed();
    wait_for_verdicts();
    say_done();
    const std::uint64_t last = last_step();
    const bool checked = job().checksum_steps > 0;
    for (std::size_t i = 0; i < tensors; ++i) {
      bring_to(i, last + closing_changes(placement_->first_part[i]), parameters[i]);
      if (checked) sum_up(i, last + 1, parameters[i]);
    }
    // Leaves nothing on its way for whoever uses the network next.
    wait_until(
        [&] { return !checked || rank() != 0 || replicas_.agreed_before(last + 1); },
        [&] { return fmt::format("the last checksums of {} workers", job().workers); },
        [&](int other) { return other < job().workers && replicas_.awaits(other, last + 1); });
    finished_ = true;
  });
}

void Worker::bring_to(std::size_t tensor, std::uint64_t step, std::span<float> parameters) {
  check_values(job(), tensor, parameters.size());
  const std::size_t first = placement_->first_part[tensor];
  const std::size_t end = placement_->first_part[tensor + 1];
  if (applied_step(first) == step_before_first_) {
    for (std::size_t part = first; part < end; ++part) {
      see_initial(part, values_of(part, parameters));
    }
  }
  // What comes of a fragment's turn need not wait for those of the others.
  const auto parts_that_lack = [&] {
    std::vector<std::size_t> lacking;
    for (std::size_t part = first; part < end; ++part) {
      const std::uint64_t due = job().fragments > 1 ? std::max(step, pushed_step(part)) : step;
      if (lacks_change(part, due)) lacking.push_back(part);
    }
    return lacking;
  };
  // All parts of a step or none, so that a tensor always holds those of one step of a fragment.
  for (auto lacking = parts_that_lack(); !lacking.empty(); lacking = parts_that_lack()) {
    for (const std::size_t part : lacking) wait_for_change(part, "the delta of ");
    std::vector<std::uint64_t> reached;
    for (const std::size_t part : lacking) reached.push_back(change_step(part));
    ThreadPool* const pool = applies_at_once() ? pool_for(placement(), lacking, pool_) : nullptr;
    for_each_part(lacking, pool, counters_, [&](std::size_t part, Counters& counted) {
      apply_change(part, values_of(part, parameters), counted);
    });
    for (std::size_t i = 0; i < lacking.size(); ++i) note_applied(lacking[i], reached[i]);
    keep_what_has_arrived();
  }
}

// The first step that is not in all of the tensor's parts.
std::uint64_t Worker::next_change(std::size_t tensor) const {
  std::uint64_t applied = applied_step(placement_->first_part[tensor]);
  for (std::size_t part = placement_->first_part[tensor]; part < placement_->first_part[tensor + 1];
       ++part) {
    applied = std::min(applied, applied_step(part));
  }
  return applied + 1;
}

void Worker::wait_for_change(std::size_t part, const char* what) {
  wait_until([&] { return change_is_here(part); }, [&] { return what + name(part); },
             [&](int rank) { return needs(part, rank); });
}

void Worker::note_began(std::size_t fragment) {
  if (under_way_.step == step_ && under_way_.fragment == fragment) return;
  const TimePoint now = std::chrono::steady_clock::now();
  under_way_ = {
      .step = step_, .fragment = fragment, .began = now, .last_arrival = now, .applied = 0};
}

void Worker::note_applied(std::size_t part, std::uint64_t step) {
  const std::uint64_t before = std::exchange(progress_[part].applied_step, step);
  const std::size_t fragment = placement_->fragment_of[part];
  if (before >= under_way_.step || step < under_way_.step || fragment != under_way_.fragment)
    return;
  if (++under_way_.applied < placement_->fragment_parts[fragment]) return;
  const std::chrono::duration<double> lasted = under_way_.last_arrival - under_way_.began;
  counters_.exchange_seconds += std::max(lasted.count(), 0.0);
}

void Worker::tell_done(int first, int nodes) {
  MessageWriter done({.kind = MessageKind::kDone,
                      .sender = static_cast<std::uint32_t>(rank()),
                      .step = exchanged_step()});
  const SharedBytes bytes = shared(done);
  for (int node = first; node < first + nodes; ++node) send(node, bytes);
}

// Tells the checksum of all tensors when the last one is in.
void Worker::sum_up(std::size_t tensor, std::uint64_t step, std::span<const float> parameters) {
  const auto checksum = replicas_.add(tensor, step, parameters);
  if (checksum) tell_checksum(step, *checksum);
}

void Worker::tell_checksum(std::uint64_t step, std::uint64_t checksum) {
  if (rank() == 0) return take_checksum(0, step, checksum);
  send(0, std::make_shared<const Bytes>(
              checksum_message(static_cast<std::uint32_t>(rank()), step, checksum)));
}

void Worker::take_checksum(int from, std::uint64_t step, std::uint64_t checksum) {
  const auto other = replicas_.take(from, step, checksum);
  if (!other) return;
  if (job().checksum_steps > 0) {
    fail(ErrorCode::kFailedPrecondition,
         "the parameters of workers {} and {} differ before {} {}: start every worker with the "
         "same initial model, and let it change its parameters through the job alone",
         other->worker, from, step_noun(), step);
  }
  const auto [less, more] =
      std::minmax({std::pair(other->checksum, other->worker), std::pair(checksum, from)});
  fail(ErrorCode::kFailedPrecondition,
       "worker {} has skipped more steps than worker {} before step {} ({} and {}): take every "
       "step on all workers, or skip it on all",
       more.second, less.second, step, more.first, less.first);
}

void Worker::apply_mean(const Update& update, std::size_t part, std::span<const float> mean,
                        std::span<float> parameters) {
  delta_.assign(mean.size(), 0.0F);  // what an Update leaves alone
  update(parts()[part], mean, delta_);
  for (std::size_t i = 0; i < mean.size(); ++i) parameters[i] += delta_[i];
}

void Worker::encode_ahead(std::span<const std::size_t> some, std::span<const float> gradient) {
  ThreadPool* const pool = pool_for(placement(), some, pool_);
  if (pool == nullptr || held_ || encoder_of(some.front()) == nullptr) return;
  const Stopwatch watch(counters_.encode_seconds, processor_seconds);
  ahead_.encode(some, pool, [&](std::size_t part, Bytes& out) {
    return encode_values(*encoder_of(part), part, step_, values_of(part, gradient), {}, out);
  });
}

Encoded Worker::encode_values(Encoder& encoder, std::size_t part, std::uint64_t step,
                              std::span<const float> values, std::span<const float> agreed,
                              Bytes& out) {
  return with_context([&] { return name(part); },
                      [&] {
                        return encode_in_step(job(), encoder, values, step, travels_raw(part, step),
                                              out, pool_, agreed);
                      });
}

Encoded Worker::encode(Encoder& encoder, std::size_t part, std::uint64_t step,
                       std::span<const float> values, Bytes& out, std::span<const float> agreed) {
  const Stopwatch watch(counters_.encode_seconds, processor_seconds);
  const auto ahead = ahead_.append(part, out);
  const Encoded encoded = ahead ? *ahead : encode_values(encoder, part, step, values, agreed, out);
  counters_.not_finite_tensors += encoded.not_finite ? 1 : 0;
  return encoded;
}

Frame Worker::add_to_push(MessageKind kind, Encoder& encoder, std::size_t part, std::uint64_t step,
                          std::span<const float> values, std::span<const float> agreed) {
  OpenPush& push = open_pushes_[placement_->bucket_of[part]];
  if (push.frames++ == 0) {
    push.writer.clear({.kind = kind, .sender = static_cast<std::uint32_t>(rank()), .step = step});
  }
  const Frame frame = push.writer.add_encoded(
      static_cast<std::uint32_t>(parts()[part].tensor), placement_->place_in_tensor(part),
      [&](Bytes& message) { return encode(encoder, part, step, values, message, agreed); });
  count_encoded(part, static_cast<double>(frame.payload.size()));
  return frame;
}

SharedBytes Worker::take_push(std::size_t part, std::uint64_t step, bool own) {
  const std::size_t bucket = placement_->bucket_of[part];
  OpenPush& push = open_pushes_[bucket];
  if (push.frames < placement_->buckets[bucket].size()) return nullptr;
  push.frames = 0;
  const SharedBytes bytes = shared(push.writer, own);
  expect_answer(part, step, bytes->size());
  return bytes;
}

void Worker::expect_answer(std::size_t part, std::uint64_t step, std::size_t bytes) {
  unanswered_.push_back({.part = part, .step = step, .bytes = bytes});
  unanswered_bytes_ += bytes;
}

bool Worker::is_answered(const Pushed& bucket) const {
  return applied_step(bucket.part) >= bucket.step || change_is_here(bucket.part);
}

std::size_t Worker::window_bytes() const {
  const std::size_t bytes = kWindowBuckets * placement_->bucket_bytes;
  return job().bucket_bytes ? bytes : std::max(bytes, kLeastWindowBytes);
}

void Worker::wait_for_room() {
  while (!unanswered_.empty()) {
    const Pushed& oldest = unanswered_.front();
    if (is_answered(oldest)) {
      unanswered_bytes_ -= oldest.bytes;
      unanswered_.pop_front();
    } else if (unanswered_.size() > 1 && unanswered_bytes_ >= window_bytes()) {
      wait_until([&] { return is_answered(oldest); },
                 [&] { return "an answer to the push of " + name(oldest.part); });
    } else {
      return;
    }
  }
}

void Worker::send(int to, const SharedBytes& bytes) {
  counters_.pushed_bytes += bytes->size();
  send_bounded(transport_, *placement_, to, bytes);
}

}  // namespace tersewire
