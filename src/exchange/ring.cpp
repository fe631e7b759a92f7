#include "ring.h"

#include <algorithm>
#include <deque>

#include "worker.h"

namespace tersewire {
namespace {

// A message for a bucket whose own gradients are not there yet.
struct Early {
  SharedBytes bytes;  // what `frame` points into
  MessageKind kind;
  std::uint64_t step;
  Frame frame;
};

// Tensors that travel together.
struct Bucket {
  std::vector<std::size_t> tensors;
  std::size_t elems = 0;
  Floats values;  // the gradients of this worker, then partial sums, then the sum over all workers
  std::vector<std::unique_ptr<Encoder>> encoders;  // by block: a residual each
  std::size_t pushed = 0;                          // tensors of the step that is to begin
  std::uint64_t step = 0;                          // the one that `values` belongs to
  std::size_t received = 0;                        // messages of it
  std::deque<Early> early;
};

class RingWorker final : public Worker {
 public:
  RingWorker(std::shared_ptr<const Placement> placed, Transport& transport, Update update,
             ThreadPool* threads);

 private:
  // Where a tensor's values lie.
  struct Place {
    std::size_t bucket;
    std::size_t offset;
  };

  void keep(Received received) override;
  void contribute(std::size_t tensor, std::span<const float> gradient) override;
  [[nodiscard]] bool change_is_here(std::size_t tensor) const override {
    const Bucket& bucket = buckets_[places_[tensor].bucket];
    return bucket.step == applied_step(tensor) + 1 && bucket.received == messages_a_step();
  }
  void apply_change(std::size_t tensor, std::span<float> parameters) override;

  void make_buckets();
  void make_encoders(std::size_t number);
  void start(std::size_t number);
  void take(std::size_t number, const Early& message);
  void check_is_next(std::size_t number, const Early& message) const;
  void decode_block(std::size_t number, std::size_t block, const Early& message);
  void encode_block(std::size_t number, std::size_t block, MessageKind kind);

  [[nodiscard]] std::size_t ring_size() const { return static_cast<std::size_t>(job().workers); }
  [[nodiscard]] std::size_t me() const { return static_cast<std::size_t>(rank()); }
  [[nodiscard]] int next() const { return (rank() + 1) % job().workers; }
  [[nodiscard]] int previous() const { return (rank() + job().workers - 1) % job().workers; }
  [[nodiscard]] std::size_t messages_a_step() const { return 2 * (ring_size() - 1); }
  // The block that comes as message number `message` of a step, from 1.
  [[nodiscard]] std::size_t block_of(std::size_t message) const {
    return (me() + 2 * ring_size() - message) % ring_size();
  }
  [[nodiscard]] std::span<float> block_values(Bucket& bucket, std::size_t block) const {
    const std::size_t size = (bucket.elems + ring_size() - 1) / ring_size();
    const std::size_t begin = std::min(block * size, bucket.elems);
    return std::span(bucket.values).subspan(begin, std::min(size, bucket.elems - begin));
  }
  // A block's number on the wire.
  [[nodiscard]] std::uint32_t id_of(std::size_t number, std::size_t block) const {
    return static_cast<std::uint32_t>(number * ring_size() + block);
  }
  [[nodiscard]] std::string bucket_name(std::size_t number) const {
    return fmt::format("bucket that begins with {}", name(buckets_[number].tensors.front()));
  }

  Update update_;
  std::deque<Bucket> buckets_;
  std::vector<Place> places_;  // by tensor
  Floats mean_;
  Bytes payload_;
};

RingWorker::RingWorker(std::shared_ptr<const Placement> placed, Transport& transport, Update update,
                       ThreadPool* threads)
    : Worker(std::move(placed), transport, threads),
      update_(std::move(update)),
      places_(job().tensors.size()) {
  make_buckets();
  for (std::size_t number = 0; number < buckets_.size(); ++number) {
    buckets_[number].values.resize(buckets_[number].elems);
    make_encoders(number);
  }
}

// In the order of the backward pass; a bucket ends where it is large enough or the codec changes.
void RingWorker::make_buckets() {
  const auto& codecs = placement().push_codecs;
  for (std::size_t tensor = job().tensors.size(); tensor-- > 0;) {
    const bool fits = !buckets_.empty() &&
                      buckets_.back().elems * sizeof(float) < job().bucket_bytes &&
                      codecs[buckets_.back().tensors.front()] == codecs[tensor];
    if (!fits) buckets_.emplace_back();
    Bucket& bucket = buckets_.back();
    places_[tensor] = {buckets_.size() - 1, bucket.elems};
    bucket.tensors.push_back(tensor);
    bucket.elems += job().tensors[tensor].elems();
  }
}

void RingWorker::make_encoders(std::size_t number) {
  Bucket& bucket = buckets_[number];
  const std::size_t first = bucket.tensors.front();
  for (std::size_t block = 0; block < ring_size(); ++block) {
    EncoderContext context = encoder_context(job(), first, rank());
    context.tensor = id_of(number, block);
    bucket.encoders.push_back(
        placement().push_codecs[first]->make_encoder(block_values(bucket, block).size(), context));
  }
}

void RingWorker::contribute(std::size_t tensor, std::span<const float> gradient) {
  const Place place = places_[tensor];
  Bucket& bucket = buckets_[place.bucket];
  std::ranges::copy(gradient, bucket.values.begin() + static_cast<std::ptrdiff_t>(place.offset));
  counters_.pushed_values += gradient.size();
  if (++bucket.pushed < bucket.tensors.size()) return;
  bucket.pushed = 0;
  bucket.step = step();
  bucket.received = 0;
  start(place.bucket);
}

void RingWorker::start(std::size_t number) {
  // Alone, a worker completes its block at once.
  encode_block(number, me(), ring_size() == 1 ? MessageKind::kPull : MessageKind::kPush);
  Bucket& bucket = buckets_[number];
  while (!bucket.early.empty() && bucket.early.front().step == bucket.step) {
    const Early message = std::move(bucket.early.front());
    bucket.early.pop_front();
    take(number, message);
  }
}

// A partial sum goes on as a push, a complete one as a pull.
void RingWorker::encode_block(std::size_t number, std::size_t block, MessageKind kind) {
  Bucket& bucket = buckets_[number];
  const std::span<float> values = block_values(bucket, block);
  payload_.clear();
  const Encoded encoded =
      encode(*bucket.encoders[block], bucket.tensors.front(), bucket.step, values, payload_);
  if (ring_size() > 1)
    send(next(), message_of(kind, bucket.step, id_of(number, block), encoded, payload_));
  if (kind == MessageKind::kPush) return;
  // Everyone else gets what these bytes say, and so does their maker.
  const Stopwatch watch(counters_.decode_seconds, processor_seconds);
  decode(encoded.codec, payload_, values, pool());
}

void RingWorker::keep(Received received) {
  const MessageHeader& header = received.message.header;
  if (received.from != previous() || received.message.frames.size() != 1) {
    fail(ErrorCode::kDataLoss, "message from rank {}: it is none that a ring's rank {} sends to {}",
         received.from, previous(), rank());
  }
  counters_.pulled_bytes += received.bytes->size();
  const Frame& frame = received.message.frames.front();
  const std::size_t number = frame.tensor / ring_size();
  if (number >= buckets_.size()) {
    fail(ErrorCode::kDataLoss, "message from rank {}: there is no bucket number {}", received.from,
         number);
  }
  Bucket& bucket = buckets_[number];
  Early message{received.bytes, header.kind, header.step, frame};
  if (header.step == bucket.step) return take(number, message);
  if (header.step != bucket.step + 1 || bucket.early.size() == messages_a_step()) {
    fail(ErrorCode::kDataLoss, "message from rank {}: the {} came for step {} in step {}",
         received.from, bucket_name(number), header.step, bucket.step);
  }
  bucket.early.push_back(std::move(message));
}

// One worker's messages come in their order, so that the next is known.
void RingWorker::check_is_next(std::size_t number, const Early& message) const {
  const std::size_t received = buckets_[number].received + 1;
  const auto kind = received < ring_size() ? MessageKind::kPush : MessageKind::kPull;
  if (received <= messages_a_step() && message.kind == kind &&
      message.frame.tensor == id_of(number, block_of(received))) {
    return;
  }
  fail(ErrorCode::kDataLoss,
       "message from rank {}: it is not number {} of the {} for the {} in step {}", previous(),
       received, messages_a_step(), bucket_name(number), message.step);
}

void RingWorker::take(std::size_t number, const Early& message) {
  check_is_next(number, message);
  const std::size_t received = ++buckets_[number].received;
  const std::size_t block = block_of(received);
  decode_block(number, block, message);
  if (received + 1 < ring_size()) {
    encode_block(number, block, MessageKind::kPush);
  } else if (received + 1 == ring_size()) {
    encode_block(number, block, MessageKind::kPull);
  } else if (received < messages_a_step()) {
    const Frame& frame = message.frame;
    send(next(), message_of(MessageKind::kPull, message.step, frame.tensor,
                            {frame.codec, frame.not_finite}, frame.payload));
  }
}

void RingWorker::decode_block(std::size_t number, std::size_t block, const Early& message) {
  const std::span<float> values = block_values(buckets_[number], block);
  counters_.pulled_values += values.size();
  const Stopwatch watch(counters_.decode_seconds, processor_seconds);
  const auto where = [&] {
    return fmt::format("message from rank {}: block {} of the {}", previous(), block,
                       bucket_name(number));
  };
  with_context(where, [&] {
    if (message.kind == MessageKind::kPush) {
      decode_add(message.frame.codec, message.frame.payload, 1.0F, values, pool());
    } else {
      decode(message.frame.codec, message.frame.payload, values, pool());
    }
  });
}

void RingWorker::apply_change(std::size_t tensor, std::span<float> parameters) {
  const Place place = places_[tensor];
  const float weight = 1.0F / static_cast<float>(job().workers);
  const std::span<const float> sum =
      std::span(buckets_[place.bucket].values).subspan(place.offset, parameters.size());
  mean_.resize(sum.size());
  std::ranges::transform(sum, mean_.begin(), [&](float value) { return value * weight; });
  apply_mean(update_, tensor, mean_, parameters);
}

}  // namespace

std::unique_ptr<Communicator> make_ring_worker(std::shared_ptr<const Placement> placement,
                                               Transport& transport, const Update& update,
                                               ThreadPool* pool) {
  return std::make_unique<RingWorker>(std::move(placement), transport, update, pool);
}

}  // namespace tersewire
