#include "parameter_server.h"

#include <algorithm>
#include <iterator>

#include "at_once.h"
#include "followed.h"
#include "node_state.h"
#include "raw_agreement.h"
#include "scaler_agreement.h"
#include "stale_server.h"

namespace tersewire {
namespace {

// A push, in encoded form for as long as others come before it.
struct Push {
  bool has_arrived = false;
  SharedBytes bytes;      // what `frame` points into; null where that is in the sum
  bool is_whole = false;  // among differences: added last
  Frame frame;
};

struct ServerPart {
  std::unique_ptr<Encoder> encoder;
  std::vector<Push> pushes;  // by child, of the current step
  int arrived = 0;
  bool is_touched = false;  // some are not looked at yet
  Followed followed;
  Floats sum;  // the mean, as far as the first so many children are in it; at last its change
  std::size_t added = 0;          // children
  std::uint64_t step = 1;         // the one that pushes are collected for
  std::uint64_t passed_down = 0;  // an aggregator's: the last step that came back from above
};

// A server of all workers, or an aggregator of a tree: its children are workers, or aggregators.
class ParameterServer final : public Server {
 public:
  ParameterServer(std::shared_ptr<const Placement> placed, Transport& transport, Update update,
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
  void save_after(std::uint64_t step);
  void take_push(const Received& received, const Frame& frame);
  void take_offer(const Received& received);
  void pass_down(const Received& received);
  void work_off();
  void add_pushes(std::span<const std::size_t> some);
  void add_pushes(std::size_t part, Counters& counted);
  void add_push(std::size_t part, std::size_t child, Counters& counted);
  void decode_push(std::size_t part, std::size_t child);
  void follow(std::size_t part, Counters& counted);
  void advance(std::span<const std::size_t> some);
  bool encode_levels(std::size_t part);
  void encode_results(std::span<const std::size_t> some);
  void update_parts(std::span<const std::size_t> some);
  Encoded encode(std::size_t part, Bytes& out);
  template <typename Encode>
  void add_result(std::size_t part, const Encode& encode);
  void send_open_message();
  void send_up(const SharedBytes& bytes);
  void send_down(const SharedBytes& bytes);
  void check_nothing_is_open() const;
  [[nodiscard]] bool is_over() const;
  [[nodiscard]] bool needs(int rank) const;
  [[nodiscard]] Bytes contributors(const ServerPart& state) const;
  [[nodiscard]] bool passes_on_raw(const ServerPart& state) const;

  [[nodiscard]] bool is_root() const { return node_.parent < 0; }
  // By part.
  [[nodiscard]] const std::vector<std::shared_ptr<const Codec>>& encoder_codecs() const {
    return is_root() ? placement_->pull_codecs : placement_->push_codecs;
  }
  [[nodiscard]] int quorum() const { return node_.children - job_.backup_workers; }
  [[nodiscard]] bool is_complete(std::size_t part) const {
    return parts_[part].arrived == quorum();
  }
  [[nodiscard]] float weight_of(std::size_t child) const;
  [[nodiscard]] MessageHeader header(MessageKind kind, std::uint64_t step) const {
    return {.kind = kind, .sender = static_cast<std::uint32_t>(transport_.rank()), .step = step};
  }
  [[nodiscard]] std::string name(std::size_t part) const { return placement_->name(part); }
  // A child, for sentences.
  [[nodiscard]] std::string child_name(std::size_t child) const {
    const int rank = node_.first_child + static_cast<int>(child);
    return fmt::format("{} {}", rank < job_.workers ? "worker" : "aggregator", rank);
  }

  std::shared_ptr<const Placement> placement_;
  const Job& job_;
  Transport& transport_;
  Update update_;
  SaveState save_;
  ThreadPool* pool_;
  TreeNode node_;
  std::vector<ServerPart> parts_;  // by number; only this server's have an encoder
  std::vector<bool> done_;         // by child
  ScalerAgreement agreement_;
  std::vector<std::size_t> touched_;  // parts, as their pushes came
  // The results of a bucket travel together, as far as they came together.
  MessageWriter open_{MessageHeader{}};
  std::size_t open_bucket_ = 0;
  std::size_t open_frames_ = 0;
  std::uint64_t open_values_ = 0;
  Floats delta_;  // shared by all parts: one is updated at a time
  EncodedAhead ahead_;
  std::vector<Floats> spare_;  // of sums that are not begun
  std::vector<std::int32_t> levels_;
  Counters counters_;
};

TreeNode place_of(const Placement& placement, int rank) {
  if (!placement.tree.empty()) return placement.tree[static_cast<std::size_t>(rank)];
  const int workers = placement.job.workers;
  return {.parent = -1, .first_child = 0, .children = workers, .workers = workers};
}

ParameterServer::ParameterServer(std::shared_ptr<const Placement> placed, Transport& transport,
                                 Update update, ThreadPool* pool)
    : placement_(std::move(placed)),
      job_(placement_->job),
      transport_(transport),
      update_(std::move(update)),
      pool_(pool),
      node_(place_of(*placement_, transport.rank())),
      parts_(placement_->parts.size()),
      done_(static_cast<std::size_t>(node_.children), false),
      agreement_(job_.workers) {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (placement_->tree.empty() && placement_->owners[i] != transport.rank()) continue;
    parts_[i].encoder = encoder_for(*placement_, encoder_codecs(), i, transport_.rank());
    parts_[i].pushes.resize(done_.size());
    if (placement_->follows[i]) parts_[i].followed = Followed(placement_->parts[i].elems);
  }
}

void ParameterServer::resume(const NodeState& state) {
  load_residuals(*placement_, is_root() ? state.pulled : state.pushed, residual_runs());
  load_residuals(*placement_, state.followed, followed_of(parts_));
  const std::uint64_t step = exchanges_in(job_, state);
  for (ServerPart& part : parts_) {
    part.step = step + 1;
    part.passed_down = step;
  }
  agreement_.skip_to(step);
}

void ParameterServer::save_after(std::uint64_t step) {
  if (!save_ || !is_saved_after(job_, step) || !all_are_past(job_, step, parts_)) return;
  NodeState saved = state(step);
  if (job_.servers_save_together) send_open_message();
  save_(std::move(saved));
}

NodeState ParameterServer::state(std::uint64_t exchange) {
  NodeState state = empty_state(*placement_, transport_.rank(), exchange);
  (is_root() ? state.pulled : state.pushed) = save_residuals(*placement_, residual_runs());
  state.followed = save_residuals(*placement_, followed_of(parts_));
  return state;
}

Counters ParameterServer::run(const SaveState& save) {
  save_ = save;
  while (!is_over()) {
    std::vector<Received> received;
    {
      const Stopwatch watch(counters_.wait_seconds, wall_seconds);
      received.push_back(receive_parsed(
          transport_, server_wait_limits(job_, transport_.rank(), done_),
          is_root() ? "pushes" : "pushes or pulls", [&](int rank) { return needs(rank); }));
    }
    while (pool_ != nullptr && received.size() < pool_->threads()) {
      auto more = transport_.receive(std::chrono::milliseconds(0));
      if (!more) break;
      received.push_back(parse_incoming(std::move(*more)));
    }
    take(received);
  }
  check_nothing_is_open();
  if (!is_root()) {
    MessageWriter done(header(MessageKind::kDone, 0));
    send_up(shared(done));
  }
  return counters_;
}

// Whether others wait for what is still to come from a child.
bool ParameterServer::needs(int rank) const {
  const int child = rank - node_.first_child;
  if (child < 0 || child >= node_.children || job_.backup_workers > 0) return false;
  const auto place = static_cast<std::size_t>(child);
  if (done_[place]) return false;
  return agreement_.needs(place) || std::ranges::any_of(parts_, [&](const ServerPart& part) {
           return part.arrived > 0 && !part.pushes[place].has_arrived;
         });
}

// Nothing more comes from below, nor, at an aggregator, from above.
bool ParameterServer::is_over() const {
  const auto came_back = [](const ServerPart& state) {
    return state.passed_down + 1 == state.step;
  };
  return std::ranges::find(done_, false) == done_.end() &&
         (is_root() || std::ranges::all_of(parts_, came_back));
}

void ParameterServer::check_nothing_is_open() const {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].arrived == 0) continue;
    fail(ErrorCode::kFailedPrecondition,
         "all workers are done, and {} of them pushed {} in step {} without the others; let every "
         "worker end after the same step",
         parts_[i].arrived, name(i), parts_[i].step);
  }
}

void ParameterServer::take(std::span<const Received> received) {
  for (const Received& message : received) sort_in(message);
  work_off();
}

void ParameterServer::sort_in(const Received& received) {
  if (!is_root() && received.from == node_.parent) return pass_down(received);
  counters_.pushed_bytes += received.bytes->size();
  const int child = received.from - node_.first_child;
  if (child < 0 || child >= node_.children) {
    fail(ErrorCode::kDataLoss,
         "message from rank {}: it is not one of those that send to this server", received.from);
  }
  switch (received.message.header.kind) {
    case MessageKind::kPush:
      for (const Frame& frame : received.message.frames) take_push(received, frame);
      return;
    case MessageKind::kOffer:
      return take_offer(received);
    case MessageKind::kDone:
      done_[static_cast<std::size_t>(child)] = true;
      return;
    default:
      fail(ErrorCode::kDataLoss, "message from rank {}: servers take pushes only", received.from);
  }
}

void ParameterServer::take_push(const Received& received, const Frame& frame) {
  const auto child = static_cast<std::size_t>(received.from - node_.first_child);
  const std::size_t part = part_in(*placement_, received.from, frame);
  ServerPart& state = parts_[part];
  if (!state.encoder) {
    fail(ErrorCode::kDataLoss, "push from {}: {} does not belong to this server", child_name(child),
         name(part));
  }
  check_length(received.from, name(part), frame, placement_->most_pushed_bytes(part));
  counters_.pushed_values += state.encoder->elems();
  if (is_complete(part)) work_off();
  const std::uint64_t step = received.message.header.step;
  if (step < state.step && job_.backup_workers > 0) {
    // Too late: its sender learns that from the delta, and takes it back.
    ++counters_.unused_pushes;
    return;
  }
  Push& push = state.pushes[child];
  if (step != state.step || push.has_arrived) {
    fail(ErrorCode::kDataLoss, "push from {}: {} {}", child_name(child), name(part),
         came_for(step, state.step));
  }
  push = {.has_arrived = true, .bytes = received.bytes, .frame = frame};
  ++state.arrived;
  if (!std::exchange(state.is_touched, true)) touched_.push_back(part);
}

void ParameterServer::take_offer(const Received& received) {
  if (!placement_->options.scaler_sharing || transport_.rank() != job_.workers) {
    fail(ErrorCode::kDataLoss, "message from rank {}: scalers are not agreed on here",
         received.from);
  }
  const SharedBytes agreed = agreement_.take(received, *placement_, transport_.rank());
  if (agreed) send_down(agreed);
}

// What the root sent goes to the children unchanged, except for its sender.
void ParameterServer::pass_down(const Received& received) {
  counters_.pulled_bytes += received.bytes->size();
  const MessageHeader& came = received.message.header;
  if (came.kind != MessageKind::kPull) {
    fail(ErrorCode::kDataLoss, "message from aggregator {}: only pulls come from above",
         received.from);
  }
  MessageWriter writer(header(MessageKind::kPull, came.step));
  for (const Frame& frame : received.message.frames) {
    const std::size_t part = part_in(*placement_, received.from, frame);
    ServerPart& state = parts_[part];
    check_length(received.from, name(part), frame, placement_->most_pulled_bytes(part));
    if (came.step != state.passed_down + 1 || came.step >= state.step) {
      fail(ErrorCode::kDataLoss,
           "message from aggregator {}: {} came for step {}, which is not due after step {}",
           received.from, name(part), came.step, state.passed_down);
    }
    state.passed_down = came.step;
    counters_.pulled_values += state.encoder->elems() * (1 + done_.size());
    writer.add(frame);
  }
  send_down(shared(writer));
}

// What has come for some parts. Parts are worked on beside each other where there are threads, but
// for updates; what is sent is in the order in which it came.
void ParameterServer::work_off() {
  const std::vector<std::size_t> touched = std::exchange(touched_, {});
  for (const std::size_t part : touched) parts_[part].is_touched = false;
  std::span<const std::size_t> rest = touched;
  while (!rest.empty()) {
    const auto some = next_at_once(rest, encoder_codecs(), pool_);
    // With scaler sharing sums may be of digits, once all are there.
    if (!placement_->options.scaler_sharing) add_pushes(some);
    std::vector<std::size_t> complete;
    std::ranges::copy_if(some, std::back_inserter(complete),
                         [&](std::size_t part) { return is_complete(part); });
    advance(complete);
  }
  send_open_message();
}

void ParameterServer::add_pushes(std::span<const std::size_t> some) {
  for (const std::size_t part : some) {
    ServerPart& state = parts_[part];
    if (state.added > 0 || !state.sum.empty() || spare_.empty()) continue;
    state.sum = std::move(spare_.back());
    spare_.pop_back();
  }
  for_each_part(some, pool_for(*placement_, some, pool_), counters_,
                [&](std::size_t part, Counters& counted) { add_pushes(part, counted); });
}

// Sums are in the order of ranks, whatever the order of arrival, so that a run repeats to the bit.
// The first so many that are there need not wait for the others.
void ParameterServer::add_pushes(std::size_t part, Counters& counted) {
  ServerPart& state = parts_[part];
  for (std::size_t child = state.added; child < state.pushes.size(); ++child) {
    if (state.pushes[child].has_arrived) {
      add_push(part, child, counted);
    } else if (!is_complete(part)) {
      return;
    }
  }
  if (state.followed) follow(part, counted);
}

// All are in the sum but those that are no differences.
void ParameterServer::follow(std::size_t part, Counters& counted) {
  ServerPart& state = parts_[part];
  const Stopwatch watch(counted.decode_seconds, processor_seconds);
  const auto whole = std::ranges::count_if(state.pushes, &Push::is_whole);
  if (whole < std::ssize(state.pushes)) state.followed.add(state.sum);
  for (std::size_t child = 0; child < state.pushes.size(); ++child) {
    if (state.pushes[child].is_whole) decode_push(part, child);
  }
}

// The next of those that have arrived.
void ParameterServer::add_push(std::size_t part, std::size_t child, Counters& counted) {
  ServerPart& state = parts_[part];
  Push& push = state.pushes[child];
  const Stopwatch watch(counted.decode_seconds, processor_seconds);
  if (state.added == 0) {
    state.sum.resize(state.encoder->elems());
    if (weight_of(child) != 1) std::ranges::fill(state.sum, 0.0F);
  }
  push.is_whole = state.followed && is_whole(push.frame.codec);
  if (!push.is_whole) decode_push(part, child);
  state.added = child + 1;
}

// Into the sum, which a lone push overwrites.
void ParameterServer::decode_push(std::size_t part, std::size_t child) {
  ServerPart& state = parts_[part];
  Push& push = state.pushes[child];
  const Frame& frame = push.frame;
  const float weight = weight_of(child);
  with_context([&] { return fmt::format("push of {} from {}", name(part), child_name(child)); },
               [&] {
                 if (weight == 1) return decode(frame.codec, frame.payload, state.sum, pool_);
                 decode_add(frame.codec, frame.payload, weight, state.sum, pool_);
               });
  push.bytes.reset();
  push.frame.payload = {};
}

// Parts of which enough has come.
void ParameterServer::advance(std::span<const std::size_t> some) {
  if (placement_->options.scaler_sharing) {
    for (const std::size_t part : some) {
      if (encode_levels(part)) continue;
      add_pushes({&part, 1});
      encode_results({&part, 1});
    }
  } else {
    encode_results(some);
  }
  for (const std::size_t part : some) {
    ServerPart& state = parts_[part];
    std::ranges::fill(state.pushes, Push{});
    state.arrived = 0;
    state.added = 0;
    spare_.push_back(std::exchange(state.sum, {}));
    save_after(state.step++);
  }
}

void ParameterServer::encode_results(std::span<const std::size_t> some) {
  if (is_root() && update_) update_parts(some);
  ahead_.clear();
  if (ThreadPool* const pool = pool_for(*placement_, some, pool_)) {
    const Stopwatch watch(counters_.encode_seconds, processor_seconds);
    ahead_.encode(some, pool, [&](std::size_t part, Bytes& out) { return encode(part, out); });
  }
  for (const std::size_t part : some) {
    add_result(part, [&](Bytes& message) {
      const auto ahead = ahead_.append(part, message);
      return ahead ? *ahead : encode(part, message);
    });
  }
}

// The change that a mean makes takes its place.
void ParameterServer::update_parts(std::span<const std::size_t> some) {
  for (const std::size_t part : some) {
    Floats& sum = parts_[part].sum;
    delta_.assign(sum.size(), 0.0F);  // what an Update leaves alone
    update_(placement_->parts[part], sum, delta_);
    std::swap(sum, delta_);
  }
}

float ParameterServer::weight_of(std::size_t child) const {
  if (placement_->tree.empty()) return 1.0F / static_cast<float>(quorum());
  const auto rank = static_cast<std::size_t>(node_.first_child) + child;
  return static_cast<float>(placement_->tree[rank].workers) / static_cast<float>(node_.workers);
}

// Ternary gradients under scalers that the workers agreed on add up exactly, as integers. Others
// are added up as values: those of parts that are not finite, or have nothing to agree on.
bool ParameterServer::encode_levels(std::size_t part) {
  const ServerPart& state = parts_[part];
  const Frame& first = state.pushes.front().frame;
  if (!placement_->options.scaler_sharing || !codec_traits(first.codec).shares_scalers)
    return false;
  const std::size_t elems = state.encoder->elems();
  PayloadScalers agreed;
  {
    const Stopwatch watch(counters_.decode_seconds, processor_seconds);
    levels_.assign(elems, 0);
    for (std::size_t child = 0; child < state.pushes.size(); ++child) {
      const Frame& frame = state.pushes[child].frame;
      with_context([&] { return fmt::format("push of {} from {}", name(part), child_name(child)); },
                   [&] {
                     PayloadScalers scalers = payload_scalers(frame.codec, frame.payload, elems);
                     if (child == 0)
                       agreed = std::move(scalers);
                     else if (scalers != agreed)
                       fail(ErrorCode::kDataLoss, "its scalers are not those that were agreed on");
                     decode_levels_add(frame.codec, frame.payload, levels_);
                   });
    }
  }
  add_result(part, [&](Bytes& message) {
    append_levels(levels_, static_cast<std::uint32_t>(job_.workers), agreed.scalers,
                  agreed.bucket_elems, true, message);
    return Encoded{.codec = CodecId::kLevels};
  });
  return true;
}

Encoded ParameterServer::encode(std::size_t part, Bytes& out) {
  const ServerPart& state = parts_[part];
  return with_context(
      [&] { return fmt::format("{} of {}", update_ ? "delta" : "mean", name(part)); },
      [&] {
        return encode_in_step(job_, *state.encoder, state.sum, state.step, passes_on_raw(state),
                              out, pool_);
      });
}

// A mean of what travels raw does so too. What an update makes of one is something else.
bool ParameterServer::passes_on_raw(const ServerPart& state) const {
  return !is_root() &&
         std::ranges::any_of(state.pushes, [](const Push& push) { return push.frame.not_finite; });
}

Bytes ParameterServer::contributors(const ServerPart& state) const {
  Bytes bitmap((state.pushes.size() + 7) / 8, std::byte{0});
  for (std::size_t child = 0; child < state.pushes.size(); ++child) {
    if (state.pushes[child].has_arrived) bitmap[child / 8] |= std::byte{1} << (child % 8);
  }
  return bitmap;
}

// What `encode` appends joins the message of its bucket.
template <typename Encode>
void ParameterServer::add_result(std::size_t part, const Encode& encode) {
  if (placement_->bucket_of[part] != open_bucket_) send_open_message();
  const Stopwatch watch(counters_.encode_seconds, processor_seconds);
  const ServerPart& state = parts_[part];
  if (open_frames_ == 0) {
    open_bucket_ = placement_->bucket_of[part];
    open_.clear(header(is_root() ? MessageKind::kPull : MessageKind::kPush, state.step));
  }
  if (state.arrived < node_.children) {
    open_.add(frame_of(*placement_, part, {.codec = CodecId::kContributors}, contributors(state)));
  }
  const Frame frame = open_.add_encoded(static_cast<std::uint32_t>(placement_->parts[part].tensor),
                                        placement_->place_in_tensor(part), encode);
  ++open_frames_;
  open_values_ += state.encoder->elems();
  counters_.not_finite_tensors += frame.not_finite ? 1 : 0;
}

void ParameterServer::send_open_message() {
  if (std::exchange(open_frames_, 0) == 0) return;
  const std::uint64_t values = std::exchange(open_values_, 0);
  const bool own = job_.workers == 1 && placement_->share_node(0, transport_.rank());
  const SharedBytes bytes = shared(open_, own);
  if (is_root()) {
    counters_.pulled_values += values * done_.size();
    return send_down(bytes);
  }
  counters_.pushed_values += values;
  send_up(bytes);
}

void ParameterServer::send_up(const SharedBytes& bytes) {
  counters_.pushed_bytes += bytes->size();
  send_bounded(transport_, *placement_, node_.parent, bytes);
}

// Compressed once: the same bytes go to everyone.
void ParameterServer::send_down(const SharedBytes& bytes) {
  for (int child = 0; child < node_.children; ++child) {
    counters_.pulled_bytes += bytes->size();
    send_bounded(transport_, *placement_, node_.first_child + child, bytes);
  }
}

}  // namespace

std::unique_ptr<Server> make_parameter_server(std::shared_ptr<const Placement> placement,
                                              Transport& transport, const Update& update,
                                              ThreadPool* pool) {
  if (!placement->job.in_lock_step()) {
    return make_stale_server(std::move(placement), transport, update, pool);
  }
  return std::make_unique<ParameterServer>(std::move(placement), transport, update, pool);
}

}  // namespace tersewire
