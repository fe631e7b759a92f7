// The hub's ranks: who may sit where, what they say, and what one tells another.
#include <algorithm>

#include "ends.h"
#include "errors.h"
#include "grpc_credentials.h"
#include "grpc_hub.h"
#include "hub_stream.h"
#include "tersewire/counted.h"

namespace tersewire {

void GrpcHubServer::take(HubStream& stream, const Record& record, const grpc::Slice& bytes,
                         std::size_t came) {
  if (!stream.rank) return seat(stream, record);
  if (record.head.generation != stream.generation) {
    fail(ErrorCode::kDataLoss,
         "a record of generation {} in a stream of {}; run one version "
         "everywhere",
         record.head.generation, stream.generation);
  }
  if (stream.over) {
    if (record.head.kind == RecordKind::kGoodbye) finish(stream, grpc::Status::OK);
    return;
  }
  if (record.head.from != *stream.rank) {
    fail(ErrorCode::kDataLoss, "rank {} speaks for rank {}; run one version everywhere",
         *stream.rank, record.head.from);
  }
  Seat& seat = seats_[*stream.rank];
  seat.heard = Clock::now();
  switch (record.head.kind) {
    case RecordKind::kData:
    case RecordKind::kState:
    case RecordKind::kResume:
      return relay(stream, record, bytes, came);
    case RecordKind::kAlive:
      return;
    case RecordKind::kDirect:
      return take_report(seat, parse_direct(record.data));
    case RecordKind::kAbort: {
      const std::string reason(reinterpret_cast<const char*>(record.data.data()),
                               std::min(record.data.size(), kMostReasonBytes));
      if (!membership_) return end_with(reason, &stream);
      membership_->end_generation(reason);
      return follow_members();
    }
    case RecordKind::kGoodbye:
      seat.left = true;
      keep_ranks();
      log_.add(fmt::format("rank {} has left", *stream.rank));
      finish(stream, grpc::Status::OK);
      return announce();
    case RecordKind::kHello:
    case RecordKind::kRoster:
    case RecordKind::kMember:
    case RecordKind::kList:
    case RecordKind::kTraffic:
    case RecordKind::kCopy:
    case RecordKind::kAddresses:
      fail(ErrorCode::kDataLoss,
           "rank {} sent a record that no node sends here; run one version everywhere",
           *stream.rank);
  }
}

void GrpcHubServer::seat(HubStream& stream, const Record& record) {
  const std::uint32_t rank = record.head.from;
  if (record.head.kind != RecordKind::kHello) {
    fail(ErrorCode::kDataLoss, "a stream begins without a hello; run one version everywhere");
  }
  const Hello hello = parse_hello(record.data);
  const grpc::Status status = check_hello(stream, record.head, hello);
  if (!status.ok()) return finish(stream, status);
  Seat& seat = seats_[rank];
  if (seat.stream != nullptr) {
    finish(*seat.stream, {grpc::StatusCode::CANCELLED, "the node has reconnected"});
  }
  // What it sent before comes again.
  for (const Seat& other : seats_) {
    if (other.stream == nullptr) continue;
    other.stream->drop(rank);
  }
  log_.add(fmt::format("rank {} is here{}, from {}", rank, seat.incarnation ? " again" : "",
                       stream.address()));
  stream.rank = rank;
  stream.generation = generation_;
  stream.owes_abort = aborted_.has_value();
  if (!std::exchange(seat.incarnation, hello.incarnation)) keep_ranks();
  seat.heard = Clock::now();
  seat.stream = &stream;
  seat.address = hello.address;
  seat.certificate = certificate_of(*stream.peer());
  seat.is_known = true;
  places_changed_ = true;
  std::shared_ptr<TrafficMeter>& meter = meters_[name_of(rank)];
  if (!meter) meter = std::make_shared<TrafficMeter>();
  seat.meter = meter;
  if (!all_came_ && !membership_ &&
      std::ranges::all_of(seats_, [](const Seat& one) { return one.incarnation.has_value(); })) {
    all_came_ = true;
    log_.add(fmt::format("all {} nodes are here", seats_.size()));
  }
  announce();
}

grpc::Status GrpcHubServer::check_hello(HubStream& stream, const RecordHead& head,
                                        const Hello& hello) const {
  if (membership_ && head.generation > generation_) {
    return {grpc::StatusCode::FAILED_PRECONDITION,
            fmt::format("the members of this hub's job come and go, and generation {} has not "
                        "begun; give nodes names in place of ranks, or a hub that is started "
                        "again its journal",
                        head.generation)};
  }
  if (head.generation != generation_ || !open_) {
    return {grpc::StatusCode::FAILED_PRECONDITION,
            membership_ ? fmt::format("generation {} is over", head.generation)
                        : std::string("this hub's job has fixed ranks; start the hub with "
                                      "--min-workers, or give nodes ranks")};
  }
  if (const auto why = objection_to(stream, head.from, hello)) {
    return {grpc::StatusCode::PERMISSION_DENIED, *why};
  }
  if (hello.ranks != seats_.size() || head.from >= seats_.size()) {
    return {grpc::StatusCode::FAILED_PRECONDITION,
            fmt::format("rank {} of {} asks for a place, and the job has ranks 0 to {}; start "
                        "hub (--workers and --servers) and nodes for the same number of nodes",
                        head.from, hello.ranks, seats_.size() - 1)};
  }
  const Seat& seat = seats_[head.from];
  if (seat.left || (seat.incarnation && *seat.incarnation != hello.incarnation)) {
    return {grpc::StatusCode::ALREADY_EXISTS,
            fmt::format("another process is rank {} of this job; give each node a rank of its "
                        "own, and restart hub and nodes after one has died",
                        head.from)};
  }
  return grpc::Status::OK;
}

std::optional<std::string> GrpcHubServer::objection_to(HubStream& stream,
                                                       const Identity& claimed) const {
  const auto peer = stream.peer();
  if (auto why = objection(*peer, claimed)) return why;
  return secure_ ? revoked_.objection(certificate_of(*peer)) : std::nullopt;
}

void GrpcHubServer::put_out_revoked() {
  log_.add(revoked_.trouble().empty() ? "the list of revoked certificates has changed"
                                      : revoked_.trouble());
  // Nor may one speak directly to others, whether it is connected here or not.
  for (Seat& seat : seats_) {
    if (!seat.is_known || !revoked_.objection(seat.certificate)) continue;
    seat.is_known = false;
    places_changed_ = true;
  }
  for (HubStream* const stream : streams_) {
    if (stream->last || !stream->rank) continue;
    const auto why = revoked_.objection(certificate_of(*stream->peer()));
    if (!why) continue;
    const std::uint32_t rank = *stream->rank;
    const bool was_seated = is_seated(*stream);
    finish(*stream, {grpc::StatusCode::PERMISSION_DENIED, *why});
    if (!membership_ || !was_seated) continue;
    membership_->put_out(membership_->journal().rolls.at(generation_).places[rank], *why,
                         Clock::now());
  }
}

// Whether who says hello may have the rank: it is its certificate's, or its name's.
std::optional<std::string> GrpcHubServer::objection_to(HubStream& stream, std::uint32_t rank,
                                                       const Hello& hello) const {
  if (!membership_) return objection_to(stream, {.job = job_, .rank = rank});
  const auto& places = membership_->journal().rolls.at(generation_).places;
  if (rank >= places.size()) return fmt::format("generation {} has no rank {}", generation_, rank);
  if (hello.incarnation != places[rank].incarnation) {
    return fmt::format("rank {} of generation {} is another process", rank, generation_);
  }
  return objection_to(stream, {.job = job_, .rank = std::nullopt, .name = places[rank].name});
}

void GrpcHubServer::keep_ranks() {
  if (membership_ || !kept_.keep) return;
  std::vector<RankRecord> ranks;
  for (const Seat& seat : seats_) {
    // After an abort nobody comes back.
    ranks.push_back({.incarnation = seat.incarnation, .left = seat.left || aborted_});
  }
  keep(journal_bytes(ranks));
}

void GrpcHubServer::recall_ranks() {
  const std::vector<RankRecord> ranks = parse_rank_journal(kept_.kept);
  if (ranks.size() != seats_.size()) {
    fail(ErrorCode::kInvalidArgument,
         "the journal is of a job of {}, and this hub is for {}; start it for as many, or remove "
         "the journal",
         counted(ranks.size(), "node"), seats_.size());
  }
  if (std::ranges::all_of(ranks, &RankRecord::left)) {
    fail(ErrorCode::kFailedPrecondition,
         "the journal is of a job that is over; remove it, or name another");
  }
  all_came_ = std::ranges::all_of(
      ranks, [](const RankRecord& rank) { return rank.incarnation.has_value(); });
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    seats_[rank].incarnation = ranks[rank].incarnation;
    seats_[rank].left = ranks[rank].left;
    seats_[rank].heard = Clock::now();
    if (ranks[rank].left) log_.add(fmt::format("the journal knows that rank {} has left", rank));
  }
}

void GrpcHubServer::relay(HubStream& stream, const Record& record, const grpc::Slice& bytes,
                          std::size_t came) {
  const std::uint32_t to = record.head.to;
  if (to >= seats_.size() || to == *stream.rank) {
    fail(ErrorCode::kDataLoss,
         "rank {} sends to rank {}, which does not exist; run one version everywhere", *stream.rank,
         to);
  }
  if (record.head.kind == RecordKind::kData) {
    seats_[*stream.rank].meter->add_sent(came, Clock::now());
  }
  HubStream* const receiver = seats_[to].stream;
  if (receiver == nullptr) return;
  // What the two have sent each other before comes again, however often they change their way.
  if (record.head.kind == RecordKind::kResume) {
    receiver->drop(*stream.rank);
    stream.drop(to);
  }
  if (!receiver->put(*stream.rank, bytes)) {
    fail(ErrorCode::kResourceExhausted,
         "rank {} sends rank {} more than there is room for; run one version everywhere",
         *stream.rank, to);
  }
  if (record.head.kind == RecordKind::kData) seats_[to].meter->add_received(bytes.size());
  pump(*receiver);
}

void GrpcHubServer::announce() {
  for (const Seat& seat : seats_) {
    if (seat.stream == nullptr) continue;
    seat.stream->owes_roster = true;
    pump(*seat.stream);
  }
  changed_.notify_all();
}

void GrpcHubServer::take_report(Seat& seat, const DirectReport& report) {
  if (report.sent_bytes < seat.direct.sent_bytes ||
      report.received_bytes < seat.direct.received_bytes) {
    fail(ErrorCode::kDataLoss,
         "a node reports fewer direct bytes than before; run one version everywhere");
  }
  const std::uint64_t sent = report.sent_bytes - seat.direct.sent_bytes;
  if (sent > 0) seat.meter->add_sent(sent, Clock::now());
  seat.meter->add_received(report.received_bytes - seat.direct.received_bytes);
  if (!report.trouble.empty()) log_.add(report.trouble);
  seat.direct = report;
}

Bytes GrpcHubServer::addresses() const {
  std::vector<PeerAddress> places;
  for (const Seat& seat : seats_) {
    const bool speaks = seat.is_known && !seat.left;
    places.push_back(speaks ? PeerAddress{.incarnation = *seat.incarnation, .address = seat.address}
                            : PeerAddress{});
  }
  return addresses_data(places);
}

std::vector<std::uint32_t> GrpcHubServer::ages() const {
  std::vector<std::uint32_t> ages;
  const Clock::time_point now = Clock::now();
  for (const Seat& seat : seats_) {
    const auto age =
        std::chrono::duration_cast<std::chrono::milliseconds>(now - seat.heard).count();
    ages.push_back(seat.left ? kHasLeft
                   : !seat.incarnation
                       ? kNotHere
                       : static_cast<std::uint32_t>(std::min<std::int64_t>(age, kLongestAge)));
  }
  return ages;
}

}  // namespace tersewire
