// The hub of a job whose members come and go: what it answers them, and the generations of which it
// carries one after another.
#include <algorithm>
#include <charconv>
#include <exception>
#include <system_error>

#include "errors.h"
#include "grpc_credentials.h"
#include "grpc_hub.h"
#include "hub_stream.h"

namespace tersewire {
namespace {

std::optional<std::uint32_t> rank_in(const std::string& text) {
  std::uint32_t rank = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, rank);
  return error == std::errc() && stop == end ? std::optional(rank) : std::nullopt;
}

}  // namespace

// One record, one answer, and the call is over.
void GrpcHubServer::answer_member(HubStream& stream, const Record& record) {
  if (record.head.kind != RecordKind::kMember) {
    fail(ErrorCode::kDataLoss,
         "a member sent a record that only nodes send; run one version everywhere");
  }
  const MemberSays says = parse_member(record.data);
  const Clock::time_point now = Clock::now();
  const bool watches = says.phase == MemberPhase::kWatches;
  grpc::Status status = check_member(stream, says, now);
  if (status.ok() && !watches) status = membership_ ? hear(says, now) : hear_found_done(says);
  if (!status.ok()) return finish(stream, status);
  const MemberList list = watches || !membership_ ? status_at(now) : membership_->list(now);
  if (!watches && (!membership_ || list.phase >= JobPhase::kDone)) stream.tells_end_to = says.name;
  BatchWriter answer(secure_);
  answer.add({.kind = RecordKind::kList, .generation = list.generation}, list_data(list));
  if (watches) answer.add({.kind = RecordKind::kTraffic}, traffic_data(list));
  stream.last = grpc::Status::OK;
  stream.since = now;
  stream.write(answer.finish());
}

grpc::Status GrpcHubServer::check_member(HubStream& stream, const MemberSays& says,
                                         Clock::time_point now) {
  Identity claimed{.job = job_, .rank = std::nullopt, .name = says.name};
  if (const auto rank = rank_that_found_done(says)) claimed = {.job = job_, .rank = rank};
  if (const auto why = objection(*stream.peer(), claimed)) {
    return {grpc::StatusCode::PERMISSION_DENIED, *why};
  }
  const auto why = objection_to(stream, claimed);
  if (!why) return grpc::Status::OK;
  if (membership_) {
    membership_->put_out({.name = says.name, .incarnation = says.incarnation}, *why, now);
    follow_members();
  }
  return {grpc::StatusCode::PERMISSION_DENIED, *why};
}

std::optional<std::uint32_t> GrpcHubServer::rank_that_found_done(const MemberSays& says) const {
  if (membership_ || says.phase != MemberPhase::kFoundDone) return std::nullopt;
  return rank_in(says.name);
}

grpc::Status GrpcHubServer::hear(const MemberSays& says, Clock::time_point now) {
  try {
    if (says.phase == MemberPhase::kFoundDone) {
      membership_->find_done(says.name, now);
    } else {
      membership_->hear(says, now);
    }
  } catch (const Error& error) {
    return {error.code() == ErrorCode::kUnavailable ? grpc::StatusCode::ALREADY_EXISTS
                                                    : grpc::StatusCode::FAILED_PRECONDITION,
            error.what()};
  }
  follow_members();
  return grpc::Status::OK;
}

grpc::Status GrpcHubServer::hear_found_done(const MemberSays& says) {
  if (says.phase != MemberPhase::kFoundDone) {
    return {grpc::StatusCode::FAILED_PRECONDITION,
            "this hub's job has fixed ranks; start the hub with --min-workers"};
  }
  const auto rank = rank_that_found_done(says);
  if (!rank || *rank >= seats_.size() || seats_[*rank].incarnation) {
    return {grpc::StatusCode::FAILED_PRECONDITION,
            fmt::format("the job has no rank {} that is still to come; start hub and nodes for the "
                        "same number of nodes",
                        says.name)};
  }
  if (!std::exchange(seats_[*rank].left, true)) {
    log_.add(fmt::format("rank {} finds that the job is done already", *rank));
    keep_ranks();
    announce();
  }
  return grpc::Status::OK;
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

MemberList GrpcHubServer::status_at(Clock::time_point now) const {
  MemberList list = membership_ ? membership_->list(now) : list_of_ranks();
  for (auto* const entries : {&list.members, &list.waiting}) {
    for (MemberEntry& entry : *entries) {
      const auto meter = meters_.find(entry.name);
      if (meter != meters_.end()) entry.traffic = meter->second->traffic(now);
    }
  }
  return list;
}

std::string GrpcHubServer::name_of(std::uint32_t rank) const {
  return membership_ ? membership_->journal().rolls.at(generation_).places[rank].name
                     : std::to_string(rank);
}

void GrpcHubServer::follow_members() {
  const Journal& journal = membership_->journal();
  const bool runs = journal.phase == JobPhase::kRuns;
  std::vector<std::string> events = membership_->take_events();
  const bool ended = journal.phase != phase_;
  const bool begun = journal.generation != generation_;
  if ((ended || begun) && kept_.keep) keep(journal_bytes(journal));
  phase_ = journal.phase;
  for (std::string& event : events) log_.add(std::move(event));
  if (open_ && (!runs || begun)) {
    close_generation(journal.phase == JobPhase::kDone ? "the job is done" : journal.reason);
  }
  if (runs && !open_) open_generation();
}

void GrpcHubServer::keep(const Bytes& journal) {
  try {
    kept_.keep(journal);
  } catch (const std::exception& error) {
    log_.add(
        fmt::format("the journal could not be written, and a hub that is killed cannot go on: {}",
                    error.what()));
  }
}

void GrpcHubServer::open_generation() {
  open_ = true;
  generation_ = membership_->journal().generation;
  const std::vector<Roll::Place>& places = membership_->journal().rolls.at(generation_).places;
  seats_.clear();
  seats_.resize(places.size());
  std::erase_if(meters_, [&](const auto& meter) {
    return std::ranges::find(places, meter.first, &Roll::Place::name) == places.end();
  });
}

// Their nodes hear why, and leave by themselves.
void GrpcHubServer::close_generation(const std::string& reason) {
  open_ = false;
  for (Seat& seat : seats_) {
    if (seat.stream == nullptr) continue;
    HubStream& stream = *std::exchange(seat.stream, nullptr);
    stream.over = reason;
    stream.since = Clock::now();
    stream.drop_all();
    stream.owes_abort = true;
    pump(stream);
  }
}

}  // namespace tersewire
