#include "stale_server.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <limits>
#include <map>

#include "node_state.h"
#include "raw_agreement.h"

namespace tersewire {
namespace {

// What a worker pushed of a bucket, and no version has yet.
struct Push {
  std::size_t worker;
  std::uint64_t step;
  SharedBytes bytes;          // what `frames` point into
  std::vector<Frame> frames;  // in the bucket's order
};

// A version's deltas, encoded once for all who pull them.
struct Version {
  std::uint64_t number;
  SharedBytes message;
};

// A worker as one bucket's server sees it.
struct Puller {
  std::uint64_t version = 0;  // that it has
  std::uint64_t pushed = 0;   // the step that is not answered; 0: none
};

struct Bucket {
  std::size_t number;
  std::uint64_t version = 0;      // the last
  std::vector<Puller> pullers;    // by worker
  std::vector<Push> pushes;       // that no version has
  std::deque<Version> versions;   // those that somebody lacks, in order
  std::size_t most_bytes_behind;  // that a worker may lack when the next version is made
  // What brings a worker from this version to the last, where that is several.
  std::map<std::uint64_t, SharedBytes> answers;
};

struct ServerPart {
  std::unique_ptr<Encoder> encoder;
};

class StaleServer final : public Server {
 public:
  StaleServer(std::shared_ptr<const Placement> placed, Transport& transport, Update update,
              ThreadPool* pool);

  void resume(const NodeState& state) override;
  Counters run(const SaveState& save) override;
  void take(std::span<const Received> received) override;
  [[nodiscard]] NodeState state(std::uint64_t exchange) override;
  [[nodiscard]] std::vector<ResidualRun> residual_runs() const override {
    return residuals_of(parts_);
  }

 private:
  void sort_in(const Received& received);
  void go_on();
  bool answer_late_pushes();
  void take_push(const Received& received);
  void take_done(std::size_t worker);
  [[nodiscard]] Bucket& bucket_in(const Received& received);
  [[nodiscard]] std::vector<Frame> frames_of(const Bucket& bucket, const Received& received) const;
  bool make_versions();
  void make_version(Bucket& bucket, std::uint64_t step);
  void add_up(std::size_t part, std::size_t place, std::span<const Push> pushes);
  void encode_result(std::size_t part, std::uint64_t step, MessageWriter& writer);
  void answer(Bucket& bucket, std::size_t worker);
  [[nodiscard]] SharedBytes answer_from(Bucket& bucket, std::uint64_t version);
  void forget_what_all_have(Bucket& bucket);
  void save_after(std::uint64_t step);
  void end();
  void send(std::size_t worker, const SharedBytes& bytes);

  // The lowest step of those whose pushes wait for a version of their own, or 0.
  [[nodiscard]] static std::uint64_t next_version(const Bucket& bucket);
  // Whether that version has to wait for what this worker computes, or for its answer.
  [[nodiscard]] bool holds_up(const Bucket& bucket, std::uint64_t step, std::size_t worker) const;
  // Whether it has to wait for more pushes, whoever they are from.
  [[nodiscard]] bool is_short_of_pushes(const Bucket& bucket) const;
  [[nodiscard]] bool has_lost_too_many(const Bucket& bucket) const;
  [[nodiscard]] bool needs(int rank) const;
  [[nodiscard]] bool is_over() const { return std::ranges::find(done_, false) == done_.end(); }
  [[nodiscard]] bool computes(const Bucket& bucket, std::size_t worker) const {
    return !done_[worker] && bucket.pullers[worker].pushed == 0;
  }
  // Whether it has not pushed for the next version: it computes, or has pushed late.
  [[nodiscard]] bool is_behind(const Bucket& bucket, std::size_t worker) const {
    return !done_[worker] && bucket.pullers[worker].pushed <= bucket.version;
  }
  [[nodiscard]] std::optional<std::size_t> own_worker() const {
    if (job_.servers != Job::kColocated) return std::nullopt;
    return static_cast<std::size_t>(transport_.rank() - job_.workers);
  }
  [[nodiscard]] std::string name(std::size_t part) const { return placement_->name(part); }

  std::shared_ptr<const Placement> placement_;
  const Job& job_;
  Transport& transport_;
  Update update_;
  SaveState save_;
  ThreadPool* pool_;
  std::vector<ServerPart> parts_;             // by number; only this server's have an encoder
  std::vector<Bucket> buckets_;               // this server's
  std::vector<std::size_t> place_of_bucket_;  // by number, in buckets_
  std::vector<bool> done_;                    // by worker
  std::size_t spared_;  // workers whose pushes a version does not wait for, whoever they are
  // Shared by all parts: one is worked on at a time.
  Floats sum_;
  Floats delta_;
  Counters counters_;
};

StaleServer::StaleServer(std::shared_ptr<const Placement> placed, Transport& transport,
                         Update update, ThreadPool* pool)
    : placement_(std::move(placed)),
      job_(placement_->job),
      transport_(transport),
      update_(std::move(update)),
      pool_(pool),
      parts_(placement_->parts.size()),
      place_of_bucket_(placement_->buckets.size(), std::numeric_limits<std::size_t>::max()),
      done_(static_cast<std::size_t>(job_.workers), false),
      spared_(static_cast<std::size_t>(job_.backup_workers > 0 ? job_.backup_workers
                                                               : job_.workers - 1)) {
  for (std::size_t i = 0; i < placement_->buckets.size(); ++i) {
    const std::vector<std::size_t>& bucket = placement_->buckets[i];
    if (placement_->owners[bucket.front()] != transport.rank()) continue;
    place_of_bucket_[i] = buckets_.size();
    buckets_.push_back(
        {.number = i,
         .pullers = std::vector<Puller>(done_.size()),
         .pushes = {},
         .versions = {},
         .most_bytes_behind = kMostVersionsBehind * placement_->most_pulled_of_bucket(i),
         .answers = {}});
    for (const std::size_t part : bucket) {
      parts_[part].encoder =
          encoder_for(*placement_, placement_->pull_codecs, part, transport.rank());
    }
  }
}

void StaleServer::resume(const NodeState& state) {
  load_residuals(*placement_, state.pulled, residual_runs());
  const std::uint64_t step = exchanges_in(job_, state);
  for (Bucket& bucket : buckets_) {
    bucket.version = step;
    std::ranges::fill(bucket.pullers, Puller{.version = step});
  }
}

NodeState StaleServer::state(std::uint64_t exchange) {
  NodeState state = empty_state(*placement_, transport_.rank(), exchange);
  state.pulled = save_residuals(*placement_, residual_runs());
  return state;
}

// All wait for each other in such a step, so that no bucket is past it.
void StaleServer::save_after(std::uint64_t step) {
  const bool all_there =
      std::ranges::all_of(buckets_, [&](const Bucket& bucket) { return bucket.version == step; });
  if (save_ && all_there) save_(state(step));
}

// A version is made when everything that has arrived is in it.
Counters StaleServer::run(const SaveState& save) {
  save_ = save;
  while (!is_over()) {
    if (auto incoming = transport_.receive(std::chrono::milliseconds(0))) {
      sort_in(parse_incoming(std::move(*incoming)));
      continue;
    }
    go_on();
    sort_in([&] {
      const Stopwatch watch(counters_.wait_seconds, wall_seconds);
      return receive_parsed(transport_, server_wait_limits(job_, transport_.rank(), done_),
                            "pushes", [&](int rank) { return needs(rank); });
    }());
  }
  end();
  return counters_;
}

void StaleServer::take(std::span<const Received> received) {
  for (const Received& message : received) {
    sort_in(message);
    is_over() ? end() : go_on();
  }
}

// Who pushed late is answered when no version can be made, so that one for which others waited for
// this push brings its sender as far as them.
void StaleServer::go_on() {
  while (make_versions() || answer_late_pushes()) {
  }
}

bool StaleServer::answer_late_pushes() {
  bool answered = false;
  for (Bucket& bucket : buckets_) {
    for (std::size_t worker = 0; worker < done_.size(); ++worker) {
      if (bucket.pullers[worker].pushed == 0 || !is_behind(bucket, worker)) continue;
      answer(bucket, worker);
      answered = true;
    }
    forget_what_all_have(bucket);
  }
  return answered;
}

void StaleServer::sort_in(const Received& received) {
  counters_.pushed_bytes += received.bytes->size();
  if (received.from >= job_.workers) {
    fail(ErrorCode::kDataLoss,
         "message from rank {}: it is not one of those that send to this server", received.from);
  }
  const auto worker = static_cast<std::size_t>(received.from);
  if (done_[worker]) {
    fail(ErrorCode::kDataLoss, "message from worker {}: it has said that it is done", worker);
  }
  switch (received.message.header.kind) {
    case MessageKind::kPush:
      return take_push(received);
    case MessageKind::kDone:
      return take_done(worker);
    default:
      fail(ErrorCode::kDataLoss, "message from rank {}: servers take pushes only", received.from);
  }
}

// The one that the message is of, by its first frame.
Bucket& StaleServer::bucket_in(const Received& received) {
  if (received.message.frames.empty()) {
    fail(ErrorCode::kDataLoss, "push from worker {}: it holds nothing", received.from);
  }
  const Frame& frame = received.message.frames.front();
  const std::size_t part = part_in(*placement_, received.from, frame);
  if (!parts_[part].encoder) {
    fail(ErrorCode::kDataLoss, "push from worker {}: {} does not belong to this server",
         received.from, name(part));
  }
  return buckets_[place_of_bucket_[placement_->bucket_of[part]]];
}

std::vector<Frame> StaleServer::frames_of(const Bucket& bucket, const Received& received) const {
  const std::vector<std::size_t>& parts = placement_->buckets[bucket.number];
  std::vector<Frame> frames(parts.size());
  std::vector<bool> there(parts.size(), false);
  for (const Frame& frame : received.message.frames) {
    const std::size_t part = part_in(*placement_, received.from, frame);
    const auto place = static_cast<std::size_t>(std::ranges::find(parts, part) - parts.begin());
    if (place == parts.size() || there[place]) {
      fail(ErrorCode::kDataLoss, "push from worker {}: {} does not belong in a message with {}",
           received.from, name(part), name(parts.front()));
    }
    check_length(received.from, name(part), frame, placement_->most_pushed_bytes(part));
    there[place] = true;
    frames[place] = frame;
  }
  const auto missing = std::ranges::find(there, false);
  if (missing == there.end()) return frames;
  fail(ErrorCode::kDataLoss, "push from worker {}: it lacks {}; start all nodes with the same job",
       received.from, name(parts[static_cast<std::size_t>(missing - there.begin())]));
}

void StaleServer::take_push(const Received& received) {
  Bucket& bucket = bucket_in(received);
  std::vector<Frame> frames = frames_of(bucket, received);
  const auto worker = static_cast<std::size_t>(received.from);
  const std::uint64_t step = received.message.header.step;
  Puller& puller = bucket.pullers[worker];
  if (puller.pushed != 0 || step <= puller.version || step > kMostSteps) {
    fail(ErrorCode::kDataLoss,
         "push from worker {}: {} came for step {}, which is not due after step {}", worker,
         name(placement_->buckets[bucket.number].front()), step,
         std::max(puller.pushed, puller.version));
  }
  for (const std::size_t part : placement_->buckets[bucket.number]) {
    counters_.pushed_values += placement_->parts[part].elems;
  }
  puller.pushed = step;
  bucket.pushes.push_back({.worker = worker,
                           .step = step,
                           .bytes = received.bytes,
                           .frames = std::move(frames)});
}

// From here on it gets every version when it is made.
void StaleServer::take_done(std::size_t worker) {
  done_[worker] = true;
  for (Bucket& bucket : buckets_) {
    if (bucket.pullers[worker].pushed <= bucket.version) answer(bucket, worker);
    forget_what_all_have(bucket);
  }
}

std::uint64_t StaleServer::next_version(const Bucket& bucket) {
  std::uint64_t next = 0;
  for (const Puller& puller : bucket.pullers) {
    if (puller.pushed > bucket.version && (next == 0 || puller.pushed < next)) next = puller.pushed;
  }
  return next;
}

bool StaleServer::holds_up(const Bucket& bucket, std::uint64_t step, std::size_t worker) const {
  if (!is_behind(bucket, worker)) return false;
  const std::uint64_t version = bucket.pullers[worker].version;
  if (is_saved_after(job_, step)) return true;
  // Its node's state is taken meanwhile.
  if (worker == own_worker() && version == bucket.version && is_saved_after(job_, version)) {
    return true;
  }
  if (computes(bucket, worker) && job_.staleness != Job::kUnbounded &&
      step - version > static_cast<std::uint64_t>(job_.staleness)) {
    return true;
  }
  std::size_t bytes_behind = 0;
  for (const Version& one : bucket.versions) {
    if (one.number > version) bytes_behind += one.message->size();
  }
  return bytes_behind > bucket.most_bytes_behind;
}

bool StaleServer::is_short_of_pushes(const Bucket& bucket) const {
  std::size_t behind = 0;
  for (std::size_t worker = 0; worker < done_.size(); ++worker) {
    behind += is_behind(bucket, worker) ? 1 : 0;
  }
  return behind > spared_;
}

// Whether others wait for what is still to come from a worker: for a version, or for the end.
bool StaleServer::needs(int rank) const {
  if (rank >= job_.workers) return false;
  const auto worker = static_cast<std::size_t>(rank);
  if (done_[worker]) return false;
  if (std::ranges::count(done_, false) == 1) return true;
  return std::ranges::any_of(buckets_, [&](const Bucket& bucket) {
    const std::uint64_t step = next_version(bucket);
    if (step == 0 || !computes(bucket, worker)) return false;
    return holds_up(bucket, step, worker) || has_lost_too_many(bucket);
  });
}

// Those that compute and have left the job never push.
bool StaleServer::has_lost_too_many(const Bucket& bucket) const {
  std::size_t lost = 0;
  for (std::size_t worker = 0; worker < done_.size(); ++worker) {
    const bool gone = transport_.peer(static_cast<int>(worker)).gone.has_value();
    lost += gone && computes(bucket, worker) ? 1 : 0;
  }
  return lost > spared_;
}

bool StaleServer::make_versions() {
  bool made = false;
  for (Bucket& bucket : buckets_) {
    const std::uint64_t step = next_version(bucket);
    if (step == 0) continue;
    bool held_up = is_short_of_pushes(bucket);
    for (std::size_t worker = 0; worker < done_.size() && !held_up; ++worker) {
      held_up = holds_up(bucket, step, worker);
    }
    if (held_up) continue;
    make_version(bucket, step);
    made = true;
  }
  return made;
}

// Sums are in the order of ranks, so that they depend on what is in them alone.
void StaleServer::make_version(Bucket& bucket, std::uint64_t step) {
  // clang 14 cannot read the subrange of std::ranges::stable_partition.
  const auto later = std::stable_partition(bucket.pushes.begin(), bucket.pushes.end(),
                                           [&](const Push& push) { return push.step <= step; });
  const std::span<Push> pushes(bucket.pushes.begin(), later);
  std::ranges::sort(pushes, {}, [](const Push& push) { return std::pair(push.worker, push.step); });
  MessageWriter writer({.kind = MessageKind::kPull,
                        .sender = static_cast<std::uint32_t>(transport_.rank()),
                        .step = step});
  const std::vector<std::size_t>& parts = placement_->buckets[bucket.number];
  for (std::size_t place = 0; place < parts.size(); ++place) {
    add_up(parts[place], place, pushes);
    encode_result(parts[place], step, writer);
  }
  bucket.pushes.erase(bucket.pushes.begin(), later);
  bucket.version = step;
  bucket.versions.push_back({step, shared(writer)});
  bucket.answers.clear();
  if (is_saved_after(job_, step)) save_after(step);
  for (std::size_t worker = 0; worker < done_.size(); ++worker) {
    const std::uint64_t pushed = bucket.pullers[worker].pushed;
    if (pushed <= step && (pushed != 0 || done_[worker])) answer(bucket, worker);
  }
  forget_what_all_have(bucket);
}

// Each gradient counts what it would in lock-step, however many are in a version.
void StaleServer::add_up(std::size_t part, std::size_t place, std::span<const Push> pushes) {
  const Stopwatch watch(counters_.decode_seconds, processor_seconds);
  const float weight = 1.0F / static_cast<float>(job_.workers);
  sum_.assign(placement_->parts[part].elems, 0.0F);
  for (const Push& push : pushes) {
    const Frame& frame = push.frames[place];
    with_context(
        [&] { return fmt::format("push of {} from worker {}", name(part), push.worker); },
        [&] { decode_add(frame.codec, frame.payload, weight, sum_, pool_); });
  }
}

void StaleServer::encode_result(std::size_t part, std::uint64_t step, MessageWriter& writer) {
  std::span<const float> result = sum_;
  if (update_) {
    delta_.assign(sum_.size(), 0.0F);  // what an Update leaves alone
    update_(placement_->parts[part], sum_, delta_);
    result = delta_;
  }
  const Stopwatch watch(counters_.encode_seconds, processor_seconds);
  Encoder& encoder = *parts_[part].encoder;
  const Frame frame = writer.add_encoded(
      static_cast<std::uint32_t>(placement_->parts[part].tensor), placement_->place_in_tensor(part),
      [&](Bytes& message) {
        return with_context(
            [&] { return fmt::format("{} of {}", update_ ? "delta" : "mean", name(part)); },
            [&] { return encode_in_step(job_, encoder, result, step, false, message, pool_); });
      });
  counters_.not_finite_tensors += frame.not_finite ? 1 : 0;
}

// Brings a worker to the last version.
void StaleServer::answer(Bucket& bucket, std::size_t worker) {
  Puller& puller = bucket.pullers[worker];
  const std::uint64_t from = std::exchange(puller.version, bucket.version);
  puller.pushed = 0;
  if (from == bucket.version) return;
  send(worker, answer_from(bucket, from));
  const auto versions = static_cast<std::uint64_t>(std::ranges::count_if(
      bucket.versions, [&](const Version& version) { return version.number > from; }));
  for (const std::size_t part : placement_->buckets[bucket.number]) {
    counters_.pulled_values += versions * placement_->parts[part].elems;
  }
}

// The same bytes for all who have this version.
SharedBytes StaleServer::answer_from(Bucket& bucket, std::uint64_t version) {
  const auto first = std::ranges::find_if(bucket.versions,
                                          [&](const Version& one) { return one.number > version; });
  if (std::next(first) == bucket.versions.end()) return first->message;
  SharedBytes& answer = bucket.answers[version];
  if (answer) return answer;
  MessageWriter writer({.kind = MessageKind::kPull,
                        .sender = static_cast<std::uint32_t>(transport_.rank()),
                        .step = bucket.version});
  for (auto one = first; one != bucket.versions.end(); ++one) {
    for (const Frame& frame : parse_message(*one->message, true).frames) writer.add(frame);
  }
  return answer = shared(writer);
}

void StaleServer::forget_what_all_have(Bucket& bucket) {
  const std::uint64_t oldest =
      std::ranges::min_element(bucket.pullers, {}, &Puller::version)->version;
  while (!bucket.versions.empty() && bucket.versions.front().number <= oldest) {
    bucket.versions.pop_front();
  }
}

// Nothing that was pushed is lost: the last of it makes a version. Then every worker hears that
// there are no more, and how far this server came.
void StaleServer::end() {
  while (make_versions()) {
  }
  save_ = {};  // these versions have no step of their own
  std::uint64_t last = 0;
  for (Bucket& bucket : buckets_) {
    if (!bucket.pushes.empty()) make_version(bucket, bucket.version + 1);
    last = std::max(last, bucket.version);
  }
  MessageWriter writer({.kind = MessageKind::kPull,
                        .sender = static_cast<std::uint32_t>(transport_.rank()),
                        .step = last});
  const SharedBytes bytes = shared(writer);
  for (std::size_t worker = 0; worker < done_.size(); ++worker) send(worker, bytes);
}

void StaleServer::send(std::size_t worker, const SharedBytes& bytes) {
  counters_.pulled_bytes += bytes->size();
  send_bounded(transport_, *placement_, static_cast<int>(worker), bytes);
}

}  // namespace

std::unique_ptr<Server> make_stale_server(std::shared_ptr<const Placement> placement,
                                          Transport& transport, const Update& update,
                                          ThreadPool* pool) {
  return std::make_unique<StaleServer>(std::move(placement), transport, update, pool);
}

}  // namespace tersewire
