// A node as a member of a job: what it tells the hub, and what that makes of it.
#include <grpcpp/generic/generic_stub.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <future>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

#include "ends.h"
#include "errors.h"
#include "grpc_batch.h"
#include "grpc_credentials.h"
#include "grpc_end.h"
#include "hub_door.h"
#include "member_record.h"
#include "tersewire/grpc_members.h"

namespace tersewire {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kTellEvery(250);
constexpr milliseconds kLongestCall(5000);
// For a hub that hears the last word.
constexpr milliseconds kFarewell(2000);

// The hub's answer to one record.
grpc::Status ask(const std::shared_ptr<grpc::Channel>& channel, const MemberSays& says, bool secure,
                 milliseconds patience, MemberList& list) {
  BatchWriter batch(secure);
  batch.add({.kind = RecordKind::kMember}, member_data(says));
  const grpc::ByteBuffer request = batch.finish();
  grpc::ByteBuffer response;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + patience);
  grpc::GenericStub stub(channel);
  std::promise<grpc::Status> done;
  stub.UnaryCall(&context, kMemberMethod, {}, &request, &response,
                 [&](const grpc::Status& status) { done.set_value(status); });
  grpc::Status status = done.get_future().get();
  if (!status.ok()) return status;
  try {
    const grpc::Slice bytes = in_one_piece(response);
    ByteView rest = view_of(bytes);
    const Record record = take_record(rest, secure);
    if (record.head.kind == RecordKind::kList) list = parse_list(record.data);
    const bool watches = says.phase == MemberPhase::kWatches;
    const Record traffic = watches ? take_record(rest, secure) : Record();
    if (record.head.kind != RecordKind::kList || !rest.empty() ||
        (watches && traffic.head.kind != RecordKind::kTraffic)) {
      fail(ErrorCode::kDataLoss, "it answers with something else; run one version everywhere");
    }
    if (watches) parse_traffic(traffic.data, list);
  } catch (const std::exception& error) {
    return {grpc::StatusCode::DATA_LOSS, error.what()};
  }
  return status;
}

// The same, again and again where the hub is not reached.
grpc::Status ask_until(const std::string& hub, const MemberSays& says, const GrpcSecurity& security,
                       milliseconds patience, MemberList& list) {
  grpc::Status status;
  const Clock::time_point end = Clock::now() + bounded(patience);
  for (milliseconds left = bounded(patience); left > milliseconds(0);
       left = std::chrono::ceil<milliseconds>(end - Clock::now())) {
    status = ask(channel_to(hub, security), says, !security.certificates.empty(), left, list);
    if (status.error_code() != grpc::StatusCode::UNAVAILABLE) break;
    std::this_thread::sleep_for(std::min(left, kTellEvery));
  }
  return status;
}

// Answers that would be the same the next time. Not that a name is taken: it may be free soon.
bool is_final(grpc::StatusCode code) {
  return code == grpc::StatusCode::PERMISSION_DENIED ||
         code == grpc::StatusCode::FAILED_PRECONDITION ||
         code == grpc::StatusCode::INVALID_ARGUMENT || code == grpc::StatusCode::UNIMPLEMENTED;
}

}  // namespace

class GrpcMember::Talk {
 public:
  explicit Talk(Settings given) : settings(std::move(given)) {
    says.name = settings.name;
    says.incarnation = random_number();
    says.fingerprint = settings.fingerprint;
    says.phase = MemberPhase::kWaits;
    says.serves = settings.serves;
    says.servers = static_cast<std::uint32_t>(settings.servers);
    thread = std::thread([this] { run(); });
  }

  ~Talk() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    changed.notify_all();
    thread.join();
  }
  Talk(const Talk&) = delete;
  Talk& operator=(const Talk&) = delete;

  // Changes what is said, and has it said at once.
  template <typename Change>
  void say(const Change& change) {
    {
      const std::lock_guard lock(mutex);
      change(says);
      ++version;
      hurry = true;
    }
    changed.notify_all();
  }

  // The same, said when its turn comes, unless the hub waits for it.
  void hold(std::vector<KeptState> states) {
    const std::lock_guard lock(mutex);
    says.held = std::move(states);
    ++version;
    if (!list || !(list->closes || !list->established)) return;
    hurry = true;
    changed.notify_all();
  }

  void be_away(bool away) {
    {
      const std::lock_guard lock(mutex);
      away_since = away ? std::optional(Clock::now()) : std::nullopt;
      if (!told_hangs) return;
      told_hangs = false;
      ++version;
      hurry = true;
    }
    changed.notify_all();
  }

  MemberList look() {
    const std::lock_guard lock(mutex);
    return list.value_or(MemberList());
  }

  // Waits until a list that answers what is said now is `wanted`.
  template <typename Wanted>
  MemberList await(const Wanted& wanted) {
    std::unique_lock lock(mutex);
    // Once it is over, that is the last that a hub says.
    const auto is_there = [&] {
      return list &&
             (list->phase >= JobPhase::kDone || (heard_version == version && wanted(*list)));
    };
    for (;;) {
      const Clock::time_point began = Clock::now();
      changed.wait_for(lock, kTellEvery, [&] { return refused || is_there(); });
      note_suspension(began);
      if (is_there()) return *list;
      if (refused) throw Error(ErrorCode::kFailedPrecondition, *refused);
      if (Clock::now() - heard <= settings.limits.deadline) continue;
      fail(ErrorCode::kUnavailable, "'{}' has not reached the hub at {} for {:.3g} s: {}; {}",
           settings.name, settings.hub, std::chrono::duration<double>(Clock::now() - heard).count(),
           trouble, what_to_check(settings.hub, trouble, settings.security));
    }
  }

  // What the hub has been told last, for at most so long.
  void await_told(milliseconds patience) {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, patience, [&] {
      const bool is_over = list && list->phase >= JobPhase::kDone;
      return refused || is_over || heard_version == version;
    });
  }

  const Settings settings;
  std::mutex mutex;
  std::condition_variable changed;
  MemberSays says;

  // After a call or a wait that began then, with the mutex held: while this process was suspended
  // the hub was not silent.
  void note_suspension(Clock::time_point began) {
    if (Clock::now() - began > 2 * kLongestCall) heard = Clock::now();
  }

  void run() {
    const bool secure = !settings.security.certificates.empty();
    std::shared_ptr<grpc::Channel> channel;
    std::uint64_t said = 0;
    for (std::unique_lock lock(mutex); !stop;) {
      const MemberSays now = says_now();
      said = version;
      hurry = false;
      const Clock::time_point asked = Clock::now();
      lock.unlock();
      MemberList answer;
      grpc::Status status;
      try {
        if (!channel) {
          check_valid_now(settings.security);
          channel = channel_to(settings.hub, settings.security);
        }
        status = ask(channel, now, secure, kLongestCall, answer);
      } catch (const std::exception& error) {
        status = {grpc::StatusCode::UNAVAILABLE, error.what()};
      }
      // The next one reads the certificate anew, and does not wait as gRPC would.
      if (!status.ok()) channel.reset();
      lock.lock();
      note_suspension(asked);
      if (status.ok()) {
        list = std::move(answer);
        heard = Clock::now();
        heard_version = said;
      } else {
        trouble = status.error_message();
        if (is_final(status.error_code())) {
          refused =
              fmt::format("the hub at {} refuses '{}': {}", settings.hub, settings.name, trouble);
        }
      }
      changed.notify_all();
      if (refused) return;
      const Clock::time_point began = Clock::now();
      changed.wait_for(lock, kTellEvery, [&] { return stop || (status.ok() && hurry); });
      note_suspension(began);
    }
  }

  // With the mutex held.
  MemberSays says_now() {
    MemberSays now = says;
    const auto away = away_since ? Clock::now() - *away_since : Clock::duration(0);
    if (away <= settings.limits.progress_limit) return now;
    now.hangs = told_hangs = true;
    now.reason = fmt::format(
        "'{}' has made no progress in the job for {:.3g} s, though its process is alive",
        settings.name, std::chrono::duration<double>(away).count());
    return now;
  }

  std::optional<Clock::time_point> away_since;
  bool told_hangs = false;
  std::optional<MemberList> list;
  std::uint64_t version = 1;        // of what is said
  std::uint64_t heard_version = 0;  // that the list answers
  Clock::time_point heard = Clock::now();
  std::string trouble = "it does not answer";
  std::optional<std::string> refused;
  bool hurry = false;
  bool stop = false;
  std::thread thread;
};

GrpcMember::GrpcMember(Settings settings) {
  check_member_name(settings.name);
  if (settings.servers < 0 || (settings.serves && settings.servers == 0)) {
    fail(ErrorCode::kInvalidArgument,
         "'{}' cannot serve in a job with {} servers beside its workers; use 1 or more",
         settings.name, settings.servers);
  }
  check_protected(settings.hub, settings.security);
  check_valid_now(settings.security);
  keep_grpc_quiet();
  channel_to(settings.hub, settings.security);  // throws here rather than in the thread
  if (!settings.direct.empty()) {
    check_direct(settings.direct, settings.security);
    const HubDoor free_to_listen(settings.direct);  // the job does not wait for one who cannot
  }
  talk_ = std::make_unique<Talk>(std::move(settings));
}

GrpcMember::~GrpcMember() { talk_->await_told(kFarewell); }

std::uint64_t GrpcMember::incarnation() const { return talk_->says.incarnation; }

MemberList GrpcMember::await(std::uint32_t after) {
  const std::uint64_t own = incarnation();
  return talk_->await([&](const MemberList& list) {
    if (talk_->says.leaving && list.generation == 0) return true;
    return list.phase == JobPhase::kRuns && list.generation > after &&
           (list.rank_of(own) || talk_->says.leaving);
  });
}

MemberList GrpcMember::await_end(std::uint32_t generation) {
  const std::uint64_t own = incarnation();
  return talk_->await([&](const MemberList& list) {
    if (list.phase != JobPhase::kRuns || list.generation > generation) return true;
    const auto rank = list.rank_of(own);
    return list.established && (!rank || *rank >= static_cast<int>(list.nodes()));
  });
}

MemberList GrpcMember::look() const { return talk_->look(); }

MemberList GrpcMember::await_settled(std::uint32_t generation) {
  Boundary own;
  talk_->say([&](const MemberSays& says) { own = says.held.empty() ? own : says.held.back().at; });
  return talk_->await([&](const MemberList& list) {
    if (list.phase != JobPhase::kRuns || list.generation > generation || !list.closes) return true;
    // It closes after a later one.
    return std::ranges::all_of(std::span(list.members).first(list.nodes()),
                               [&](const MemberEntry& member) { return member.newest >= own; });
  });
}

std::unique_ptr<Transport> GrpcMember::join(const MemberList& list) {
  const auto rank = list.rank_of(incarnation());
  if (!rank) {
    fail(ErrorCode::kInvalidArgument, "'{}' is not in generation {}", talk_->settings.name,
         list.generation);
  }
  talk_->say([&](MemberSays& says) {
    says.phase = MemberPhase::kWorks;
    says.generation = list.generation;
    says.over = false;
    says.reason.clear();
  });
  GrpcNode node{.rank = *rank,
                .nodes = static_cast<int>(list.members.size()),
                .generation = list.generation,
                .incarnation = incarnation(),
                .direct = talk_->settings.direct};
  for (const MemberEntry& member : list.members) node.names.push_back(member.name);
  try {
    return std::make_unique<GrpcEnd>(talk_->settings.hub, node, talk_->settings.security,
                                     talk_->settings.limits);
  } catch (const Error& error) {
    // Others may have ended the generation already, which they know; what went wrong here they do
    // not.
    const bool is_of_others = error.code() == ErrorCode::kAborted;
    throw Error(is_of_others ? ErrorCode::kAborted : ErrorCode::kUnavailable, error.what());
  }
}

void GrpcMember::holds(std::vector<KeptState> states) { talk_->hold(std::move(states)); }

void GrpcMember::leave() {
  talk_->say([](MemberSays& says) { says.leaving = true; });
}

void GrpcMember::end(std::uint32_t generation, const std::string& reason) {
  talk_->say([&](MemberSays& says) {
    says.phase = MemberPhase::kWaits;
    says.generation = generation;
    says.over = true;
    says.reason = reason.substr(0, kMostReasonBytes);
  });
}

void GrpcMember::be_away(bool away) { talk_->be_away(away); }

void GrpcMember::finish() {
  talk_->say([](MemberSays& says) { says.phase = MemberPhase::kFinished; });
}

void GrpcMember::give_up(const std::string& reason) {
  talk_->say([&](MemberSays& says) {
    says.phase = MemberPhase::kFailed;
    says.reason = reason.substr(0, kMostReasonBytes);
  });
  talk_->await_told(kFarewell);
}

MemberList look_at_hub(const std::string& hub, const GrpcSecurity& security,
                       milliseconds patience) {
  check_protected(hub, security);
  check_valid_now(security);
  keep_grpc_quiet();
  MemberList list;
  const grpc::Status status = ask_until(hub, {}, security, patience, list);
  if (status.ok()) return list;
  if (is_final(status.error_code())) {
    fail(ErrorCode::kFailedPrecondition, "the hub at {} refuses this node: {}", hub,
         status.error_message());
  }
  fail(ErrorCode::kUnavailable, "the hub at {} does not report the state of its job: {}; {}", hub,
       status.error_message(), what_to_check(hub, status.error_message(), security));
}

void tell_done(const std::string& hub, const std::string& name, const GrpcSecurity& security,
               milliseconds patience) {
  check_protected(hub, security);
  check_valid_now(security);
  keep_grpc_quiet();
  MemberList list;
  const MemberSays says{.name = name, .phase = MemberPhase::kFoundDone};
  const grpc::Status status = ask_until(hub, says, security, patience, list);
  if (status.ok()) return;
  throw Error(
      is_final(status.error_code()) ? ErrorCode::kFailedPrecondition : ErrorCode::kUnavailable,
      fmt::format("the hub at {} could not be told that the job is done already: {}", hub,
                  status.error_message()));
}

}  // namespace tersewire
