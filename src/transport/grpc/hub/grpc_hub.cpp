#include "grpc_hub.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <filesystem>
#include <system_error>
#include <utility>

#include "ends.h"
#include "errors.h"
#include "grpc_credentials.h"
#include "hub_stream.h"

namespace tersewire {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kRosterEvery(250);
// For a hello, and for what is still being written to one who is to go.
constexpr milliseconds kStrangersPatience(10000);
constexpr std::chrono::minutes kExpiryEvery(10);

// In bytes of its own.
grpc::Slice slice_of(const Record& record) {
  grpc::Slice slice(kRecordHeadBytes + record.data.size());
  auto* const bytes = const_cast<std::uint8_t*>(slice.begin());
  std::memcpy(bytes, &record.head, kRecordHeadBytes);
  std::memcpy(bytes + kRecordHeadBytes, record.data.data(), record.data.size());
  return slice;
}

}  // namespace

GrpcHubServer::GrpcHubServer(const std::string& address, int nodes, const GrpcSecurity& security,
                             std::unique_ptr<Membership> membership, HubJournal journal)
    : secure_(!security.certificates.empty()),
      security_(security),
      job_(job_of(security)),
      revoked_(security.certificates),
      membership_(std::move(membership)),
      kept_(std::move(journal)),
      handshakes_failed_(failed_handshakes()) {
  if (nodes < 1 && !membership_) {
    fail(ErrorCode::kInvalidArgument, "a hub for {} nodes has nothing to do; use at least 1",
         nodes);
  }
  check_protected(address, security);
  check_is_hub(security);
  check_valid_now(security);
  keep_grpc_quiet();
  seats_.resize(static_cast<std::size_t>(nodes));
  if (!membership_ && !kept_.kept.empty()) recall_ranks();
  if (membership_) {
    open_ = false;
    generation_ = 0;
    follow_members();
  }
  listener_ = std::make_unique<GrpcListener>(address, security, *this);
  listener_->open();
  ticker_ = std::thread([this] { tick(); });
}

GrpcHubServer::~GrpcHubServer() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  ticker_.join();
  listener_->close();
}

bool GrpcHubServer::is_over() const {
  const auto tells_end = [](const HubStream* stream) { return !stream->tells_end_to.empty(); };
  if (std::ranges::any_of(streams_, tells_end)) return false;
  if (membership_) return membership_->is_over(Clock::now());
  const bool all_left = std::ranges::all_of(seats_, &Seat::left);
  const bool nobody = std::ranges::none_of(seats_, [](const Seat& seat) { return seat.stream; });
  return all_left || (aborted_ && nobody);
}

bool GrpcHubServer::wait(milliseconds timeout) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, bounded(timeout), [&] { return is_over(); });
}

std::string GrpcHubServer::aborted() const {
  const std::lock_guard lock(mutex_);
  if (membership_ && membership_->journal().phase == JobPhase::kEnded) {
    return membership_->journal().reason;
  }
  return aborted_.value_or("");
}

void GrpcHubServer::abort(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!membership_) return end_with(reason, nullptr);
  membership_->end(reason);
  follow_members();
}

void GrpcHubServer::end_with(const std::string& reason, const HubStream* said_by) {
  if (aborted_) return;
  aborted_ = reason;
  keep_ranks();
  log_.add("the job is ended: " + reason);
  for (const Seat& seat : seats_) {
    if (seat.stream == nullptr || seat.stream == said_by) continue;
    seat.stream->owes_abort = true;
    pump(*seat.stream);
  }
  changed_.notify_all();
}

std::vector<std::string> GrpcHubServer::take_events() {
  const std::lock_guard lock(mutex_);
  return log_.take();
}

MemberList GrpcHubServer::status() const {
  const std::lock_guard lock(mutex_);
  return status_at(Clock::now());
}

grpc::ServerGenericBidiReactor* GrpcHubServer::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  listener_->let_in(context->peer());
  auto* const stream = new HubStream(*this, *context);
  const std::lock_guard lock(mutex_);
  streams_.insert(stream);
  if (context->method() != kExchangeMethod && !stream->is_of_member()) {
    finish(*stream, {grpc::StatusCode::UNIMPLEMENTED, "there is no such method"});
  } else if (stop_) {
    finish(*stream, {grpc::StatusCode::UNAVAILABLE, "the hub ends"});
  } else {
    stream->read();
  }
  return stream;
}

void GrpcHubServer::on_read(HubStream& stream, const grpc::ByteBuffer& batch, bool ok) {
  const std::lock_guard lock(mutex_);
  if (!ok) return finish(stream, grpc::Status::OK);
  if (stream.last) return;
  try {
    take_batch(stream, batch);
  } catch (const std::exception& error) {
    finish(stream, {grpc::StatusCode::INVALID_ARGUMENT, error.what()});
  }
  if (!stream.last) stream.read();
}

void GrpcHubServer::take_batch(HubStream& stream, const grpc::ByteBuffer& batch) {
  const grpc::Slice bytes = in_one_piece(batch);
  ByteView rest = view_of(bytes);
  ByteView data;  // of the last data record
  while (!rest.empty() && !stream.last) {
    const std::size_t begin = bytes.size() - rest.size();
    const Record record = take_record(rest, secure_);
    const std::size_t end = bytes.size() - rest.size();
    if (stream.is_of_member()) return answer_member(stream, record);
    if (record.head.kind == RecordKind::kCopy) {
      const Record whole = copied(record, data, secure_);
      take(stream, whole, slice_of(whole), end - begin);
      continue;
    }
    if (record.head.kind == RecordKind::kData) data = record.data;
    // A small record must not keep a large batch in memory.
    const bool most = end - begin > bytes.size() / 2;
    take(stream, record,
         most ? bytes.sub(begin, end) : grpc::Slice(bytes.begin() + begin, end - begin),
         end - begin);
  }
}

void GrpcHubServer::pump(HubStream& stream) {
  if (stream.writing || stream.last) return;
  BatchWriter batch(secure_, stream.limit.bytes());
  const auto head = [&](RecordKind kind) {
    return RecordHead{
        .kind = kind, .generation = stream.generation, .from = kHubRank, .to = *stream.rank};
  };
  if (std::exchange(stream.owes_roster, false)) {
    batch.add(head(RecordKind::kRoster), roster_data(ages()));
  }
  if (std::exchange(stream.owes_addresses, false)) {
    batch.add(head(RecordKind::kAddresses), addresses());
  }
  if (std::exchange(stream.owes_abort, false)) {
    const std::string& why = stream.over ? *stream.over : *aborted_;
    batch.add(head(RecordKind::kAbort), std::as_bytes(std::span(why)));
  }
  stream.move_into(batch);
  if (!batch.empty()) stream.write(batch.finish());
}

void GrpcHubServer::on_written(HubStream& stream, bool ok) {
  const std::lock_guard lock(mutex_);
  stream.writing = false;
  stream.limit.ends();
  if (!ok && !stream.last) stream.last = grpc::Status::OK;
  if (stream.last) return finish(stream, *stream.last);
  pump(stream);
}

// gRPC wants no write to be on its way.
void GrpcHubServer::finish(HubStream& stream, const grpc::Status& status) {
  if (!stream.last) {
    stream.last = status;
    stream.since = Clock::now();
    if (!status.ok() && !stream.rank) {
      log_.add_stranger(
          fmt::format("{} was turned away: {}", stream.address(), status.error_message()));
    } else if (!status.ok()) {
      log_.add(
          fmt::format("the stream of rank {} was ended: {}", *stream.rank, status.error_message()));
    }
  }
  unseat(stream);
  if (stream.writing || std::exchange(stream.finished, true)) return;
  stream.Finish(*stream.last);
}

bool GrpcHubServer::is_seated(const HubStream& stream) const {
  return stream.rank && stream.generation == generation_ && seats_[*stream.rank].stream == &stream;
}

void GrpcHubServer::unseat(HubStream& stream) {
  stream.drop_all();
  if (is_seated(stream)) {
    seats_[*stream.rank].stream = nullptr;
    if (!seats_[*stream.rank].left) {
      log_.add(fmt::format("the connection of rank {} is lost", *stream.rank));
    }
    changed_.notify_all();
  }
}

void GrpcHubServer::on_done(HubStream& stream) {
  const std::lock_guard lock(mutex_);
  unseat(stream);
  streams_.erase(&stream);
  // Not before it has gone out: the hub ends when all have been told.
  if (membership_ && !stream.tells_end_to.empty()) membership_->told(stream.tells_end_to);
  changed_.notify_all();
}

void GrpcHubServer::warn_of_expiry() {
  try {
    if (const auto warning = expiry_warning(security_)) log_.add(*warning);
  } catch (const Error& error) {  // of a certificate that is just being renewed, or is gone
    log_.add(error.what());
  }
}

// Renewed ones do not arrive then: after a directory was moved, or what was mounted there is gone.
void GrpcHubServer::look_for_certificates() {
  if (!secure_) return;
  const std::string file = security_.certificates + "/certificate.pem";
  std::error_code error;
  const bool vanished = !std::filesystem::exists(file, error);
  if (vanished == std::exchange(vanished_, vanished)) return;
  log_.add(vanished
               ? fmt::format("'{}' has vanished; the hub continues with what it has read, until "
                             "that expires: put it back",
                             file)
               : fmt::format("'{}' is there again", file));
}

void GrpcHubServer::tick() {
  for (std::unique_lock lock(mutex_); !stop_;) {
    changed_.wait_for(lock, kRosterEvery, [&] { return stop_; });
    const Clock::time_point now = Clock::now();
    log_strangers(now);
    look_for_certificates();
    if (revoked_.look()) put_out_revoked();
    if (now >= next_expiry_look_) {
      next_expiry_look_ = now + kExpiryEvery;
      warn_of_expiry();
    }
    if (membership_) {
      membership_->tick(now);
      follow_members();
    }
    for (const auto& [name, meter] : meters_) meter->tick(now);
    cancel_silent(now);
    tell_rosters();
  }
}

void GrpcHubServer::log_strangers(Clock::time_point now) {
  const std::uint64_t failed = failed_handshakes();
  if (std::exchange(handshakes_failed_, failed) < failed) {
    log_.add_stranger("a connection was turned away in its TLS handshake", now);
  }
  const std::uint64_t put_out = listener_->put_out();
  if (const std::uint64_t more = put_out - std::exchange(put_out_, put_out)) {
    const std::string which =
        more == 1 ? std::string("1 connection that had not said who it is was")
                  : fmt::format("{} connections that had not said who they are were", more);
    log_.add_stranger(
        fmt::format("{} closed, as the hub keeps at most {} of them", which, kMostStrangers), now);
  }
}

void GrpcHubServer::cancel_silent(Clock::time_point now) {
  for (HubStream* const stream : streams_) {
    const bool is_at_work = !stream->last && !stream->over;
    if ((stream->rank && is_at_work) || now - stream->since <= kStrangersPatience) continue;
    if (is_at_work) log_.add_stranger(stream->address() + " says nothing", now);
    stream->cancel();
  }
}

void GrpcHubServer::tell_rosters() {
  // Together, however many have come.
  const bool tells_places =
      std::exchange(places_changed_, false) && seats_.size() <= kMostPlaces &&
      std::ranges::any_of(seats_, [](const Seat& seat) { return !seat.address.empty(); });
  for (const Seat& seat : seats_) {
    if (seat.stream == nullptr) continue;
    seat.stream->owes_roster = true;
    seat.stream->owes_addresses = seat.stream->owes_addresses || tells_places;
    pump(*seat.stream);
  }
}

GrpcHub::GrpcHub(const std::string& address, int nodes, const GrpcSecurity& security)
    : server_(std::make_unique<GrpcHubServer>(address, nodes, security)) {}
GrpcHub::GrpcHub(const std::string& address, int nodes, HubJournal journal,
                 const GrpcSecurity& security)
    : server_(
          std::make_unique<GrpcHubServer>(address, nodes, security, nullptr, std::move(journal))) {}
GrpcHub::GrpcHub(const std::string& address, const MembershipLimits& limits, HubJournal journal,
                 const GrpcSecurity& security) {
  auto membership =
      std::make_unique<Membership>(limits, journal.kept, std::chrono::steady_clock::now());
  server_ = std::make_unique<GrpcHubServer>(address, 0, security, std::move(membership),
                                            std::move(journal));
}
GrpcHub::~GrpcHub() = default;
std::string GrpcHub::address() const { return server_->address(); }
bool GrpcHub::wait(milliseconds timeout) const { return server_->wait(timeout); }
std::string GrpcHub::aborted() const { return server_->aborted(); }
void GrpcHub::abort(const std::string& reason) { server_->abort(reason); }
std::vector<std::string> GrpcHub::take_events() { return server_->take_events(); }
MemberList GrpcHub::status() const { return server_->status(); }

}  // namespace tersewire
