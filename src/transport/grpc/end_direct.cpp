// A node's direct streams, past the hub: who may open one, who dials whom, and what goes by
// which.
#include <algorithm>
#include <exception>

#include "end_stream.h"
#include "ends.h"
#include "errors.h"
#include "grpc_credentials.h"
#include "grpc_end.h"

namespace tersewire {
namespace {

using std::chrono::milliseconds;

// Between attempts to reach a peer.
constexpr milliseconds kFirstPause(250);
constexpr milliseconds kLongestPause(30000);
// For a connection and the peer's first record in it; who is missed for longer is complained of.
constexpr milliseconds kDialPatience(5000);
// For a hello.
constexpr milliseconds kPatience(10000);

}  // namespace

void GrpcEnd::look_after_direct(Clock::time_point now) {
  owes_report_ = owes_report_ || has_news_;
  for (EndStream* const stream : direct_) {
    if (!stream->peer && now - stream->since > kPatience) stream->cancel();
  }
  for (int rank = 0; rank < size(); ++rank) {
    PeerState& peer = state_of(rank);
    if (peer.direct != nullptr && now - peer.direct->heard > kMostSilence) {
      go_by(rank, nullptr);
    }
    if (peer.direct != nullptr && now - peer.direct->written >= kAliveEvery) {
      peer.owes_state = true;
    }
    if (peer.dialing != nullptr && now - peer.dialing->since > kDialPatience) {
      peer.dialing->cancel();
    }
    if (dials(rank, now)) dial_direct(rank);
  }
}

// Of two that listen the one with the higher rank dials, so that there is one stream.
bool GrpcEnd::dials(int to, Clock::time_point now) const {
  const PeerState& peer = peers_[static_cast<std::size_t>(to)];
  const std::string& address = peer.place.address;
  const bool is_reachable = to != rank_ && !address.empty() && !peer.left &&
                            (secure_ || security_.insecure || is_loopback(address));
  return is_reachable && (address_.empty() || rank_ > to) && peer.direct == nullptr &&
         peer.dialing == nullptr && now >= peer.dial_at && goodbye_ == Goodbye::kNotYet;
}

void GrpcEnd::dial_direct(int to) {
  PeerState& peer = state_of(to);
  if (!peer.missed) peer.missed = Clock::now();
  std::shared_ptr<grpc::Channel> channel;
  try {
    channel = channel_to(peer.place.address, security_, identity_of(to));
  } catch (const Error& error) {  // of a certificate that is just being renewed
    return miss(to, error.what());
  }
  peer.dialing = new DialedStream(*this, std::move(channel), kPeerMethod);
  peer.dialing->is_direct = true;
  peer.dialing->peer = to;
  direct_.insert(peer.dialing);
  BatchWriter batch(secure_);
  batch.add({.kind = RecordKind::kHello,
             .generation = generation_,
             .from = static_cast<std::uint32_t>(rank_),
             .to = static_cast<std::uint32_t>(to)},
            hello_data({.incarnation = incarnation_, .ranks = static_cast<std::uint32_t>(size())}));
  peer.dialing->start();
  peer.dialing->write(batch.finish());
}

void GrpcEnd::pump_direct(int to) {
  PeerState& peer = state_of(to);
  if (peer.direct == nullptr || peer.direct->writing) return;
  BatchWriter batch(secure_, peer.direct->limit.bytes());
  if (peer.owes_state || peer.owes_resume) {
    batch.add(state_for(
        to, std::exchange(peer.owes_resume, false) ? RecordKind::kResume : RecordKind::kState));
  }
  while (add_data(batch, to)) continue;
  if (batch.empty()) return;
  peer.direct->written = Clock::now();
  peer.direct->write(batch.finish());
}

void GrpcEnd::take_addresses(std::vector<PeerAddress> places) {
  for (int rank = 0; rank < size(); ++rank) {
    PeerState& peer = state_of(rank);
    PeerAddress& place = places[static_cast<std::size_t>(rank)];
    if (place.incarnation != peer.place.incarnation) {
      if (peer.direct != nullptr) go_by(rank, nullptr);
      if (peer.dialing != nullptr) peer.dialing->cancel();
    }
    if (place.address != peer.place.address) peer.dial_at = Clock::now();
    peer.place = std::move(place);
  }
  wake_.notify_all();
}

void GrpcEnd::on_accepted(AcceptedStream& stream, bool is_of_peer) {
  const std::lock_guard lock(mutex_);
  stream.is_direct = true;
  direct_.insert(&stream);
  if (!is_of_peer) {
    stream.finish({grpc::StatusCode::UNIMPLEMENTED, "there is no such method"});
  } else if (stop_) {
    stream.finish({grpc::StatusCode::UNAVAILABLE, "the node leaves"});
  } else {
    stream.read();
  }
}

void GrpcEnd::take_direct(EndStream& stream, const grpc::ByteBuffer& batch) {
  if (!stream.peer) {
    auto& accepted = static_cast<AcceptedStream&>(stream);
    try {
      const grpc::Slice bytes = in_one_piece(batch);
      ByteView rest = view_of(bytes);
      const Record hello = take_record(rest, secure_);
      if (!rest.empty())
        fail(ErrorCode::kDataLoss, "a hello must come alone; run one version everywhere");
      admit(accepted, hello);
    } catch (const std::exception& error) {
      accepted.finish({grpc::StatusCode::INVALID_ARGUMENT, error.what()});
    }
    return;
  }
  const int from = *stream.peer;
  PeerState& peer = state_of(from);
  if (peer.dialing == &stream) {
    peer.dialing = nullptr;
    go_by(from, &stream);
  }
  // It may have another by now, or none.
  if (peer.direct != &stream) return;
  const grpc::Slice bytes = in_one_piece(batch);
  for (ByteView rest = view_of(bytes); !rest.empty();) {
    const Record record = take_record(rest, secure_);
    if (record.head.generation != generation_ ||
        record.head.from != static_cast<std::uint32_t>(from)) {
      fail(ErrorCode::kDataLoss,
           "a record of generation {} and rank {} in the stream of rank {}; run one version "
           "everywhere",
           record.head.generation, record.head.from, from);
    }
    take_of_pair(record);
    if (record.head.kind != RecordKind::kData) continue;
    report_.received_bytes += kRecordHeadBytes + record.data.size();
    has_news_ = true;
  }
}

// The first record of a stream that came says who dialed it.
void GrpcEnd::admit(AcceptedStream& stream, const Record& record) {
  const RecordHead& head = record.head;
  if (head.kind != RecordKind::kHello || head.to != static_cast<std::uint32_t>(rank_) ||
      head.from >= peers_.size() || head.to == head.from) {
    fail(ErrorCode::kDataLoss,
         "a stream to rank {} begins without a hello to it; run one version everywhere", rank_);
  }
  const Hello hello = parse_hello(record.data);
  const int from = static_cast<int>(head.from);
  if (const auto why = objection(*stream.who(), identity_of(from))) {
    return stream.finish({grpc::StatusCode::PERMISSION_DENIED, *why});
  }
  const std::uint64_t known = state_of(from).place.incarnation;
  if (head.generation != generation_ || hello.ranks != peers_.size() || known == 0 ||
      hello.incarnation != known) {
    return stream.finish({grpc::StatusCode::UNAVAILABLE,
                          fmt::format("the hub has not announced this process to {} as {}",
                                      shown(identity_of(rank_)), shown(identity_of(from)))});
  }
  stream.peer = from;
  go_by(from, &stream);
}

void GrpcEnd::go_by(int to, EndStream* direct) {
  PeerState& peer = state_of(to);
  EndStream* const before = std::exchange(peer.direct, direct);
  if (before != nullptr) before->cancel();
  // What went the other way may be lost, and what the peer said there, too.
  peer.sending.rewind();
  peer.owes_resume = true;
  peer.missed.reset();
  peer.pause = milliseconds(0);
  peer.dial_at = Clock::now() + kFirstPause;
  wake_.notify_all();
}

void GrpcEnd::leave(EndStream& stream) {
  if (&stream == stream_) stream_ = nullptr;
  if (stream.peer && state_of(*stream.peer).direct == &stream) go_by(*stream.peer, nullptr);
}

void GrpcEnd::done_direct(EndStream& stream, const grpc::Status& status) {
  direct_.erase(&stream);
  if (!stream.peer || state_of(*stream.peer).dialing != &stream) return;
  state_of(*stream.peer).dialing = nullptr;
  const bool was_cancelled = status.error_code() == grpc::StatusCode::CANCELLED;
  miss(*stream.peer, was_cancelled ? "it does not answer" : status.error_message());
}

void GrpcEnd::miss(int to, const std::string& why) {
  PeerState& peer = state_of(to);
  peer.pause = std::clamp(2 * peer.pause, kFirstPause, kLongestPause);
  const Clock::time_point now = Clock::now();
  peer.dial_at = now + peer.pause;
  if (peer.complained || !peer.missed || now - *peer.missed < kDialPatience) return;
  if (!report_.trouble.empty()) return;  // the next time
  peer.complained = true;
  has_news_ = true;
  report_.trouble =
      fmt::format("{} cannot reach {} directly, at {}, and the hub relays their messages: {}",
                  shown(identity_of(rank_)), shown(identity_of(to)), peer.place.address, why);
}

Identity GrpcEnd::identity_of(int rank) const {
  if (names_.empty()) return {.job = job_, .rank = static_cast<std::uint32_t>(rank)};
  return {.job = job_, .rank = std::nullopt, .name = names_[static_cast<std::size_t>(rank)]};
}

}  // namespace tersewire
