#include "grpc_end.h"

#include <algorithm>
#include <exception>
#include <random>

#include "end_stream.h"
#include "ends.h"
#include "errors.h"
#include "grpc_credentials.h"

namespace tersewire {
namespace {

using std::chrono::milliseconds;

// Between attempts to reach the hub.
constexpr milliseconds kFirstHubPause(50);
constexpr milliseconds kLongestHubPause(2000);
// A thread that wakes so much later than it wanted was suspended.
constexpr milliseconds kLate(1000);
// What a peer may be told late that was taken, where more is waiting, and where not.
constexpr std::uint64_t kTellEvery = kWindowBytes / 8;
constexpr std::uint64_t kTellCaughtUp = kWindowBytes / 128;

// Answers of a hub that would be the same the next time.
bool is_final(grpc::StatusCode code) {
  return code == grpc::StatusCode::PERMISSION_DENIED || code == grpc::StatusCode::ALREADY_EXISTS ||
         code == grpc::StatusCode::FAILED_PRECONDITION ||
         code == grpc::StatusCode::INVALID_ARGUMENT || code == grpc::StatusCode::UNIMPLEMENTED ||
         code == grpc::StatusCode::RESOURCE_EXHAUSTED;
}

}  // namespace

std::uint64_t random_number() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

GrpcEnd::GrpcEnd(const std::string& hub, const GrpcNode& node, const GrpcSecurity& security,
                 const WaitLimits& limits, std::shared_ptr<GrpcHub> own_hub)
    : own_hub_(std::move(own_hub)),
      hub_(hub),
      rank_(node.rank),
      generation_(node.generation),
      security_(security),
      secure_(!security.certificates.empty()),
      job_(job_of(security)),
      names_(node.names),
      limits_(bounded(limits)),
      incarnation_(node.incarnation),
      peers_(static_cast<std::size_t>(node.nodes)),
      longest_(kUnknownLongest) {
  state_of(rank_).here = true;
  if (!node.direct.empty()) {
    door_ = std::make_unique<PeerDoor>(*this, node.direct, security);
    address_ = node.forwarded.empty() ? door_->address() : node.forwarded;
    door_->open();
  }
  thread_ = std::thread([this] { run(); });
  std::unique_lock lock(mutex_);
  try {
    await_all(lock);
  } catch (...) {
    say_goodbye(lock);
    throw;
  }
}

GrpcEnd::~GrpcEnd() {
  std::unique_lock lock(mutex_);
  say_goodbye(lock);
}

void GrpcEnd::await_all(std::unique_lock<std::mutex>& lock) {
  moved_.wait_for(lock, limits_.deadline, [&] { return joined_ || aborted_; });
  if (refused_) throw Error(ErrorCode::kFailedPrecondition, *aborted_);
  check_not_aborted();
  if (joined_) return;
  if (!answered_) {
    fail(ErrorCode::kUnavailable, "rank {} cannot reach the hub at {}: {}; {}", rank_, hub_,
         trouble_, what_to_check(hub_, trouble_, security_));
  }
  fail(ErrorCode::kDeadlineExceeded,
       "rank {} has waited {:.3g} s at the hub for {}; check whether they were started", rank_,
       std::chrono::duration<double>(limits_.deadline).count(), missing());
}

std::string GrpcEnd::missing() const {
  std::string ranks;
  for (int rank = 0; rank < size(); ++rank) {
    if (peers_[static_cast<std::size_t>(rank)].here) continue;
    ranks += fmt::format("{}{}", ranks.empty() ? "rank " : ", ", rank);
  }
  return ranks;
}

void GrpcEnd::check_not_aborted() const {
  if (aborted_) throw Error(ErrorCode::kAborted, *aborted_);
}

void GrpcEnd::send(int to, SharedBytes bytes) {
  const std::lock_guard lock(mutex_);
  check_not_aborted();
  check_sent(rank_, to, size(), bytes);
  PeerState& peer = state_of(to);
  if (peer.left) fail_receiver_has_left(rank_, to);
  sent_ += bytes->size();
  if (to == rank_) return deliver({.from = rank_, .bytes = std::move(bytes), .own = true});
  peer.sending.put(std::move(bytes));
  if (peer.direct != nullptr) return pump_direct(to);
  if (size() == 2) return pump();
  owes_data_ = true;
  wake_.notify_all();
}

void GrpcEnd::deliver(Incoming message) {
  inbox_.push_back(std::move(message));
  moved_.notify_one();
}

std::optional<Incoming> GrpcEnd::receive(milliseconds timeout) {
  std::unique_lock lock(mutex_);
  wait_at_most(moved_, lock, timeout, [&] { return !inbox_.empty() || aborted_; });
  check_not_aborted();
  std::optional<Incoming> message = take_first(inbox_);
  if (!message) return std::nullopt;
  received_ += message->bytes->size();
  if (message->from != rank_) {
    PeerState& peer = state_of(message->from);
    peer.receiving.took(message->bytes->size());
    tell_taken(peer, inbox_.empty());
    pump();
  }
  return message;
}

void GrpcEnd::tell_taken(PeerState& peer, bool caught_up) {
  const std::uint64_t untold = peer.receiving.taken() - peer.told_taken;
  if (untold >= (caught_up ? kTellCaughtUp : kTellEvery)) peer.owes_state = true;
}

void GrpcEnd::tell_all_states() {
  for (PeerState& peer : peers_) {
    if (peer.receiving.received() > peer.told_received ||
        peer.receiving.taken() > peer.told_taken) {
      peer.owes_state = true;
    }
  }
}

// Whether this was the first reason.
bool GrpcEnd::end_with(const std::string& reason) noexcept {
  if (!keep_first_reason(aborted_, reason)) return false;
  owes_abort_ = true;
  moved_.notify_all();
  return true;
}

void GrpcEnd::abort(const std::string& reason) noexcept {
  const std::lock_guard lock(mutex_);
  if (!end_with(reason)) return;
  try {
    pump();
  } catch (...) {
    wake_.notify_all();  // tries again
  }
}

Peer GrpcEnd::peer(int rank) const {
  const std::lock_guard lock(mutex_);
  check_not_aborted();
  Peer peer;
  if (rank == rank_) return peer;
  const PeerState& state = peers_[static_cast<std::size_t>(rank)];
  // While the hub is silent this node hears nobody, and it is the hub that is missing.
  const Clock::duration silent = Clock::now() - hub_heard_;
  peer.heard = state.heard + std::max(silent - kLate, Clock::duration(0));
  if (state.left) peer.gone = "has left the network";
  peer.waiting = state.sending.waiting_bytes();
  return peer;
}

// The thread: dials, and says what nobody else does.
void GrpcEnd::run() {
  for (std::unique_lock lock(mutex_); !stop_;) {
    const Clock::time_point now = Clock::now();
    // While this process was suspended it could hear nobody.
    if (now - ticked_ > kAliveEvery + kLate) {
      hub_heard_ += now - ticked_;
      for (EndStream* const stream : direct_) stream->heard += now - ticked_;
    }
    ticked_ = now;
    try {
      const bool leaves = goodbye_ == Goodbye::kSaid || goodbye_ == Goodbye::kHeard;
      if (stream_ == nullptr && now >= dial_at_ && !leaves) dial();
      if (stream_ != nullptr && now - std::max(hub_heard_, dialed_) > kMostSilence) {
        stream_->cancel();
      }
      look_after_direct(now);
      owes_alive_ = now - written_ >= kAliveEvery;
      tell_all_states();
    } catch (const std::exception& error) {
      end_with(fmt::format("rank {}: {}", rank_, error.what()));
    }
    send_what_is_owed();
    if (joined_ && !leaving_ && now - hub_heard_ > limits_.deadline) {
      end_with(fmt::format("rank {} has lost the hub at {} for {:.3g} s: {}; check whether it runs",
                           rank_, hub_, std::chrono::duration<double>(now - hub_heard_).count(),
                           trouble_));
    }
    const auto next =
        stream_ == nullptr ? std::min(dial_at_, now + kAliveEvery) : now + kAliveEvery;
    // When this thread comes to it, what is sent to several peers is there for all of them.
    while (wake_.wait_until(lock, next) == std::cv_status::no_timeout && owes_data_ && !stop_ &&
           finished_.empty() && stream_ != nullptr) {
      send_what_is_owed();
    }
    auto finished = std::exchange(finished_, {});
    lock.unlock();  // what goes may wait for gRPC's threads, and they for the mutex
    finished.clear();
    lock.lock();
  }
}

void GrpcEnd::send_what_is_owed() {
  owes_data_ = false;
  try {
    pump();
  } catch (const std::exception& error) {
    end_with(fmt::format("rank {}: {}", rank_, error.what()));
  }
}

void GrpcEnd::dial() {
  pause_ = std::clamp(2 * pause_, kFirstHubPause, kLongestHubPause);
  dialed_ = Clock::now();
  dial_at_ = dialed_ + pause_;
  stream_ = new DialedStream(*this, channel_to(hub_, security_), kExchangeMethod);
  ++streams_;
  owes_hello_ = true;
  owes_abort_ = aborted_.has_value();
  has_news_ = has_news_ || report_.sent_bytes > 0 || report_.received_bytes > 0;
  for (PeerState& peer : peers_) {
    if (peer.direct != nullptr) continue;
    peer.sending.rewind();
    peer.owes_resume = true;
  }
  stream_->start();
}

void GrpcEnd::pump() {
  for (int rank = 0; rank < size(); ++rank) pump_direct(rank);
  // What is owed the thread sends, when it is there for all peers.
  if (stream_ == nullptr || stream_->writing || owes_data_) return;
  BatchWriter batch(secure_, stream_->limit.bytes());
  fill(batch);
  if (batch.empty()) return;
  written_ = Clock::now();
  stream_->write(batch.finish());
}

void GrpcEnd::fill(BatchWriter& batch) {
  add_signs(batch);
  // Each peer has its turn, a record at a time.
  for (int idle = 0; idle < size() && batch.room() > 0;) {
    next_ = (next_ + 1) % size();
    const bool is_relayed = state_of(next_).direct == nullptr;
    idle = is_relayed && add_data(batch, next_) ? 0 : idle + 1;
  }
}

// To the hub.
void GrpcEnd::say(BatchWriter& batch, RecordKind kind, ByteView data) {
  batch.add({.kind = kind,
             .generation = generation_,
             .from = static_cast<std::uint32_t>(rank_),
             .to = kHubRank},
            data);
}

void GrpcEnd::add_signs(BatchWriter& batch) {
  if (std::exchange(owes_hello_, false)) {
    say(batch, RecordKind::kHello,
        hello_data({.incarnation = incarnation_,
                    .ranks = static_cast<std::uint32_t>(size()),
                    .address = address_}));
  }
  if (std::exchange(owes_abort_, false)) {
    const auto reason = std::as_bytes(std::span(*aborted_));
    say(batch, RecordKind::kAbort, reason.first(std::min(reason.size(), kMostReasonBytes)));
  }
  for (int rank = 0; rank < size() && batch.room() > 0; ++rank) {
    PeerState& peer = state_of(rank);
    if (rank == rank_ || peer.direct != nullptr || !(peer.owes_state || peer.owes_resume)) {
      continue;
    }
    batch.add(state_for(
        rank, std::exchange(peer.owes_resume, false) ? RecordKind::kResume : RecordKind::kState));
  }
  if (std::exchange(owes_report_, false)) {
    say(batch, RecordKind::kDirect, direct_data(report_));
    report_.trouble.clear();
    has_news_ = false;
  }
  if (goodbye_ == Goodbye::kOwed) {
    goodbye_ = Goodbye::kSaid;
    say(batch, RecordKind::kGoodbye);
  } else if (std::exchange(owes_alive_, false) && batch.empty()) {
    say(batch, RecordKind::kAlive);
  }
}

RecordHead GrpcEnd::state_for(int to, RecordKind kind) {
  PeerState& peer = state_of(to);
  peer.owes_state = false;
  peer.told_received = peer.receiving.received();
  peer.told_taken = peer.receiving.taken();
  return {.kind = kind,
          .generation = generation_,
          .from = static_cast<std::uint32_t>(rank_),
          .to = static_cast<std::uint32_t>(to),
          .received = peer.told_received,
          .taken = peer.told_taken};
}

// What the hub is to hand on to several peers crosses this node's link once: the hub copies it.
bool GrpcEnd::add_data(BatchWriter& batch, int to) {
  const bool is_direct = state_of(to).direct != nullptr;
  const std::size_t room = batch.room(is_direct ? 0 : peers_.size());
  if (room == 0) return false;
  const auto chunk = state_of(to).sending.next(room);
  if (!chunk) return false;
  add_data(batch, to, *chunk, RecordKind::kData);
  if (is_direct) {
    report_.sent_bytes += kRecordHeadBytes + chunk->bytes;
    has_news_ = true;
    return true;
  }
  for (int other = 0; other < size() && chunk->bytes > 0; ++other) {
    if (state_of(other).direct != nullptr) continue;
    if (const auto copy = state_of(other).sending.next_like(*chunk)) {
      add_data(batch, other, *copy, RecordKind::kCopy);
    }
  }
  return true;
}

void GrpcEnd::add_data(BatchWriter& batch, int to, const SendingSide::Chunk& chunk,
                       RecordKind kind) {
  RecordHead head = state_for(to, kind);
  head.position = chunk.position;
  head.total = chunk.message->size();
  head.offset = chunk.offset;
  const ByteView data = ByteView(*chunk.message).subspan(chunk.offset, chunk.bytes);
  kind == RecordKind::kData ? batch.add(head, data, chunk.message) : batch.add_copy(head, data);
}

void GrpcEnd::on_written(EndStream& stream, bool ok) {
  const std::lock_guard lock(mutex_);
  stream.limit.ends();
  stream.wrote();
  if (leaving_) moved_.notify_all();
  try {
    if (ok) pump();
  } catch (const std::exception& error) {
    end_with(fmt::format("rank {}: {}", rank_, error.what()));
  }
}

void GrpcEnd::on_read(EndStream& stream, const grpc::ByteBuffer& batch, bool ok) {
  const std::lock_guard lock(mutex_);
  if (!ok) {
    leave(stream);
    return stream.let_go();
  }
  stream.heard = Clock::now();
  try {
    if (stream.is_direct) {
      take_direct(stream, batch);
    } else if (&stream == stream_) {
      hub_heard_ = Clock::now();
      pause_ = milliseconds(0);
      const grpc::Slice bytes = in_one_piece(batch);
      for (ByteView rest = view_of(bytes); !rest.empty();) take(take_record(rest, secure_));
    }
    pump();
  } catch (const std::exception& error) {
    end_with(fmt::format("what came to rank {}: {}", rank_, error.what()));
    wake_.notify_all();
  }
  stream.read();
}

void GrpcEnd::take(const Record& record) {
  const RecordHead& head = record.head;
  if (head.generation != generation_) {
    fail(ErrorCode::kDataLoss,
         "a record of generation {} came to a node of generation {}; run one version everywhere",
         head.generation, generation_);
  }
  if (head.kind == RecordKind::kRoster) {
    return take_roster(parse_roster(record.data, peers_.size()));
  }
  if (head.kind == RecordKind::kAddresses) {
    return take_addresses(parse_addresses(record.data, peers_.size()));
  }
  if (head.kind == RecordKind::kAbort) {
    end_with(std::string(reinterpret_cast<const char*>(record.data.data()), record.data.size()));
    return;
  }
  take_of_pair(record);
}

void GrpcEnd::take_of_pair(const Record& record) {
  const RecordHead& head = record.head;
  if (head.kind > RecordKind::kResume || head.from >= peers_.size() ||
      head.from == static_cast<std::uint32_t>(rank_) ||
      head.to != static_cast<std::uint32_t>(rank_)) {
    fail(ErrorCode::kDataLoss,
         "a record of kind {} from rank {} to rank {} is not for it; run one version everywhere",
         static_cast<unsigned>(head.kind), head.from, head.to);
  }
  const int from = static_cast<int>(head.from);
  PeerState& peer = state_of(from);
  with_context(
      [&] { return fmt::format("from rank {}", from); },
      [&] {
        peer.heard = Clock::now();
        peer.sending.hear(head.received, head.taken);
        if (head.kind == RecordKind::kResume) {
          peer.sending.rewind();
          peer.owes_state = true;
        }
        if (head.kind != RecordKind::kData) return;
        auto message = peer.receiving.add(record, longest_);
        if (message && leaving_) {
          peer.receiving.took(message->size());
        } else if (message) {
          deliver({.from = from, .bytes = std::make_shared<const Bytes>(std::move(*message))});
        }
        tell_taken(peer, false);
      });
  if (leaving_) moved_.notify_all();
}

void GrpcEnd::take_roster(const std::vector<std::uint32_t>& ages) {
  answered_ = true;
  for (int rank = 0; rank < size(); ++rank) {
    const std::uint32_t age = ages[static_cast<std::size_t>(rank)];
    PeerState& peer = state_of(rank);
    if (rank == rank_ || age == kNotHere) continue;
    peer.here = true;
    if (age == kHasLeft) {
      peer.left = true;
      peer.sending.drop();
    } else {
      peer.heard = std::max(peer.heard, hub_heard_ - milliseconds(age));
    }
  }
  if (!joined_) joined_ = missing().empty();
  moved_.notify_all();
}

void GrpcEnd::on_done(EndStream& stream, const grpc::Status& status) {
  const std::lock_guard lock(mutex_);
  leave(stream);
  if (stream.is_direct) {
    done_direct(stream, status);
  } else {
    --streams_;
    const bool final = is_final(status.error_code());
    if (!status.ok()) trouble_ = status.error_message();
    if (goodbye_ == Goodbye::kSaid) {
      goodbye_ = status.ok() || final ? Goodbye::kHeard : Goodbye::kOwed;
    } else if (final) {
      refused_ = !joined_;
      end_with(fmt::format("the hub at {} refuses rank {}: {}", hub_, rank_, trouble_));
    }
  }
  finished_.emplace_back(&stream);
  wake_.notify_all();
  moved_.notify_all();
}

bool GrpcEnd::all_is_delivered() const {
  return std::ranges::all_of(peers_,
                             [](const PeerState& peer) { return peer.sending.is_delivered(); });
}

// Waits until the others have all, says so to the hub, and ends the stream and the thread.
void GrpcEnd::say_goodbye(std::unique_lock<std::mutex>& lock) {
  leaving_ = true;
  for (const Incoming& message : inbox_) {
    if (message.from != rank_) state_of(message.from).receiving.took(message.bytes->size());
  }
  inbox_.clear();
  wake_.notify_all();
  const milliseconds farewell = std::min(kLongestFarewell, limits_.deadline);
  const auto is_told = [&] {
    return streams_ == 0 || (!owes_abort_ && (stream_ == nullptr || !stream_->writing));
  };
  if (joined_ && !aborted_) {
    moved_.wait_for(lock, limits_.deadline, [&] { return all_is_delivered() || aborted_; });
  }
  if (aborted_) moved_.wait_for(lock, farewell, is_told);
  if (answered_) {
    goodbye_ = Goodbye::kOwed;
    owes_report_ = has_news_;
    try {
      pump();
    } catch (const std::exception&) {
      wake_.notify_all();  // tries again
    }
    moved_.wait_for(lock, farewell, [&] { return goodbye_ == Goodbye::kHeard; });
  }
  stop_ = true;
  if (stream_ != nullptr) stream_->cancel();
  for (EndStream* const stream : direct_) stream->cancel();
  wake_.notify_all();
  moved_.wait(lock, [&] { return streams_ == 0 && direct_.empty(); });
  lock.unlock();
  if (door_) door_->close();
  thread_.join();
}

}  // namespace tersewire
