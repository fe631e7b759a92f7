#include "ring_aggregator.h"

#include <algorithm>
#include <optional>

#include "node_state.h"
#include "raw_agreement.h"
#include "ring_layout.h"

namespace tersewire {
namespace {

// A group's sum of a block in encoded form, held until all groups' have arrived.
struct GroupSum {
  SharedBytes bytes;  // what `frame` points into; null where none has arrived
  Frame frame;
};

struct Block {
  std::unique_ptr<Encoder> encoder;
  std::vector<GroupSum> sums;  // by group, of the current step
  std::size_t arrived = 0;
  std::uint64_t step = 1;  // the one that sums are collected for
};

class RingAggregator final : public Server {
 public:
  RingAggregator(std::shared_ptr<const Placement> placement, Transport& transport,
                 ThreadPool* pool);

  void resume(const NodeState& state) override;
  Counters run(const SaveState& save) override;
  void take(std::span<const Received> received) override;
  [[nodiscard]] NodeState state(std::uint64_t exchange) override;

 private:
  void sort_in(const Received& received);
  void take_sum(const Received& received);
  void take_done(const Received& received);
  [[nodiscard]] std::uint32_t own_block(const Received& received) const;
  [[nodiscard]] bool is_finished() const;
  [[nodiscard]] bool needs(int rank) const;

  void advance(std::uint32_t id);
  void add_up(std::uint32_t id);
  SharedBytes encoded_sum(std::uint32_t id);
  void send(std::uint32_t id, const SharedBytes& sum);
  void save_after(std::uint64_t step);
  [[nodiscard]] std::vector<ResidualRun> residual_runs() const override;

  // The rank of the worker that has its group's sum of this block.
  [[nodiscard]] std::size_t holder(std::size_t group, std::uint32_t id) const {
    return group * layout_.group() + (id + layout_.group() - 1) % layout_.group();
  }
  [[nodiscard]] std::string name(std::uint32_t id) const {
    return fmt::format("block {} of the {}", id % layout_.group(),
                       layout_.name(id / layout_.group()));
  }

  std::shared_ptr<const Placement> placement_;
  RingLayout layout_;
  const Job& job_;
  Transport& transport_;
  ThreadPool* pool_;
  SaveState save_;
  std::vector<Block> blocks_;  // by number; only this server's have an encoder
  std::vector<bool> done_;     // by worker
  std::optional<std::uint64_t> last_step_;
  // Shared by all blocks: one is worked on at a time.
  Floats sum_;
  Bytes payload_;
  Counters counters_;
};

RingAggregator::RingAggregator(std::shared_ptr<const Placement> placement, Transport& transport,
                               ThreadPool* pool)
    : placement_(std::move(placement)),
      layout_(placement_),
      job_(placement_->job),
      transport_(transport),
      pool_(pool),
      blocks_(layout_.buckets().size() * layout_.pieces()),
      done_(static_cast<std::size_t>(job_.workers), false) {
  for (std::size_t bucket = 0; bucket < layout_.buckets().size(); ++bucket) {
    for (std::size_t number = 0; number < layout_.group(); ++number) {
      if (layout_.server_of(number) != transport_.rank()) continue;
      Block& block = blocks_[layout_.id_of(bucket, number)];
      block.encoder = layout_.make_encoder(placement_->pull_codecs, bucket, layout_.block(number),
                                           transport_.rank());
      block.sums.resize(layout_.groups());
    }
  }
}

std::vector<ResidualRun> RingAggregator::residual_runs() const {
  std::vector<ResidualRun> runs;
  for (std::uint32_t id = 0; id < blocks_.size(); ++id) {
    if (!blocks_[id].encoder) continue;
    layout_.add_runs(id / layout_.pieces(), layout_.block(id % layout_.pieces()),
                     blocks_[id].encoder->residual(), runs);
  }
  return runs;
}

void RingAggregator::resume(const NodeState& state) {
  load_residuals(*placement_, state.pulled, residual_runs());
  for (Block& block : blocks_) block.step = exchanges_in(job_, state) + 1;
}

void RingAggregator::save_after(std::uint64_t step) {
  if (!save_ || !is_saved_after(job_, step) || !all_are_past(job_, step, blocks_)) return;
  save_(state(step));
}

NodeState RingAggregator::state(std::uint64_t exchange) {
  NodeState state = empty_state(*placement_, transport_.rank(), exchange);
  state.pulled = save_residuals(*placement_, residual_runs());
  return state;
}

Counters RingAggregator::run(const SaveState& save) {
  save_ = save;
  while (!is_finished()) {
    const Received received = [&] {
      const Stopwatch watch(counters_.wait_seconds, wall_seconds);
      return receive_parsed(transport_, job_.wait_limits(), "sums of groups",
                            [&](int rank) { return needs(rank); });
    }();
    sort_in(received);
  }
  return counters_;
}

// A worker may be done while its part of the last step is still in its group's ring.
bool RingAggregator::is_finished() const {
  return std::ranges::find(done_, false) == done_.end() &&
         std::ranges::none_of(blocks_, [&](const Block& block) {
           return block.encoder && block.step <= *last_step_;
         });
}

// Whether other groups wait for a sum that is still to come from a worker.
bool RingAggregator::needs(int rank) const {
  if (rank >= job_.workers || done_[static_cast<std::size_t>(rank)]) return false;
  const std::size_t group = static_cast<std::size_t>(rank) / layout_.group();
  for (std::uint32_t id = 0; id < blocks_.size(); ++id) {
    const Block& block = blocks_[id];
    if (block.arrived > 0 && !block.sums[group].bytes &&
        holder(group, id) == static_cast<std::size_t>(rank)) {
      return true;
    }
  }
  return false;
}

void RingAggregator::take(std::span<const Received> received) {
  for (const Received& message : received) sort_in(message);
}

void RingAggregator::sort_in(const Received& received) {
  counters_.pushed_bytes += received.bytes->size();
  if (received.from >= job_.workers) {
    fail(ErrorCode::kDataLoss, "message from rank {}: only workers send to servers", received.from);
  }
  switch (received.message.header.kind) {
    case MessageKind::kPush:
      return take_sum(received);
    case MessageKind::kDone:
      return take_done(received);
    default:
      fail(ErrorCode::kDataLoss, "message from rank {}: servers take pushes only", received.from);
  }
}

void RingAggregator::take_done(const Received& received) {
  const std::uint64_t step = received.message.header.step;
  if (last_step_.value_or(step) != step) {
    fail(ErrorCode::kFailedPrecondition,
         "worker {} is done after step {} and another after step {}; let every worker end after "
         "the same step",
         received.from, step, *last_step_);
  }
  last_step_ = step;
  done_[static_cast<std::size_t>(received.from)] = true;
}

void RingAggregator::take_sum(const Received& received) {
  const std::uint32_t id = own_block(received);
  Block& block = blocks_[id];
  const std::uint64_t step = received.message.header.step;
  GroupSum& sum = block.sums[static_cast<std::size_t>(received.from) / layout_.group()];
  if (step != block.step || sum.bytes) {
    fail(ErrorCode::kDataLoss, "push from worker {}: {} {}", received.from, name(id),
         came_for(step, block.step));
  }
  check_length(
      received.from, name(id), received.message.frames.front(),
      layout_.most_bytes(id / layout_.pieces(), layout_.block(id % layout_.pieces()), false));
  counters_.pushed_values += block.encoder->elems();
  sum = {.bytes = received.bytes, .frame = received.message.frames.front()};
  if (++block.arrived == layout_.groups()) advance(id);
}

// The number of the block that came, which is this server's and its sender's.
std::uint32_t RingAggregator::own_block(const Received& received) const {
  const Frames& frames = received.message.frames;
  const auto from = static_cast<std::size_t>(received.from);
  if (frames.size() == 1) {
    const auto id = layout_.find(frames.front());
    if (id && blocks_[*id].encoder && holder(from / layout_.group(), *id) == from) return *id;
  }
  fail(ErrorCode::kDataLoss,
       "push from worker {}: it is not one block that this worker sends to rank {}", received.from,
       transport_.rank());
}

void RingAggregator::advance(std::uint32_t id) {
  add_up(id);
  const SharedBytes sum = encoded_sum(id);
  Block& block = blocks_[id];
  std::ranges::fill(block.sums, GroupSum{});
  block.arrived = 0;
  save_after(block.step++);
  send(id, sum);
}

// In the order of groups, whatever the order of arrival, so that a run repeats to the bit.
void RingAggregator::add_up(std::uint32_t id) {
  const Block& block = blocks_[id];
  const Stopwatch watch(counters_.decode_seconds, processor_seconds);
  sum_.assign(block.encoder->elems(), 0.0F);
  for (std::size_t group = 0; group < block.sums.size(); ++group) {
    const Frame& frame = block.sums[group].frame;
    with_context(
        [&] { return fmt::format("push of {} from worker {}", name(id), holder(group, id)); },
        [&] { decode_add(frame.codec, frame.payload, 1.0F, sum_, pool_); });
  }
}

SharedBytes RingAggregator::encoded_sum(std::uint32_t id) {
  const Block& block = blocks_[id];
  // A sum of what travels raw does so too.
  const bool raw =
      std::ranges::any_of(block.sums, [](const GroupSum& sum) { return sum.frame.not_finite; });
  payload_.clear();
  Encoded encoded;
  {
    const Stopwatch watch(counters_.encode_seconds, processor_seconds);
    encoded = with_context([&] { return "sum of " + name(id); },
                           [&] {
                             return encode_in_step(job_, *block.encoder, sum_, block.step, raw,
                                                   payload_, pool_);
                           });
  }
  counters_.not_finite_tensors += encoded.not_finite ? 1 : 0;
  MessageWriter writer({.kind = MessageKind::kPull,
                        .sender = static_cast<std::uint32_t>(transport_.rank()),
                        .step = block.step});
  writer.add(layout_.frame_of(id / layout_.pieces(), id % layout_.pieces(), encoded, payload_));
  return shared(writer);
}

// Compressed once: the same bytes go to every group.
void RingAggregator::send(std::uint32_t id, const SharedBytes& sum) {
  for (std::size_t group = 0; group < layout_.groups(); ++group) {
    counters_.pulled_bytes += sum->size();
    counters_.pulled_values += blocks_[id].encoder->elems();
    send_bounded(transport_, *placement_, static_cast<int>(holder(group, id)), sum);
  }
}

}  // namespace

std::unique_ptr<Server> make_ring_aggregator(std::shared_ptr<const Placement> placement,
                                             Transport& transport, const Update& /*update*/,
                                             ThreadPool* pool) {
  return std::make_unique<RingAggregator>(std::move(placement), transport, pool);
}

}  // namespace tersewire
