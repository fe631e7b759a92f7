#include "ring.h"

#include <algorithm>
#include <deque>

#include "ring_layout.h"
#include "ring_schedule.h"

namespace tersewire {
namespace {

// A peer that sends to this worker, and what comes from it in a step, in this order.
struct Source {
  int rank;
  std::vector<RingTask> expected;
};

struct Inbox {
  std::uint64_t arrived = 0;     // messages since this worker began
  std::deque<Received> waiting;  // those whose turn has not come
};

// A piece of the complete sum, as it travels.
struct HeldPiece {
  SharedBytes bytes;  // what `frame` points into
  Frame frame;
};

struct Bucket {
  Floats values;  // the gradients of this worker, then partial sums, then the sum over all workers
  std::vector<std::unique_ptr<Encoder>> encoders;  // by the first piece that they encode
  std::vector<HeldPiece> held;                     // by piece
  std::vector<Inbox> inboxes;                      // by source
  std::size_t pushed = 0;                          // parts of the step that is to begin
  std::uint64_t step = 0;                          // the one that `values` belongs to
  std::size_t tasks_done = 0;                      // of it
};

class RingWorker final : public Worker {
 public:
  RingWorker(std::shared_ptr<const Placement> placed, Transport& transport, Update update,
             ThreadPool* threads);

 private:
  void keep(Received received) override;
  void contribute(std::size_t part, std::uint64_t step, std::span<const float> gradient) override;
  [[nodiscard]] bool change_is_here(std::size_t part) const override {
    const Bucket& bucket = buckets_[layout_.place(part).bucket];
    return bucket.step == applied_step(part) + 1 && bucket.tasks_done == schedule_.size();
  }
  [[nodiscard]] bool needs(std::size_t part, int rank) const override;
  void apply_change(std::size_t part, std::span<float> parameters, Counters& counted) override {
    apply_mean(update_, part, parameters, counted);
  }
  void take_mean(std::size_t part, std::span<float> mean, Counters& counted) override;
  void say_done() override { tell_done(job().workers, placement().servers); }
  [[nodiscard]] std::vector<ResidualRun> residual_runs() override;
  void skip_to(std::uint64_t step) override {
    for (Bucket& bucket : buckets_) bucket.step = step;
  }

  [[nodiscard]] Bucket make_bucket(std::size_t number) const;
  [[nodiscard]] std::size_t source_of(int peer) const;
  [[nodiscard]] std::size_t bucket_of(const Received& received) const;
  void check_is_next(std::size_t number, std::size_t source, const Received& received) const;
  void check_lengths(const RingTask& task, std::size_t number, const Received& received) const;
  [[nodiscard]] bool is_for(const RingTask& task, std::size_t number, const Message& message) const;

  void go_on(std::size_t number);
  bool perform(std::size_t number, const RingTask& task);
  void send_sum(std::size_t number, const RingTask& task);
  void complete(std::size_t number, std::size_t piece);
  Encoded encode_pieces(std::size_t number, PieceRange pieces, std::span<const float> sum,
                        Bytes& out);
  void send_complete(std::size_t number, const RingTask& task);
  bool receive(std::size_t number, const RingTask& task);
  void decode_frame(std::size_t number, const RingTask& task, PieceRange pieces,
                    const Frame& frame);
  void send_frames(int to, MessageKind kind, std::uint64_t step, std::span<const Frame> frames);

  [[nodiscard]] std::span<float> values(std::size_t number, PieceRange pieces) {
    const Extent extent = layout_.extent(number, pieces);
    return std::span(buckets_[number].values).subspan(extent.begin, extent.elems);
  }

  RingLayout layout_;
  std::vector<RingTask> schedule_;  // the same for every bucket
  std::vector<Source> sources_;
  Update update_;
  std::deque<Bucket> buckets_;
  Bytes payload_;
};

std::vector<Source> sources_of(const std::vector<RingTask>& schedule) {
  std::vector<Source> sources;
  for (const RingTask& task : schedule) {
    if (!receives(task)) continue;
    auto source = std::ranges::find(sources, task.peer, &Source::rank);
    if (source == sources.end()) source = sources.insert(source, {task.peer, {}});
    source->expected.push_back(task);
  }
  return sources;
}

RingWorker::RingWorker(std::shared_ptr<const Placement> placed, Transport& transport, Update update,
                       ThreadPool* threads)
    : Worker(placed, transport, threads),
      layout_(std::move(placed)),
      schedule_(make_ring_schedule(layout_, rank())),
      sources_(sources_of(schedule_)),
      update_(std::move(update)) {
  for (std::size_t number = 0; number < layout_.buckets().size(); ++number) {
    buckets_.push_back(make_bucket(number));
  }
}

Bucket RingWorker::make_bucket(std::size_t number) const {
  Bucket bucket;
  bucket.values.resize(layout_.buckets()[number].elems);
  bucket.encoders.resize(layout_.pieces());
  for (const RingTask& task : schedule_) {
    if (!encodes(task)) continue;
    bucket.encoders[task.pieces.first] =
        layout_.make_encoder(placement().push_codecs, number, task.pieces, rank());
  }
  bucket.held.resize(layout_.pieces());
  bucket.inboxes.resize(sources_.size());
  bucket.tasks_done = schedule_.size();  // nothing to do before the first step
  return bucket;
}

void RingWorker::contribute(std::size_t part, std::uint64_t step, std::span<const float> gradient) {
  const RingLayout::Place place = layout_.place(part);
  Bucket& bucket = buckets_[place.bucket];
  std::ranges::copy(gradient, bucket.values.begin() + static_cast<std::ptrdiff_t>(place.offset));
  if (++bucket.pushed < layout_.buckets()[place.bucket].parts.size()) return;
  bucket.pushed = 0;
  bucket.step = step;
  bucket.tasks_done = 0;
  const std::uint64_t pushed_before = counters_.pushed_bytes;
  go_on(place.bucket);
  expect_answer(part, step, counters_.pushed_bytes - pushed_before);
}

// As far as what has arrived allows.
void RingWorker::go_on(std::size_t number) {
  Bucket& bucket = buckets_[number];
  if (bucket.tasks_done == schedule_.size()) return;
  while (perform(number, schedule_[bucket.tasks_done])) {
    if (++bucket.tasks_done < schedule_.size()) continue;
    std::ranges::fill(bucket.held, HeldPiece{});
    return;
  }
}

// False where what it needs has not arrived.
bool RingWorker::perform(std::size_t number, const RingTask& task) {
  switch (task.action) {
    case RingAction::kSendSum:
      send_sum(number, task);
      return true;
    case RingAction::kComplete:
      complete(number, task.pieces.first);
      return true;
    case RingAction::kSendComplete:
      send_complete(number, task);
      return true;
    case RingAction::kAddSum:
    case RingAction::kTakeComplete:
      break;
  }
  return receive(number, task);
}

// A partial sum goes on as a push, a complete one as a pull.
void RingWorker::send_sum(std::size_t number, const RingTask& task) {
  const Bucket& bucket = buckets_[number];
  const std::size_t piece = task.pieces.first;
  counters_.pushed_values += values(number, task.pieces).size();
  payload_.clear();
  const Encoded encoded = encode_pieces(number, task.pieces, values(number, task.pieces), payload_);
  const Frame frame = layout_.frame_of(number, piece, encoded, payload_);
  send_frames(task.peer, MessageKind::kPush, bucket.step, {&frame, 1});
}

// As the bucket's first part, or the first that travels raw: all do then.
Encoded RingWorker::encode_pieces(std::size_t number, PieceRange pieces, std::span<const float> sum,
                                  Bytes& out) {
  const Bucket& bucket = buckets_[number];
  const auto& parts = layout_.buckets()[number].parts;
  const auto raw =
      std::ranges::find_if(parts, [&](std::size_t part) { return travels_raw(part, bucket.step); });
  const Encoded encoded = encode(*bucket.encoders[pieces.first],
                                 raw == parts.end() ? parts.front() : *raw, bucket.step, sum, out);
  const double bytes_a_value =
      sum.empty() ? 0 : static_cast<double>(out.size()) / static_cast<double>(sum.size());
  for (const PartRun& run : layout_.part_runs(number, pieces)) {
    count_encoded(run.part, bytes_a_value * static_cast<double>(run.elems));
  }
  return encoded;
}

void RingWorker::complete(std::size_t number, std::size_t piece) {
  Bucket& bucket = buckets_[number];
  const std::span<float> sum = values(number, {.first = piece, .count = 1});
  const auto bytes = std::make_shared<Bytes>();
  const Encoded encoded = encode_pieces(number, {.first = piece, .count = 1}, sum, *bytes);
  bucket.held[piece] = {.bytes = bytes, .frame = layout_.frame_of(number, piece, encoded, *bytes)};
  // Everyone else gets what these bytes say, and so does their maker.
  const Stopwatch watch(counters_.decode_seconds, processor_seconds);
  decode(encoded.codec, *bytes, sum, pool());
}

void RingWorker::send_complete(std::size_t number, const RingTask& task) {
  const Bucket& bucket = buckets_[number];
  std::vector<Frame> frames;
  for (std::size_t i = 0; i < task.pieces.count; ++i) {
    frames.push_back(bucket.held[task.pieces.first + i].frame);
  }
  counters_.pushed_values += values(number, task.pieces).size();
  send_frames(task.peer, MessageKind::kPull, bucket.step, frames);
}

void RingWorker::send_frames(int to, MessageKind kind, std::uint64_t step,
                             std::span<const Frame> frames) {
  MessageWriter writer({.kind = kind, .sender = static_cast<std::uint32_t>(rank()), .step = step});
  for (const Frame& frame : frames) writer.add(frame);
  send(to, shared(writer));
}

void RingWorker::keep(Received received) {
  counters_.pulled_bytes += received.bytes->size();
  const std::size_t source = source_of(received.from);
  const std::size_t number = bucket_of(received);
  check_is_next(number, source, received);
  Inbox& inbox = buckets_[number].inboxes[source];
  ++inbox.arrived;
  inbox.waiting.push_back(std::move(received));
  go_on(number);
}

bool RingWorker::needs(std::size_t part, int rank) const {
  const Bucket& bucket = buckets_[layout_.place(part).bucket];
  const auto source = std::ranges::find(sources_, rank, &Source::rank);
  if (source == sources_.end()) return false;
  const auto left = std::count_if(
      schedule_.begin() + static_cast<std::ptrdiff_t>(bucket.tasks_done), schedule_.end(),
      [&](const RingTask& task) { return receives(task) && task.peer == rank; });
  const Inbox& inbox = bucket.inboxes[static_cast<std::size_t>(source - sources_.begin())];
  return static_cast<std::size_t>(left) > inbox.waiting.size();
}

std::size_t RingWorker::source_of(int peer) const {
  const auto source = std::ranges::find(sources_, peer, &Source::rank);
  if (source == sources_.end()) {
    fail(ErrorCode::kDataLoss, "message from rank {}: it has nothing to send to rank {}", peer,
         rank());
  }
  return static_cast<std::size_t>(source - sources_.begin());
}

std::size_t RingWorker::bucket_of(const Received& received) const {
  const Frames& frames = received.message.frames;
  if (frames.empty()) {
    fail(ErrorCode::kDataLoss, "message from rank {}: it holds no sum", received.from);
  }
  const std::size_t number = frames.front().tensor;
  if (number < buckets_.size()) return number;
  fail(ErrorCode::kDataLoss, "message from rank {}: there is no bucket number {}", received.from,
       number);
}

// Messages from one peer come in its order, so that the next is known.
void RingWorker::check_is_next(std::size_t number, std::size_t source,
                               const Received& received) const {
  const Bucket& bucket = buckets_[number];
  const std::vector<RingTask>& expected = sources_[source].expected;
  const std::uint64_t before = bucket.inboxes[source].arrived;
  const MessageHeader& header = received.message.header;
  // A peer is at most one step ahead: the one after that needs this worker's part.
  if (header.step != step_before_first() + before / expected.size() + 1 ||
      header.step > bucket.step + 1) {
    fail(ErrorCode::kDataLoss,
         "message from rank {}: the {} came for step {}, of which nothing is due while step {} is "
         "open",
         received.from, layout_.name(number), header.step, bucket.step);
  }
  const std::size_t index = before % expected.size();
  if (is_for(expected[index], number, received.message)) {
    return check_lengths(expected[index], number, received);
  }
  fail(ErrorCode::kDataLoss,
       "message from rank {}: it is not message {} of the {} for the {} in step {}", received.from,
       index + 1, expected.size(), layout_.name(number), header.step);
}

bool RingWorker::is_for(const RingTask& task, std::size_t number, const Message& message) const {
  const bool sum = task.action == RingAction::kAddSum;
  const std::size_t frames = sum ? 1 : task.pieces.count;
  if (message.header.kind != (sum ? MessageKind::kPush : MessageKind::kPull)) return false;
  if (message.frames.size() != frames) return false;
  std::size_t piece = task.pieces.first;
  return std::ranges::all_of(message.frames, [&](const Frame& frame) {
    return layout_.find(frame) == layout_.id_of(number, piece++);
  });
}

// A sum is one frame for all its pieces, complete ones are a frame a piece.
void RingWorker::check_lengths(const RingTask& task, std::size_t number,
                               const Received& received) const {
  const bool complete = task.action == RingAction::kTakeComplete;
  PieceRange pieces = task.pieces;
  if (complete) pieces.count = 1;
  for (const Frame& frame : received.message.frames) {
    check_length(received.from, "the " + layout_.name(number), frame,
                 layout_.most_bytes(number, pieces, complete));
    ++pieces.first;
  }
}

bool RingWorker::receive(std::size_t number, const RingTask& task) {
  Bucket& bucket = buckets_[number];
  auto& waiting = bucket.inboxes[source_of(task.peer)].waiting;
  if (waiting.empty()) return false;
  const Received received = std::move(waiting.front());
  waiting.pop_front();
  const Frames& frames = received.message.frames;
  if (task.action == RingAction::kAddSum) {
    decode_frame(number, task, task.pieces, frames.front());
    return true;
  }
  std::size_t piece = task.pieces.first;
  for (const Frame& frame : frames) {
    decode_frame(number, task, {.first = piece, .count = 1}, frame);
    bucket.held[piece++] = {.bytes = received.bytes, .frame = frame};
  }
  return true;
}

void RingWorker::decode_frame(std::size_t number, const RingTask& task, PieceRange pieces,
                              const Frame& frame) {
  const std::span<float> out = values(number, pieces);
  counters_.pulled_values += out.size();
  const Stopwatch watch(counters_.decode_seconds, processor_seconds);
  const auto where = [&] {
    return fmt::format("message from rank {}: block {} of the {}", task.peer,
                       pieces.first / layout_.pieces_per_block(), layout_.name(number));
  };
  with_context(where, [&] {
    if (task.action == RingAction::kAddSum) {
      decode_add(frame.codec, frame.payload, 1.0F, out, pool());
    } else {
      decode(frame.codec, frame.payload, out, pool());
    }
  });
}

void RingWorker::take_mean(std::size_t part, std::span<float> mean, Counters& /*counted*/) {
  const RingLayout::Place place = layout_.place(part);
  const float weight = 1.0F / static_cast<float>(job().workers);
  const std::span<const float> sum =
      std::span(buckets_[place.bucket].values).subspan(place.offset, mean.size());
  std::ranges::transform(sum, mean.begin(), [&](float value) { return value * weight; });
}

std::vector<ResidualRun> RingWorker::residual_runs() {
  std::vector<ResidualRun> runs;
  for (std::size_t number = 0; number < buckets_.size(); ++number) {
    for (const RingTask& task : schedule_) {
      if (!encodes(task)) continue;
      layout_.add_runs(number, task.pieces,
                       buckets_[number].encoders[task.pieces.first]->residual(), runs);
    }
  }
  return runs;
}

}  // namespace

std::unique_ptr<Worker> make_ring_worker(std::shared_ptr<const Placement> placement,
                                         Transport& transport, const Update& update,
                                         ThreadPool* pool) {
  return std::make_unique<RingWorker>(std::move(placement), transport, update, pool);
}

}  // namespace tersewire
