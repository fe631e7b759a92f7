#include "grpc_hub.h"

#include <grpcpp/server_builder.h>

#include <algorithm>

#include "errors.h"
#include "grpc_credentials.h"
#include "grpc_pair.h"

namespace tersewire {
namespace {

using std::chrono::milliseconds;

constexpr const char* kMethod = "/tersewire.Hub/Exchange";
constexpr const char* kMemberMethod = "/tersewire.Hub/Member";
constexpr milliseconds kRosterEvery(250);
// For a hello, and for what is still being written to one who is to go.
constexpr milliseconds kPatience(10000);
constexpr milliseconds kHandshake(10000);
// A window on its way, one that is sent again, and room for what is said beside them.
constexpr std::size_t kMostQueuedBytes = 3 * kWindowBytes;

}  // namespace

// One node's stream, from its connection to its end. Everything under the hub's mutex but what gRPC
// calls. It deletes itself when gRPC is done with it.
class HubStream final : public grpc::ServerGenericBidiReactor {
 public:
  HubStream(GrpcHubServer& hub, grpc::GenericCallbackServerContext& context)
      : hub_(hub), context_(context) {}

  void OnReadDone(bool ok) override { hub_.on_read(*this, incoming, ok); }
  void OnWriteDone(bool ok) override { hub_.on_written(*this, ok); }
  void OnDone() override {
    hub_.on_done(*this);
    delete this;
  }

  void read() { StartRead(&incoming); }
  void write(grpc::ByteBuffer batch) {
    outgoing = std::move(batch);
    writing = true;
    StartWrite(&outgoing);
  }
  void cancel() { context_.TryCancel(); }
  [[nodiscard]] bool is_of_member() const { return context_.method() == kMemberMethod; }
  [[nodiscard]] std::shared_ptr<const grpc::AuthContext> peer() const {
    return context_.auth_context();
  }
  // As ipv4:192.0.2.1:40000.
  [[nodiscard]] std::string address() const { return context_.peer(); }

  grpc::ByteBuffer incoming;
  grpc::ByteBuffer outgoing;
  std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
  std::optional<std::uint32_t> rank;                        // once it has said hello
  std::uint32_t generation = 0;                             // in this one
  std::optional<std::string> over;                          // why that is over
  std::string tells_end_to;                                 // the member whose call it is
  std::deque<std::pair<std::uint32_t, grpc::Slice>> queue;  // records by their sender
  std::map<std::uint32_t, std::size_t> queued_bytes;
  bool writing = false;
  bool owes_roster = false;
  bool owes_abort = false;
  std::optional<grpc::Status> last;  // it is to end with this
  bool finished = false;

 private:
  GrpcHubServer& hub_;
  grpc::GenericCallbackServerContext& context_;
};

GrpcHubServer::GrpcHubServer(const std::string& address, int nodes, const GrpcSecurity& security,
                             std::unique_ptr<Membership> membership, HubJournal journal)
    : secure_(!security.certificates.empty()),
      job_(job_of(security)),
      membership_(std::move(membership)),
      kept_(std::move(journal)),
      handshakes_failed_(failed_handshakes()) {
  if (nodes < 1 && !membership_) {
    fail(ErrorCode::kInvalidArgument, "a hub for {} nodes has nothing to do; use at least 1",
         nodes);
  }
  check_protected(address, security);
  keep_grpc_quiet();
  seats_.resize(static_cast<std::size_t>(nodes));
  if (membership_) {
    open_ = false;
    generation_ = 0;
    follow_members();
  }
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(address, server_credentials(security), &port);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             static_cast<int>(kHandshake.count()));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 4);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kLookaheadBytes);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
  builder.SetMaxReceiveMessageSize(kMostBatchBytes);
  builder.RegisterCallbackGenericService(this);
  server_ = builder.BuildAndStart();
  if (!server_ || port == 0) {
    fail(ErrorCode::kUnavailable,
         "a hub cannot listen at '{}'; look whether another one does, or name another HOST:PORT",
         address);
  }
  address_ = address.substr(0, address.rfind(':') + 1) + std::to_string(port);
  ticker_ = std::thread([this] { tick(); });
}

GrpcHubServer::~GrpcHubServer() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  ticker_.join();
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

bool GrpcHubServer::is_over() const {
  if (membership_) return membership_->is_over(Clock::now());
  const bool all_left = std::ranges::all_of(seats_, &Seat::left);
  const bool nobody = std::ranges::none_of(seats_, [](const Seat& seat) { return seat.stream; });
  return all_left || (aborted_ && nobody);
}

bool GrpcHubServer::wait(milliseconds timeout) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [&] { return is_over(); });
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

grpc::ServerGenericBidiReactor* GrpcHubServer::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  auto* const stream = new HubStream(*this, *context);
  const std::lock_guard lock(mutex_);
  streams_.insert(stream);
  if (context->method() != kMethod && !stream->is_of_member()) {
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
  while (!rest.empty() && !stream.last) {
    const std::size_t begin = bytes.size() - rest.size();
    const Record record = take_record(rest, secure_);
    const std::size_t end = bytes.size() - rest.size();
    if (stream.is_of_member()) return answer_member(stream, record);
    // A small record must not keep a large batch in memory.
    const bool most = end - begin > bytes.size() / 2;
    take(stream, record,
         most ? bytes.sub(begin, end) : grpc::Slice(bytes.begin() + begin, end - begin));
  }
}

// One record, one answer, and the call is over.
void GrpcHubServer::answer_member(HubStream& stream, const Record& record) {
  if (record.head.kind != RecordKind::kMember) {
    fail(ErrorCode::kDataLoss, "a member says what is for nodes; run one version everywhere");
  }
  const MemberSays says = parse_member(record.data);
  const auto refuse = [&](grpc::StatusCode code, const std::string& sentence) {
    finish(stream, {code, sentence});
  };
  const Identity claimed{.job = job_, .rank = std::nullopt, .name = says.name};
  if (const auto why = objection(*stream.peer(), claimed)) {
    return refuse(grpc::StatusCode::PERMISSION_DENIED, *why);
  }
  const Clock::time_point now = Clock::now();
  const bool watches = says.phase == MemberPhase::kWatches;
  if (!watches && !membership_) {
    return refuse(grpc::StatusCode::FAILED_PRECONDITION,
                  "this hub's job has fixed ranks; start the hub with --min-workers");
  }
  if (!watches) {
    try {
      membership_->hear(says, now);
    } catch (const Error& error) {
      return refuse(error.code() == ErrorCode::kUnavailable ? grpc::StatusCode::ALREADY_EXISTS
                                                            : grpc::StatusCode::FAILED_PRECONDITION,
                    error.what());
    }
    follow_members();
  }
  const MemberList list = membership_ ? membership_->list(now) : list_of_ranks();
  if (membership_ && !watches && list.phase >= JobPhase::kDone) stream.tells_end_to = says.name;
  BatchWriter answer(secure_);
  answer.add({.kind = RecordKind::kList, .generation = list.generation}, list_data(list));
  stream.last = grpc::Status::OK;
  stream.since = now;
  stream.write(answer.finish());
}

MemberList GrpcHubServer::list_of_ranks() const {
  MemberList list{.generation = generation_,
                  .phase = aborted_    ? JobPhase::kEnded
                           : all_came_ ? JobPhase::kRuns
                                       : JobPhase::kGathers,
                  .base = {},
                  .reason = aborted_.value_or("")};
  list.workers = static_cast<std::uint32_t>(seats_.size());
  const std::vector<std::uint32_t> ages = this->ages();
  for (std::size_t rank = 0; rank < seats_.size(); ++rank) {
    const Seat& seat = seats_[rank];
    list.members.push_back({.name = std::to_string(rank),
                            .incarnation = seat.incarnation.value_or(0),
                            .age_ms = ages[rank],
                            .phase = seat.left          ? MemberPhase::kFinished
                                     : seat.incarnation ? MemberPhase::kWorks
                                                        : MemberPhase::kWaits,
                            .newest = {},
                            .base_rank = {}});
  }
  return list;
}

void GrpcHubServer::follow_members() {
  const Journal& journal = membership_->journal();
  const bool runs = journal.phase == JobPhase::kRuns;
  std::vector<std::string> events = membership_->take_events();
  const bool ended = journal.phase != phase_;
  const bool begun = journal.generation != generation_;
  if ((ended || begun) && kept_.keep) {
    try {
      kept_.keep(journal_bytes(journal));
    } catch (const std::exception& error) {
      events.push_back(fmt::format(
          "the journal is not kept, and a hub that is killed cannot go on: {}", error.what()));
    }
  }
  phase_ = journal.phase;
  for (std::string& event : events) log_.add(std::move(event));
  if (open_ && (!runs || begun)) {
    close_generation(journal.phase == JobPhase::kDone ? "the job is done" : journal.reason);
  }
  if (runs && !open_) open_generation();
}

void GrpcHubServer::open_generation() {
  open_ = true;
  generation_ = membership_->journal().generation;
  seats_.clear();
  seats_.resize(membership_->journal().rolls.at(generation_).places.size());
}

// Their nodes are told why, and go by themselves.
void GrpcHubServer::close_generation(const std::string& reason) {
  open_ = false;
  for (Seat& seat : seats_) {
    if (seat.stream == nullptr) continue;
    HubStream& stream = *std::exchange(seat.stream, nullptr);
    stream.over = reason;
    stream.since = Clock::now();
    stream.queue.clear();
    stream.queued_bytes.clear();
    stream.owes_abort = true;
    pump(stream);
  }
}

void GrpcHubServer::take(HubStream& stream, const Record& record, const grpc::Slice& bytes) {
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
      return relay(stream, record, bytes);
    case RecordKind::kAlive:
      return;
    case RecordKind::kAbort: {
      const std::string reason(reinterpret_cast<const char*>(record.data.data()),
                               std::min(record.data.size(), kMostReasonBytes));
      if (!membership_) return end_with(reason, &stream);
      membership_->end_generation(reason);
      return follow_members();
    }
    case RecordKind::kGoodbye:
      seat.left = true;
      log_.add(fmt::format("rank {} has left", *stream.rank));
      finish(stream, grpc::Status::OK);
      return announce();
    case RecordKind::kHello:
    case RecordKind::kRoster:
    case RecordKind::kMember:
    case RecordKind::kList:
      fail(ErrorCode::kDataLoss, "rank {} says what no node says here; run one version everywhere",
           *stream.rank);
  }
}

void GrpcHubServer::seat(HubStream& stream, const Record& record) {
  const std::uint32_t rank = record.head.from;
  if (record.head.kind != RecordKind::kHello) {
    fail(ErrorCode::kDataLoss, "a stream begins without a hello; run one version everywhere");
  }
  const Hello hello = parse_hello(record.data);
  const auto refuse = [&](grpc::StatusCode code, const std::string& sentence) {
    finish(stream, {code, sentence});
  };
  if (record.head.generation != generation_ || !open_) {
    return refuse(grpc::StatusCode::FAILED_PRECONDITION,
                  membership_ ? fmt::format("generation {} is over", record.head.generation)
                              : std::string("this hub's job has fixed ranks; start the hub with "
                                            "--min-workers, or give nodes ranks"));
  }
  if (const auto why = objection_to(stream, rank, hello)) {
    return refuse(grpc::StatusCode::PERMISSION_DENIED, *why);
  }
  if (hello.ranks != seats_.size() || rank >= seats_.size()) {
    return refuse(
        grpc::StatusCode::FAILED_PRECONDITION,
        fmt::format("rank {} of {} asks for a place, and the job has ranks 0 to {}; start "
                    "hub and nodes for the same number of nodes",
                    rank, hello.ranks, seats_.size() - 1));
  }
  Seat& seat = seats_[rank];
  if (seat.left || (seat.incarnation && *seat.incarnation != hello.incarnation)) {
    return refuse(
        grpc::StatusCode::ALREADY_EXISTS,
        fmt::format("another process is rank {} of this job; give each node a rank of its "
                    "own, and start hub and nodes anew after one has died",
                    rank));
  }
  if (seat.stream != nullptr) {
    finish(*seat.stream, {grpc::StatusCode::CANCELLED, "the node has connected anew"});
  }
  // What it sent before comes again.
  for (const Seat& other : seats_) {
    if (other.stream == nullptr) continue;
    std::erase_if(other.stream->queue, [&](const auto& queued) { return queued.first == rank; });
    other.stream->queued_bytes.erase(rank);
  }
  log_.add(fmt::format("rank {} is here{}, from {}", rank, seat.incarnation ? " again" : "",
                       stream.address()));
  stream.rank = rank;
  stream.generation = generation_;
  stream.owes_abort = aborted_.has_value();
  seat.incarnation = hello.incarnation;
  seat.heard = Clock::now();
  seat.stream = &stream;
  if (!all_came_ && !membership_ &&
      std::ranges::all_of(seats_, [](const Seat& one) { return one.incarnation.has_value(); })) {
    all_came_ = true;
    log_.add(fmt::format("all {} nodes are here", seats_.size()));
  }
  announce();
}

void GrpcHubServer::relay(HubStream& stream, const Record& record, const grpc::Slice& bytes) {
  const std::uint32_t to = record.head.to;
  if (to >= seats_.size() || to == *stream.rank) {
    fail(ErrorCode::kDataLoss,
         "rank {} sends to rank {}, which is none; run one version everywhere", *stream.rank, to);
  }
  HubStream* const receiver = seats_[to].stream;
  if (receiver == nullptr) return;
  std::size_t& queued = receiver->queued_bytes[*stream.rank];
  if (queued + bytes.size() > kMostQueuedBytes) {
    fail(ErrorCode::kResourceExhausted,
         "rank {} sends rank {} more than that has room for; run one version everywhere",
         *stream.rank, to);
  }
  queued += bytes.size();
  receiver->queue.emplace_back(*stream.rank, bytes);
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

// Whether who says hello may have the rank: it is its certificate's, or its name's.
std::optional<std::string> GrpcHubServer::objection_to(HubStream& stream, std::uint32_t rank,
                                                       const Hello& hello) const {
  if (!membership_) return objection(*stream.peer(), {.job = job_, .rank = rank});
  const auto& places = membership_->journal().rolls.at(generation_).places;
  if (rank >= places.size()) return fmt::format("generation {} has no rank {}", generation_, rank);
  if (hello.incarnation != places[rank].incarnation) {
    return fmt::format("rank {} of generation {} is another process", rank, generation_);
  }
  return objection(*stream.peer(), {.job = job_, .rank = std::nullopt, .name = places[rank].name});
}

std::vector<std::uint32_t> GrpcHubServer::ages() const {
  std::vector<std::uint32_t> ages;
  const Clock::time_point now = Clock::now();
  for (const Seat& seat : seats_) {
    const auto age = std::chrono::duration_cast<milliseconds>(now - seat.heard).count();
    ages.push_back(seat.left ? kHasLeft
                   : !seat.incarnation
                       ? kNotHere
                       : static_cast<std::uint32_t>(std::min<std::int64_t>(age, kLongestAge)));
  }
  return ages;
}

void GrpcHubServer::pump(HubStream& stream) {
  if (stream.writing || stream.last) return;
  BatchWriter batch(secure_);
  const auto head = [&](RecordKind kind) {
    return RecordHead{
        .kind = kind, .generation = stream.generation, .from = kHubRank, .to = *stream.rank};
  };
  if (std::exchange(stream.owes_roster, false)) {
    batch.add(head(RecordKind::kRoster), roster_data(ages()));
  }
  if (std::exchange(stream.owes_abort, false)) {
    const std::string& why = stream.over ? *stream.over : *aborted_;
    batch.add(head(RecordKind::kAbort), std::as_bytes(std::span(why)));
  }
  while (!stream.queue.empty() && batch.forward(stream.queue.front().second)) {
    stream.queued_bytes[stream.queue.front().first] -= stream.queue.front().second.size();
    stream.queue.pop_front();
  }
  if (!batch.empty()) stream.write(batch.finish());
}

void GrpcHubServer::on_written(HubStream& stream, bool ok) {
  const std::lock_guard lock(mutex_);
  stream.writing = false;
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
          fmt::format("the stream of rank {} is ended: {}", *stream.rank, status.error_message()));
    }
  }
  unseat(stream);
  if (stream.writing || std::exchange(stream.finished, true)) return;
  stream.Finish(*stream.last);
}

void GrpcHubServer::unseat(HubStream& stream) {
  stream.queue.clear();
  stream.queued_bytes.clear();
  if (stream.rank && !stream.over && seats_[*stream.rank].stream == &stream) {
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
  if (!stream.tells_end_to.empty()) membership_->told(stream.tells_end_to);
  changed_.notify_all();
}

void GrpcHubServer::tick() {
  for (std::unique_lock lock(mutex_); !stop_;) {
    changed_.wait_for(lock, kRosterEvery, [&] { return stop_; });
    const Clock::time_point now = Clock::now();
    const std::uint64_t failed = failed_handshakes();
    if (std::exchange(handshakes_failed_, failed) < failed) {
      log_.add_stranger("a connection was turned away in its TLS handshake", now);
    }
    if (membership_) {
      membership_->tick(now);
      follow_members();
    }
    for (HubStream* const stream : streams_) {
      // Who does not say who it is, or does not take its end.
      if ((stream->rank && !stream->last && !stream->over) || now - stream->since <= kPatience) {
        continue;
      }
      if (!stream->last && !stream->over)
        log_.add_stranger(stream->address() + " says nothing", now);
      stream->cancel();
    }
    for (const Seat& seat : seats_) {
      if (seat.stream == nullptr) continue;
      seat.stream->owes_roster = true;
      pump(*seat.stream);
    }
  }
}

GrpcHub::GrpcHub(const std::string& address, int nodes, const GrpcSecurity& security)
    : server_(std::make_unique<GrpcHubServer>(address, nodes, security)) {}
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

}  // namespace tersewire
