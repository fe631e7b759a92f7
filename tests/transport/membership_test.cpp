// The rules by which a hub makes generations of a job's members, without a network and without time
// passing, and the records and the journal that carry them.
#include "membership.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "expect_error.h"
#include "silence_limit.h"
#include "traffic_meter.h"

namespace tersewire {
namespace {

using namespace std::chrono_literals;
using Clock = Membership::Clock;

constexpr MembershipLimits kLimits{.first = 3, .least = 2, .most = 4, .deadline = 10s};

// Members that do what nodes do.
class Job {
 public:
  explicit Job(const MembershipLimits& limits = kLimits, ByteView journal = {})
      : servers(static_cast<std::uint32_t>(limits.servers)), hub(limits, journal, now) {}

  MemberSays& member(const std::string& name) {
    MemberSays& says = members[name];
    if (says.name.empty()) {
      says.name = name;
      says.incarnation = std::hash<std::string>()(name);
      says.fingerprint = 7;
      says.phase = MemberPhase::kWaits;
      says.serves = name.starts_with("server");
      says.servers = servers;
    }
    return says;
  }
  MemberList hear(const std::string& name) {
    hub.hear(member(name), now);
    return hub.list(now);
  }
  // It is in the newest generation, and holds its state after a step.
  void work(const std::string& name, std::uint64_t step) {
    MemberSays& says = member(name);
    says.generation = hub.list(now).generation;
    says.phase = MemberPhase::kWorks;
    says.over = false;
    says.held.push_back({.at = {says.generation, step}, .undelivered = 3});
    if (says.held.size() > 2) says.held.erase(says.held.begin());
    hear(name);
  }
  // The generation is over for it.
  void stop(const std::string& name) {
    MemberSays& says = member(name);
    says.phase = MemberPhase::kWaits;
    says.over = true;
    hear(name);
  }
  void begin(const std::vector<std::string>& names, std::uint64_t step = 1) {
    for (const std::string& name : names) hear(name);
    for (const std::string& name : names) work(name, step);
  }
  std::vector<std::string> workers() const { return names(0, hub.list(now).workers); }
  std::vector<std::string> nodes() const { return names(0, hub.list(now).nodes()); }
  // Those who hand over what they have.
  std::vector<std::string> leaving() const {
    const MemberList list = hub.list(now);
    return names(list.nodes(), list.members.size());
  }
  std::vector<std::string> names(std::size_t begin, std::size_t end) const {
    const MemberList list = hub.list(now);
    std::vector<std::string> names;
    for (std::size_t i = begin; i < end; ++i) names.push_back(list.members[i].name);
    return names;
  }
  // All who are left hear that it is over.
  void stop_all(const std::vector<std::string>& all) {
    for (const std::string& name : all) stop(name);
  }

  const std::uint32_t servers;  // whose names begin with "server"
  Clock::time_point now{1h};
  Membership hub;
  std::map<std::string, MemberSays> members;
};

using Names = std::vector<std::string>;

TEST(Membership, BeginsWithTheFirstWorkers) {
  Job job;
  EXPECT_EQ(job.hear("c").generation, 0U);
  EXPECT_EQ(job.hear("a").phase, JobPhase::kGathers);
  const MemberList list = job.hear("b");
  EXPECT_EQ(list.generation, 1U);
  EXPECT_EQ(list.phase, JobPhase::kRuns);
  EXPECT_EQ(list.base, Boundary());
  EXPECT_EQ(job.workers(), (Names{"a", "b", "c"}));
  EXPECT_FALSE(list.established);
  for (const char* name : {"a", "b", "c"}) job.work(name, 1);
  EXPECT_TRUE(job.hub.list(job.now).established);
}

TEST(Membership, GoesOnFromTheNewestStateThatAllHaveWithoutWhoHasDied) {
  Job job;
  job.begin({"a", "b", "c"}, 4);
  job.work("a", 5);
  job.work("c", 5);
  job.work("c", 6);  // holds 5 and 6
  job.now += 11s;
  job.hear("a");
  const MemberList list = job.hear("c");
  EXPECT_EQ(list.phase, JobPhase::kGathers);
  EXPECT_NE(list.reason.find("'b' has not been heard for 10 s"), std::string::npos) << list.reason;
  job.stop("c");
  EXPECT_EQ(job.hub.list(job.now).generation, 1U);  // it is not over for a
  job.stop("a");
  const MemberList next = job.hub.list(job.now);
  EXPECT_EQ(next.generation, 2U);
  EXPECT_EQ(next.base, (Boundary{1, 5}));
  EXPECT_EQ(next.base_workers, 3U);
  EXPECT_EQ(job.workers(), (Names{"a", "c"}));
  EXPECT_EQ(next.members[1].base_rank, 2U);
  EXPECT_EQ(next.lost, 1U);
  EXPECT_EQ(next.lost_norm, 3);  // after step 4, the last of which b has told
}

// Of the residuals after the step that the others go on from; also where another process has the
// name of the dead, and of several.
TEST(Membership, TellsHowMuchIsLost) {
  Job job;
  job.begin({"a", "b", "c"}, 4);
  for (const char* name : {"a", "b", "c"}) job.work(name, 5);
  job.member("b").held.back().undelivered = 4;
  job.hear("b");
  job.now += 11s;
  for (const char* name : {"a", "c"}) job.hear(name);
  MemberSays anew = job.member("b");
  ++anew.incarnation;
  anew.held.clear();
  anew.generation = 0;
  anew.phase = MemberPhase::kWaits;
  job.hub.hear(anew, job.now);
  for (const char* name : {"a", "c"}) job.stop(name);
  const MemberList list = job.hub.list(job.now);
  EXPECT_EQ(list.base, (Boundary{1, 5}));
  EXPECT_EQ(list.lost, 1U);
  EXPECT_EQ(list.lost_norm, 4);
  const std::vector<std::string> events = job.hub.take_events();
  EXPECT_EQ(std::ranges::count(events,
                               "'b' is lost after step 5, and with it what it had not yet "
                               "delivered: its residual, of norm 4"),
            1);
  // Where two are lost, their residuals are orthogonal, as far as anyone knows.
  for (const char* name : {"a", "c"}) job.work(name, 6);
  job.hub.hear(anew, job.now);
  anew.generation = 2;
  anew.phase = MemberPhase::kWorks;
  anew.held = {{{2, 6}, 3}};
  job.hub.hear(anew, job.now);
  job.now += 11s;
  for (const char* name : {"a", "c"}) job.hear(name);
  for (const char* name : {"a", "c"}) job.stop(name);
  EXPECT_EQ(job.hub.list(job.now).lost, 2U);
  EXPECT_EQ(job.hub.list(job.now).lost_norm, 5);
}

TEST(Membership, GoesOnWithoutWhoHangsUntilItIsBack) {
  Job job;
  job.begin({"a", "b", "c"}, 4);
  job.member("b").hangs = true;
  job.member("b").reason = "'b' has done nothing";
  EXPECT_EQ(job.hear("b").phase, JobPhase::kGathers);
  EXPECT_EQ(job.hub.list(job.now).reason, "'b' has done nothing");
  job.stop("a");
  job.stop("c");
  EXPECT_EQ(job.workers(), (Names{"a", "c"}));
  EXPECT_EQ(job.hub.list(job.now).lost, 1U);
  for (const char* name : {"a", "c"}) job.work(name, 5);
  EXPECT_TRUE(job.hear("b").waiting.empty());  // not yet
  job.member("b").hangs = false;
  job.member("b").reason.clear();
  job.member("b").held.clear();
  job.stop("b");
  EXPECT_EQ(job.hub.list(job.now).waiting.at(0).name, "b");
  // One that is back before the others go on loses nothing.
  job.member("c").hangs = true;
  job.hear("c");
  job.member("c").hangs = false;
  job.hear("c");
  for (const char* name : {"a", "c"}) job.stop(name);
  EXPECT_EQ(job.hub.list(job.now).base, (Boundary{2, 5}));
  EXPECT_EQ(job.workers(), (Names{"a", "c", "b"}));
  EXPECT_EQ(job.hub.list(job.now).lost, 1U);
}

// Its process lives on, and another may have its name.
TEST(Membership, AnotherProcessMayTakeTheNameOfOneThatHangs) {
  Job job;
  job.begin({"a", "b", "c"}, 4);
  const MemberSays fresh = {
      .name = "b", .incarnation = 99, .fingerprint = 7, .phase = MemberPhase::kWaits};
  expect_error(ErrorCode::kUnavailable, "another process is 'b'",
               [&] { job.hub.hear(fresh, job.now); });
  job.member("b").hangs = true;
  job.hear("b");
  job.hub.hear(fresh, job.now);
  for (const char* name : {"a", "c"}) job.stop(name);
  EXPECT_EQ(job.workers(), (Names{"a", "c", "b"}));
}

TEST(Membership, LetsANewcomerInAtTheNextState) {
  Job job;
  job.begin({"a", "b", "c"}, 4);
  job.hear("aa");
  EXPECT_TRUE(job.hub.list(job.now).closes);
  EXPECT_EQ(job.hub.list(job.now).waiting.at(0).name, "aa");
  job.work("a", 5);
  job.work("b", 5);
  EXPECT_EQ(job.hub.list(job.now).phase, JobPhase::kRuns);
  job.work("c", 5);
  EXPECT_EQ(job.hub.list(job.now).phase, JobPhase::kGathers);
  for (const char* name : {"a", "b", "c"}) job.stop(name);
  const MemberList list = job.hub.list(job.now);
  EXPECT_EQ(list.base, (Boundary{1, 5}));
  EXPECT_EQ(job.workers(), (Names{"a", "b", "c", "aa"}));  // behind those who have the state
  EXPECT_EQ(list.members[3].base_rank, std::nullopt);
  EXPECT_EQ(list.lost, 0U);
  // No more than the most.
  for (const char* name : {"a", "b", "c", "aa"}) job.work(name, 5);
  job.hear("e");
  for (const char* name : {"a", "b", "c", "aa"}) job.work(name, 6);
  EXPECT_EQ(job.hub.list(job.now).phase, JobPhase::kRuns);
}

TEST(Membership, KeepsWhoLeavesUntilTheOthersHaveItsState) {
  Job job;
  job.begin({"a", "b", "c"}, 4);
  job.member("a").leaving = true;
  for (const char* name : {"a", "b", "c"}) job.work(name, 5);
  for (const char* name : {"a", "b", "c"}) job.stop(name);
  MemberList list = job.hub.list(job.now);
  EXPECT_EQ(job.workers(), (Names{"b", "c"}));
  ASSERT_EQ(list.members.size(), 3U);
  EXPECT_EQ(list.members[2].name, "a");
  EXPECT_EQ(list.members[2].base_rank, 0U);
  EXPECT_EQ(list.lost, 0U);
  // b fails to get it: what a has is still there.
  job.work("c", 5);
  job.member("a").generation = job.member("b").generation = list.generation;
  job.stop("b");
  job.stop("c");
  job.stop("a");
  list = job.hub.list(job.now);
  EXPECT_EQ(list.generation, 3U);
  EXPECT_EQ(list.base, (Boundary{1, 5}));
  EXPECT_EQ(list.members.at(2).name, "a");
  job.work("b", 5);
  job.work("c", 5);
  EXPECT_TRUE(job.hub.list(job.now).established);
  for (int i = 0; i < 2; ++i) {
    job.now += 9s;
    job.hear("b");
    job.hear("c");
  }
  EXPECT_EQ(job.hub.list(job.now).phase, JobPhase::kRuns);  // a has gone, and is not missed
}

constexpr MembershipLimits kWithServers{
    .first = 2, .least = 1, .most = 3, .servers = 2, .deadline = 10s};

TEST(Servers, StandBehindTheWorkersThatComeAndGo) {
  Job job(kWithServers);
  for (const char* name : {"server1", "x", "server2"}) job.hear(name);
  EXPECT_EQ(job.hub.list(job.now).generation, 0U);  // a worker is missing
  EXPECT_EQ(job.hear("y").generation, 1U);
  EXPECT_EQ(job.nodes(), (Names{"x", "y", "server1", "server2"}));
  EXPECT_EQ(job.workers(), (Names{"x", "y"}));
  for (const char* name : {"x", "y", "server1"}) job.work(name, 1);
  EXPECT_FALSE(job.hub.list(job.now).established);  // servers are needed, too
  job.work("server2", 1);
  EXPECT_TRUE(job.hub.list(job.now).established);
  // A worker dies, and another comes in its place.
  job.now += 11s;
  for (const char* name : {"y", "server1", "server2"}) job.hear(name);
  job.hear("z");
  job.stop_all({"y", "server1", "server2"});
  const MemberList list = job.hub.list(job.now);
  EXPECT_EQ(list.generation, 2U);
  EXPECT_EQ(list.base_workers, 2U);
  EXPECT_EQ(list.base_servers, 2U);
  EXPECT_EQ(job.nodes(), (Names{"y", "z", "server1", "server2"}));
  EXPECT_EQ(list.members[0].base_rank, 1U);
  EXPECT_EQ(list.members[1].base_rank, std::nullopt);
  EXPECT_EQ(list.members[2].base_rank, 2U);
  EXPECT_EQ(list.members[3].base_rank, 3U);
  EXPECT_TRUE(list.members[2].serves);
  EXPECT_FALSE(list.members[1].serves);
}

TEST(Servers, LeaveDieAndComeWhileOneIsLeft) {
  Job job(kWithServers);
  job.begin({"x", "y", "server1", "server2"}, 1);
  job.member("server1").leaving = true;
  for (const char* name : {"x", "y", "server1", "server2"}) job.work(name, 2);
  EXPECT_EQ(job.hub.list(job.now).reason, "'server1' leaves");
  job.stop_all({"x", "y", "server1", "server2"});
  EXPECT_EQ(job.nodes(), (Names{"x", "y", "server2"}));
  EXPECT_EQ(job.leaving(), (Names{"server1"}));
  EXPECT_EQ(job.hub.list(job.now).lost, 0U);
  for (const char* name : {"x", "y", "server2"}) job.work(name, 2);
  job.hear("server3");
  for (const char* name : {"x", "y", "server2"}) job.work(name, 3);
  EXPECT_EQ(job.hub.list(job.now).reason, "'server3' joins");
  job.stop_all({"x", "y", "server2"});
  EXPECT_EQ(job.nodes(), (Names{"x", "y", "server2", "server3"}));
  for (const char* name : {"x", "y", "server2", "server3"}) job.work(name, 3);
  // There is room for no more.
  job.hear("server4");
  for (const char* name : {"x", "y", "server2", "server3"}) job.work(name, 4);
  EXPECT_EQ(job.hub.list(job.now).phase, JobPhase::kRuns);
  job.now += 11s;
  for (const char* name : {"x", "y", "server3"}) job.hear(name);
  job.stop_all({"x", "y", "server3"});
  EXPECT_EQ(job.nodes(), (Names{"x", "y", "server3"}));
  EXPECT_EQ(job.hub.list(job.now).members[2].base_rank, 3U);
  EXPECT_EQ(job.hub.list(job.now).lost, 1U);
}

TEST(Servers, TheLastOneLeavesWithAStateOfAll) {
  Job job({.first = 1, .least = 1, .most = 1, .servers = 1, .deadline = 10s});
  job.begin({"x", "server"}, 1);
  job.member("server").leaving = true;
  job.hear("server");
  for (const char* name : {"x", "server"}) job.work(name, 2);
  job.stop_all({"x", "server"});
  const MemberList list = job.hub.list(job.now);
  EXPECT_TRUE(list.last);
  EXPECT_EQ(list.reason, "no server is left ('server' leaves)");
  EXPECT_EQ(job.nodes(), (Names{"x", "server"}));
  for (const char* name : {"x", "server"}) {
    job.work(name, 2);
    job.member(name).phase = MemberPhase::kFinished;
    job.hear(name);
  }
  EXPECT_EQ(job.hub.list(job.now).phase, JobPhase::kEnded);
}

TEST(Servers, OneThatComesInTimeTakesTheLastOnesPlace) {
  Job job({.first = 1, .least = 1, .most = 1, .servers = 1, .deadline = 10s});
  job.begin({"x", "server1"}, 1);
  job.hear("server2");
  job.member("server1").leaving = true;
  job.hear("server1");
  for (const char* name : {"x", "server1"}) job.work(name, 2);
  job.stop_all({"x", "server1"});
  EXPECT_FALSE(job.hub.list(job.now).last);
  EXPECT_EQ(job.nodes(), (Names{"x", "server2"}));
  EXPECT_EQ(job.leaving(), (Names{"server1"}));
}

TEST(Servers, TheJobWaitsForTheLastOneAndEndsWithoutIt) {
  for (const bool comes_back : {false, true}) {
    Job job({.first = 1, .least = 1, .most = 1, .servers = 1, .deadline = 10s});
    job.begin({"x", "server"}, 1);
    job.now += 11s;
    job.hear("x");
    job.stop("x");
    job.hear("server9");  // which has nothing
    EXPECT_EQ(job.hub.list(job.now).phase, JobPhase::kGathers);
    if (comes_back) {
      job.stop("server");
      EXPECT_EQ(job.hub.list(job.now).generation, 2U);
      EXPECT_EQ(job.nodes(), (Names{"x", "server"}));
      continue;
    }
    job.now += 30s;
    job.hear("x");
    const MemberList list = job.hub.list(job.now);
    EXPECT_EQ(list.phase, JobPhase::kEnded);
    EXPECT_TRUE(list.reason.starts_with("no server is left ('server' has not been heard for 10 s"))
        << list.reason;
  }
}

// Nothing is lost where none had begun.
TEST(Servers, OneThatDiesBeforeTheFirstStateIsWaitedFor) {
  Job job({.first = 1, .least = 1, .most = 1, .servers = 1, .deadline = 10s});
  for (const char* name : {"x", "server"}) job.hear(name);
  job.now += 90s;
  job.hear("x");
  job.member("x").generation = 1;
  job.stop("x");
  EXPECT_EQ(job.hub.list(job.now).phase, JobPhase::kGathers);
  job.hear("server2");
  EXPECT_EQ(job.hub.list(job.now).generation, 2U);
  EXPECT_EQ(job.nodes(), (Names{"x", "server2"}));
}

// What the worker holds is a part of a state, and the model's is gone.
TEST(Servers, OneThatDiesBeforeItsFirstStateIsHeardTakesTheModelWithIt) {
  Job job({.first = 1, .least = 1, .most = 1, .servers = 1, .deadline = 10s});
  for (const char* name : {"x", "server"}) job.hear(name);
  job.work("x", 4);
  job.now += 90s;
  job.hear("x");
  job.stop("x");
  job.hear("server2");
  const MemberList list = job.hub.list(job.now);
  EXPECT_EQ(list.generation, 2U);
  EXPECT_EQ(list.base, Boundary());
  EXPECT_EQ(list.base_servers, 0U);
  EXPECT_EQ(job.nodes(), (Names{"x", "server2"}));
  for (const char* name : {"x", "server2"}) job.work(name, 2);
  EXPECT_TRUE(job.hub.list(job.now).established);
}

TEST(Servers, AreAsManyForAllMembersAndTheHub) {
  Job job(kWithServers);
  job.member("x").servers = 1;
  expect_error(ErrorCode::kFailedPrecondition,
               "'x' is of a job with 1 server, and this hub is for 2", [&] { job.hear("x"); });
  job.begin({"y", "z", "server1", "server2"}, 1);
  const Bytes journal = journal_bytes(job.hub.journal());
  expect_error(ErrorCode::kFailedPrecondition, "the journal is of a job with 2 servers",
               [&] { Job(kLimits, journal); });
  Job again(kWithServers, journal);
  EXPECT_EQ(again.nodes(), (Names{"y", "z", "server1", "server2"}));
  again.members = job.members;
  for (const char* name : {"y", "z", "server1", "server2"}) again.hear(name);
  EXPECT_TRUE(again.hub.list(again.now).established);
  for (const int servers : {-1, 1022}) {
    MembershipLimits limits = kWithServers;
    limits.servers = servers;
    expect_error(ErrorCode::kInvalidArgument, "cannot have " + std::to_string(servers) + " servers",
                 [&] { Membership(limits, {}, Clock::time_point()); });
  }
}

// A process that was a worker holds nothing of a server's.
TEST(Servers, WhoSaysThatItIsOneWasNone) {
  Job job(kWithServers);
  job.begin({"x", "y", "server1", "server2"}, 1);
  job.now += 11s;
  for (const char* name : {"x", "server1", "server2"}) job.hear(name);
  job.stop_all({"x", "server1", "server2"});
  EXPECT_EQ(job.nodes(), (Names{"x", "server1", "server2"}));
  for (const char* name : {"x", "server1", "server2"}) job.work(name, 1);
  job.member("y").serves = true;
  job.stop("y");
  job.member("server1").leaving = true;
  for (const char* name : {"x", "server1", "server2"}) job.work(name, 2);
  job.stop_all({"x", "server1", "server2"});
  EXPECT_EQ(job.nodes(), (Names{"x", "server2", "y"}));
  EXPECT_EQ(job.hub.list(job.now).members[2].base_rank, std::nullopt);
}

TEST(Membership, EndsWithAStateWhereTooFewAreLeft) {
  Job job;
  job.begin({"a", "b", "c"}, 4);
  job.now += 11s;
  job.hear("c");
  job.stop("c");
  const MemberList list = job.hub.list(job.now);
  EXPECT_TRUE(list.last);
  EXPECT_EQ(list.phase, JobPhase::kRuns);
  EXPECT_EQ(job.workers(), (Names{"c"}));
  MemberSays& c = job.member("c");
  c.generation = list.generation;
  c.over = false;
  c.phase = MemberPhase::kFinished;
  const MemberList end = job.hear("c");
  EXPECT_EQ(end.phase, JobPhase::kEnded);
  EXPECT_NE(end.reason.find("1 worker is left, and the job needs 2"), std::string::npos);
  job.hub.told("c");
  EXPECT_TRUE(job.hub.is_over(job.now));
}

TEST(Membership, WaitsWhereAllAreSilentAtOnce) {
  Job job;
  job.begin({"a", "b", "c"}, 4);
  job.now += 11s;
  job.hub.tick(job.now);
  EXPECT_EQ(job.hub.list(job.now).phase, JobPhase::kGathers);
  job.now += 20s;
  job.hear("b");
  EXPECT_EQ(job.hub.list(job.now).phase, JobPhase::kGathers);
  job.hear("c");
  job.stop("b");
  job.stop("c");
  EXPECT_EQ(job.workers(), (Names{"b", "c"}));
  EXPECT_EQ(job.hub.list(job.now).base, (Boundary{1, 4}));
  job.now += 11s;
  job.hub.end_generation("a test");
  job.hub.tick(job.now);
  for (int i = 0; i < 40; ++i) job.hub.tick(job.now += 1s);
  EXPECT_EQ(job.hub.list(job.now).phase, JobPhase::kEnded);
}

TEST(Membership, GivesNobodyUpForAHubThatStoodStill) {
  Job job;
  job.begin({"a", "b", "c"}, 4);
  job.hub.tick(job.now);
  job.now += 60s;
  job.hub.tick(job.now);
  EXPECT_EQ(job.hub.list(job.now).phase, JobPhase::kRuns);
  for (int i = 0; i < 11; ++i) job.hub.tick(job.now += 1s);
  EXPECT_EQ(job.hub.list(job.now).phase, JobPhase::kGathers);
}

TEST(Membership, WhoWasGivenUpTooSoonIsANewcomer) {
  Job job;
  job.begin({"a", "b", "c"}, 4);
  job.now += 11s;
  job.hear("a");
  job.hear("b");
  job.stop("a");
  job.stop("b");
  job.work("a", 5);
  job.work("b", 5);
  job.hear("c");  // it does not know yet
  EXPECT_FALSE(job.hub.list(job.now).closes);
  job.stop("c");
  EXPECT_TRUE(job.hub.list(job.now).closes);
  job.work("a", 6);
  job.work("b", 6);
  job.stop("a");
  job.stop("b");
  EXPECT_EQ(job.workers(), (Names{"a", "b", "c"}));
  EXPECT_EQ(job.hub.list(job.now).members[2].base_rank, std::nullopt);
}

TEST(Membership, EndsWithTheLastStepOfRank0) {
  Job job;
  job.begin({"a", "b", "c"});
  for (const char* name : {"c", "b"}) {
    job.member(name).phase = MemberPhase::kFinished;
    EXPECT_EQ(job.hear(name).phase, JobPhase::kRuns);
  }
  job.now += 9s;
  job.hear("b");
  job.hear("a");
  job.now += 9s;  // c has reported all that there was, and is not missed
  job.hear("a");
  EXPECT_EQ(job.hub.list(job.now).phase, JobPhase::kRuns);
  job.member("a").phase = MemberPhase::kFinished;
  EXPECT_EQ(job.hear("a").phase, JobPhase::kDone);
  EXPECT_FALSE(job.hub.is_over(job.now));
  job.hub.told("a");
  job.hub.told("b");
  EXPECT_TRUE(job.hub.is_over(job.now));
}

TEST(Membership, AJobThatIsDoneDoesNotWaitForWhoHasLeft) {
  Job job;
  job.begin({"a", "b", "c"});
  job.member("c").leaving = true;
  for (const char* name : {"a", "b", "c"}) job.work(name, 2);
  for (const char* name : {"a", "b", "c"}) job.stop(name);
  ASSERT_EQ(job.workers(), (Names{"a", "b"}));
  for (const char* name : {"a", "b"}) job.work(name, 3);
  for (const char* name : {"a", "b"}) {
    job.member(name).phase = MemberPhase::kFinished;
    job.hear(name);
  }
  ASSERT_EQ(job.hub.list(job.now).phase, JobPhase::kDone);
  job.hub.told("a");
  job.hub.told("b");
  EXPECT_FALSE(job.hub.is_over(job.now));  // c may be about to ask whether it can go
  job.now += 4s;
  EXPECT_TRUE(job.hub.is_over(job.now));
}

// The others may still be taking what rank 0 has sent.
TEST(Membership, IsNotDoneBeforeTheOthersAreThroughWithTheLastStep) {
  const auto finished_first = [](Job& job) {
    job.begin({"a", "b", "c"});
    job.member("a").phase = MemberPhase::kFinished;
    EXPECT_EQ(job.hear("a").phase, JobPhase::kRuns);
    job.hear("d");  // nobody is let in any more
    for (const char* name : {"b", "c"}) job.work(name, 2);
    EXPECT_EQ(job.hub.list(job.now).phase, JobPhase::kRuns);
    job.member("b").phase = MemberPhase::kFinished;
    EXPECT_EQ(job.hear("b").phase, JobPhase::kRuns);
  };
  Job all;
  finished_first(all);
  all.member("c").phase = MemberPhase::kFinished;
  EXPECT_EQ(all.hear("c").phase, JobPhase::kDone);

  Job one_goes_on;  // which finds that the others have left
  finished_first(one_goes_on);
  one_goes_on.stop("c");
  EXPECT_EQ(one_goes_on.hub.list(one_goes_on.now).phase, JobPhase::kDone);

  Job one_is_sooner;  // to find that than the hub
  one_is_sooner.begin({"a", "b", "c"});
  one_is_sooner.stop("c");
  EXPECT_EQ(one_is_sooner.hub.list(one_is_sooner.now).phase, JobPhase::kGathers);
  one_is_sooner.member("a").phase = MemberPhase::kFinished;
  EXPECT_EQ(one_is_sooner.hear("a").phase, JobPhase::kDone);

  Job one_dies;
  finished_first(one_dies);
  one_dies.now += 11s;
  one_dies.hub.tick(one_dies.now);
  EXPECT_EQ(one_dies.hub.list(one_dies.now).phase, JobPhase::kDone);

  Job aborted;
  finished_first(aborted);
  aborted.hub.end_generation("'c' has aborted");
  EXPECT_EQ(aborted.hub.list(aborted.now).phase, JobPhase::kDone);
}

TEST(Membership, WhoWasOnlyToGetTheModelDoesNotBeginAnew) {
  for (const bool come_back : {false, true}) {
    Job job({.first = 2, .least = 1, .most = 4, .deadline = 10s});
    job.begin({"a", "b"}, 4);
    job.hear("d");
    for (const char* name : {"a", "b"}) job.work(name, 5);
    for (const char* name : {"a", "b"}) job.stop(name);
    ASSERT_EQ(job.workers(), (Names{"a", "b", "d"}));
    job.member("d").generation = 2;
    job.member("d").phase = MemberPhase::kWorks;
    job.hear("d");
    job.now += 11s;  // while it is handed the model nothing is heard of who has it
    job.stop("d");
    const MemberList list = job.hub.list(job.now);
    EXPECT_EQ(list.generation, 2U);
    EXPECT_EQ(list.phase, JobPhase::kGathers);
    if (come_back) {
      for (const char* name : {"a", "b"}) job.member(name).generation = 2;
      for (const char* name : {"a", "b"}) job.hear(name);
      for (const char* name : {"a", "b"}) job.stop(name);
      EXPECT_EQ(job.hub.list(job.now).generation, 3U);
      EXPECT_EQ(job.hub.list(job.now).base, (Boundary{1, 5}));
    } else {
      for (int i = 0; i < 50; ++i) {
        job.hear("d");
        job.hub.tick(job.now += 1s);
      }
      EXPECT_EQ(job.hub.list(job.now).phase, JobPhase::kEnded);
    }
  }
}

TEST(Membership, GoesOnFromAStateThatEachWhoHoldsAnyHolds) {
  Job job;
  job.begin({"a", "b", "c"}, 4);
  job.work("b", 5);
  job.now += 9s;
  for (const char* name : {"a", "b"}) job.hear(name);
  job.now += 2s;
  for (const char* name : {"a", "b"}) job.stop(name);
  ASSERT_EQ(job.hub.list(job.now).base, (Boundary{1, 4}));
  job.work("a", 4);  // of generation 2; b has not kept that yet
  job.member("b").generation = 2;
  job.member("b").phase = MemberPhase::kWorks;
  job.member("b").over = false;
  job.hear("b");
  for (const char* name : {"a", "b"}) job.stop(name);
  const MemberList next = job.hub.list(job.now);
  EXPECT_EQ(next.generation, 3U);
  EXPECT_EQ(next.base, (Boundary{1, 4}));
  EXPECT_EQ(next.members[0].base_rank, 0U);
  EXPECT_EQ(next.members[1].base_rank, 1U);
}

TEST(Membership, TurnsAwayWhoDoesNotBelong) {
  Job job;
  job.begin({"a", "b", "c"});
  MemberSays second = job.member("b");
  ++second.incarnation;
  EXPECT_THROW(job.hub.hear(second, job.now), Error);
  job.member("d").fingerprint = 8;
  EXPECT_THROW(job.hear("d"), Error);
  Job other;  // without the journal
  EXPECT_THROW(other.hub.hear(job.member("a"), other.now), Error);
  EXPECT_EQ(job.hub.list(job.now).phase, JobPhase::kRuns);
  // Who claims states that nobody has changes nothing for the others.
  job.member("c").held = {{{1, 1000}}, {{900, 1}}};
  job.hear("c");
  job.hub.end_generation("a test");
  for (const char* name : {"a", "b", "c"}) job.stop(name);
  EXPECT_EQ(job.hub.list(job.now).base, (Boundary{1, 1}));
  EXPECT_EQ(job.workers(), (Names{"a", "b", "c"}));
  EXPECT_EQ(job.hub.list(job.now).members[2].base_rank, std::nullopt);
}

// Before the job has begun, the first of those who are there says what it is.
TEST(Membership, WhoWasStartedDifferentlyBlocksNobodyOnceItIsGivenUp) {
  Job job;
  job.member("a").fingerprint = 8;
  job.hear("a");
  expect_error(ErrorCode::kFailedPrecondition, "'b' was started with other arguments",
               [&] { job.hear("b"); });
  job.now += 11s;
  for (const char* name : {"b", "c", "d"}) job.hear(name);
  EXPECT_EQ(job.workers(), (Names{"b", "c", "d"}));
  EXPECT_THROW(job.hear("a"), Error);
}

TEST(Membership, GoesOnFromItsJournal) {
  Job job;
  job.begin({"a", "b", "c"}, 4);
  const Bytes kept = journal_bytes(job.hub.journal());
  Job again(kLimits, kept);
  again.members = job.members;
  EXPECT_EQ(again.hub.list(again.now).phase, JobPhase::kRuns);
  EXPECT_EQ(again.workers(), (Names{"a", "b", "c"}));
  again.hear("a");
  again.hear("b");
  again.now += 9s;
  again.hear("a");
  again.hear("b");
  again.now += 2s;  // c did not come back
  again.hear("a");
  EXPECT_EQ(again.hub.list(again.now).phase, JobPhase::kGathers);
  again.stop("a");
  again.stop("b");
  EXPECT_EQ(again.hub.list(again.now).base, (Boundary{1, 4}));
  EXPECT_EQ(again.workers(), (Names{"a", "b"}));
  again.hub.end("a test");
  EXPECT_THROW(Job(kLimits, journal_bytes(again.hub.journal())), Error);  // that job is over
}

TEST(Membership, LetsNewcomersInPastMultiplesOfStepsAndWhoLeavesAtOnce) {
  MembershipLimits limits = kLimits;
  limits.join_steps = 10;
  Job job(limits);
  const auto work = [&](std::uint64_t step) {
    for (const char* name : {"a", "b", "c"}) job.work(name, step);
  };
  job.begin({"a", "b", "c"}, 4);
  job.hear("d");
  EXPECT_FALSE(job.hub.list(job.now).closes);
  work(9);
  EXPECT_EQ(job.hub.list(job.now).phase, JobPhase::kRuns);
  work(11);
  EXPECT_EQ(job.hub.list(job.now).phase, JobPhase::kGathers);
  for (const char* name : {"a", "b", "c"}) job.stop(name);
  EXPECT_EQ(job.workers(), (Names{"a", "b", "c", "d"}));
  for (const char* name : {"a", "b", "c", "d"}) job.work(name, 11);
  job.member("d").leaving = true;
  job.hear("d");
  EXPECT_TRUE(job.hub.list(job.now).closes);
  for (const char* name : {"a", "b", "c", "d"}) job.work(name, 12);
  EXPECT_EQ(job.hub.list(job.now).phase, JobPhase::kGathers);
}

// How long a silent member of a job is waited for, whose others speak as often as this.
MemberList silent_where_others_speak_every(Clock::duration apart, Clock::duration silence) {
  MembershipLimits limits = kLimits;
  limits.deadline = {};
  Job job(limits);
  job.begin({"a", "b", "c"}, 4);
  for (int i = 0; i < 100; ++i) {
    job.now += apart;
    for (const char* name : {"a", "b", "c"}) job.hear(name);
  }
  for (const Clock::time_point end = job.now + silence; job.now < end;) {
    job.now += std::min(apart, end - job.now);
    for (const char* name : {"a", "c"}) job.hear(name);
  }
  return job.hub.list(job.now);
}

TEST(Membership, GivesWhoIsSilentUpAfterWhatSilencesWereBefore) {
  EXPECT_EQ(silent_where_others_speak_every(250ms, 9900ms).phase, JobPhase::kRuns);
  const MemberList list = silent_where_others_speak_every(250ms, 10s);
  EXPECT_EQ(list.phase, JobPhase::kGathers);
  EXPECT_EQ(list.reason,
            "'b' has not been heard for 10 s, where 99 of 100 signs of life came within 0.25 s of "
            "the last (20 times that, from 10 to 120 s)");
  EXPECT_EQ(silent_where_others_speak_every(2s, 39900ms).phase, JobPhase::kRuns);
  EXPECT_EQ(silent_where_others_speak_every(2s, 40s).phase, JobPhase::kGathers);
  EXPECT_EQ(silent_where_others_speak_every(10s, 119900ms).phase, JobPhase::kRuns);
  EXPECT_EQ(silent_where_others_speak_every(10s, 120s).phase, JobPhase::kGathers);
}

TEST(Membership, WaitsHalfAMinuteWhereItKnowsOfFewSilences) {
  MembershipLimits limits = kLimits;
  limits.deadline = {};
  Job job(limits);
  job.begin({"a", "b", "c"}, 4);
  job.now += 29900ms;
  job.hear("a");
  job.hear("c");
  EXPECT_EQ(job.hub.list(job.now).phase, JobPhase::kRuns);
  job.now += 100ms;
  job.hear("a");
  const std::string reason = job.hear("c").reason;
  EXPECT_NE(reason.find("30 s, the limit until"), std::string::npos) << reason;
}

TEST(SilenceLimit, ForgetsWhatWasLongAgo) {
  SilenceLimit limit({});
  for (int i = 0; i < 10000; ++i) limit.note(5s);
  EXPECT_EQ(limit.limit(), SilenceLimit::Duration(100s));
  for (int i = 0; i < 9800; ++i) limit.note(1s);
  EXPECT_EQ(limit.limit(), SilenceLimit::Duration(100s));
  for (int i = 0; i < 200; ++i) limit.note(1s);
  EXPECT_EQ(limit.limit(), SilenceLimit::Duration(20s));
}

TEST(Membership, RefusesLimitsThatMakeNoSense) {
  for (const MembershipLimits& limits : {MembershipLimits{.first = 1, .least = 2, .most = 2},
                                         {.first = 2, .least = 0, .most = 2},
                                         {.first = 3, .least = 1, .most = 2},
                                         {.first = 1, .least = 1, .most = 5000},
                                         {.first = 1, .least = 1, .most = 1, .deadline = 0ms},
                                         {.first = 1, .least = 1, .most = 1, .join_steps = 0}}) {
    EXPECT_THROW(Job{limits}, Error);
  }
}

MemberSays some_member() {
  return {.name = "node-1",
          .incarnation = 1234567890123,
          .fingerprint = 42,
          .phase = MemberPhase::kWorks,
          .leaving = true,
          .over = false,
          .hangs = true,
          .generation = 3,
          .held = {{{2, 9}, 0.5}, {{3, 9}, 0}},
          .reason = "why"};
}

TEST(MemberRecords, ANormIsANumberThatAResidualCanHave) {
  MemberSays says = some_member();
  for (const double norm : {-1.0, 1e101, std::nan(""), HUGE_VAL}) {
    says.held[1].undelivered = norm;
    expect_error(ErrorCode::kDataLoss, "where a norm belongs",
                 [&] { parse_member(member_data(says)); });
  }
}

TEST(MemberRecords, AreReadAsTheyWereWritten) {
  EXPECT_EQ(parse_member(member_data(some_member())), some_member());
  EXPECT_EQ(parse_member(member_data({})), MemberSays());
  Job job;
  job.begin({"a", "b", "c"}, 4);
  job.hear("d");
  const MemberList list = job.hub.list(job.now);
  EXPECT_EQ(parse_list(list_data(list)), list);
  EXPECT_EQ(parse_journal(journal_bytes(job.hub.journal())), job.hub.journal());
}

// All that it began with say so: not one of them alone, and nobody twice.
TEST(Membership, AJobThatAllFindDoneIsDone) {
  Job job;
  for (const char* name : {"a", "b", "b"}) {
    job.hub.find_done(name, job.now);
    EXPECT_EQ(job.hub.list(job.now).phase, JobPhase::kGathers);
  }
  EXPECT_THROW(job.hub.find_done("3", job.now), Error);
  job.hub.find_done("c", job.now);
  EXPECT_EQ(job.hub.list(job.now).phase, JobPhase::kDone);
  EXPECT_TRUE(job.hub.is_over(job.now));
  EXPECT_NO_THROW(job.hub.find_done("d", job.now));
  Job begun;
  begun.begin({"a", "b", "c"}, 4);
  EXPECT_THROW(begun.hub.find_done("a", begun.now), Error);
}

TEST(Membership, WhoIsPutOutIsGivenUpAtOnce) {
  Job job;
  job.begin({"a", "b", "c"}, 4);
  const std::uint64_t number = job.hub.list(job.now).members.at(2).incarnation;
  job.hub.put_out({.name = "c", .incarnation = number + 1}, "why", job.now);
  EXPECT_EQ(job.hub.list(job.now).phase, JobPhase::kRuns);
  job.hub.put_out({.name = "c", .incarnation = number}, "why", job.now);
  EXPECT_EQ(job.hub.list(job.now).phase, JobPhase::kGathers);
  EXPECT_EQ(job.hub.list(job.now).reason, "'c' is removed: why");
}

// What it is given it cannot take, and each time the generation fails.
TEST(Membership, TurnsAwayWhoStopsTheOthersAgainAndAgain) {
  Job job;
  job.begin({"a", "b", "c"});
  job.hear("d");
  job.hub.end_generation("'d' joins");
  for (int i = 0; i < 5; ++i) {
    job.stop_all({"a", "b", "c"});
    ASSERT_EQ(job.workers(), (Names{"a", "b", "c", "d"}));
    for (const char* name : {"a", "b", "c", "d"}) {
      job.member(name).generation = job.hub.list(job.now).generation;
      job.member(name).over = false;
    }
    job.hub.end_generation("it announces too much");
    job.stop("d");
  }
  job.stop_all({"a", "b", "c"});
  EXPECT_EQ(job.workers(), (Names{"a", "b", "c"}));
  expect_error(ErrorCode::kFailedPrecondition,
               "turned away after 5 attempts: it announces too much", [&] { job.hear("d"); });
  for (const char* name : {"a", "b", "c"}) job.work(name, 2);
  EXPECT_TRUE(job.hub.list(job.now).waiting.empty());
  // Another process of that name is another matter.
  job.member("d").incarnation = 5;
  job.member("d").generation = 0;
  job.member("d").over = false;
  job.now += 11s;
  for (const char* name : {"a", "b", "c", "d"}) job.hear(name);
  EXPECT_EQ(job.hub.list(job.now).waiting.size(), 1U);
}

TEST(RankJournal, IsReadAsItWasWritten) {
  const std::vector<RankRecord> ranks{{.incarnation = 7, .left = true}, {}, {.incarnation = 0}};
  const Bytes bytes = journal_bytes(ranks);
  EXPECT_EQ(parse_rank_journal(bytes), ranks);
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    Bytes damaged = bytes;
    damaged[at] ^= std::byte{4};
    EXPECT_THROW(parse_rank_journal(damaged), Error) << at;
  }
  // One kind is not the other.
  EXPECT_THROW(parse_journal(bytes), Error);
  EXPECT_THROW(parse_rank_journal(journal_bytes(Journal())), Error);
}

TEST(MemberRecords, SayWhatHasPassed) {
  Job job;
  job.begin({"a", "b", "c"}, 4);
  job.hear("d");
  MemberList list = job.hub.list(job.now);
  list.members[1].traffic = {1, 2, 3, 4, 5};
  list.waiting.at(0).traffic = {.sent_bytes = 6};
  MemberList read = parse_list(list_data(list));
  parse_traffic(traffic_data(list), read);
  EXPECT_EQ(read, list);
  const Bytes bytes = traffic_data(list);
  EXPECT_THROW(parse_traffic(ByteView(bytes).first(bytes.size() - 1), read), Error);
  read.waiting.clear();
  EXPECT_THROW(parse_traffic(bytes, read), Error);
}

TEST(TrafficMeter, HasTheRatesOfTheLastTenSeconds) {
  TrafficMeter meter;
  TrafficMeter::Clock::time_point now{};
  EXPECT_EQ(meter.traffic(now), Traffic());
  meter.tick(now);
  for (int i = 0; i < 4 * 60; ++i) {
    now += 250ms;
    meter.add_sent(i < 4 * 30 ? 1000 : 50, now);
    meter.add_received(10);
    meter.tick(now);
  }
  const Traffic traffic = meter.traffic(now + 3s);
  EXPECT_EQ(traffic.sent_bytes, 120U * 1000 + 120 * 50);
  EXPECT_EQ(traffic.received_bytes, 2400U);
  // Nothing of when it sent more, and of 13 s three without anything.
  EXPECT_EQ(traffic.sent_rate, 40U * 50 / 13);
  EXPECT_EQ(traffic.received_rate, 400U / 13);
  EXPECT_EQ(traffic.quiet_ms, 3000U);
}

TEST(MemberRecords, CutOffOrChangedAreRefusedOrMeanSomethingElse) {
  Job job;
  job.begin({"a", "b", "c"}, 4);
  const Bytes member = member_data(some_member());
  const Bytes list = list_data(job.hub.list(job.now));
  const Bytes journal = journal_bytes(job.hub.journal());
  for (std::size_t size = 0; size < member.size(); ++size) {
    EXPECT_THROW(parse_member(ByteView(member).first(size)), Error) << size;
  }
  for (std::size_t size = 0; size < list.size(); ++size) {
    EXPECT_THROW(parse_list(ByteView(list).first(size)), Error) << size;
  }
  for (std::size_t at = 0; at < journal.size(); ++at) {
    Bytes damaged = journal;
    damaged[at] ^= std::byte{4};
    EXPECT_THROW(parse_journal(damaged), Error) << at;
  }
}

TEST(MemberRecords, RolesAreWhereTheyBelong) {
  Job job(kWithServers);
  job.begin({"x", "y", "server1", "server2"}, 1);
  job.hear("server3");
  for (const char* name : {"x", "y", "server1", "server2"}) job.work(name, 2);
  job.stop_all({"x", "y", "server1", "server2"});
  const MemberList list = job.hub.list(job.now);
  ASSERT_EQ(list.base_servers, 2U);
  EXPECT_EQ(parse_list(list_data(list)), list);
  const auto is_refused = [&](const auto& change) {
    MemberList wrong = list;
    change(wrong);
    EXPECT_THROW(parse_list(list_data(wrong)), Error);
  };
  is_refused([](MemberList& wrong) { wrong.members[0].serves = true; });
  is_refused([](MemberList& wrong) { wrong.members[3].serves = false; });
  is_refused([](MemberList& wrong) { wrong.servers = 3; });
  is_refused([](MemberList& wrong) { wrong.workers = wrong.servers = 0xffffffff; });
  is_refused([](MemberList& wrong) { wrong.base_servers = 1; });
  is_refused([](MemberList& wrong) { wrong.base_servers = 0xffffffff; });
  is_refused([](MemberList& wrong) { wrong.base_workers = 3; });
  MemberSays says = some_member();
  says.serves = true;
  says.servers = 0;
  EXPECT_THROW(parse_member(member_data(says)), Error);
  says.servers = 3;
  EXPECT_EQ(parse_member(member_data(says)), says);
  Journal journal = job.hub.journal();
  EXPECT_EQ(parse_journal(journal_bytes(journal)), journal);
  journal.rolls.at(2).places[0].serves = true;
  EXPECT_THROW(parse_journal(journal_bytes(journal)), Error);
}

TEST(MemberRecords, AListKnowsTheRankOfAProcess) {
  MemberList list;
  list.members = {{.name = "b", .incarnation = 7}, {.name = "a", .incarnation = 5}};
  list.waiting = {{.name = "c", .incarnation = 6}};
  EXPECT_EQ(list.rank_of(7), 0);
  EXPECT_EQ(list.rank_of(5), 1);
  EXPECT_EQ(list.rank_of(6), std::nullopt);
}

TEST(MemberRecords, NamesAreNoRanksAndNoPaths) {
  for (const char* name : {"a", "node-3", "3a", "a-"}) EXPECT_TRUE(is_member_name(name)) << name;
  for (const char* name : {"", "3", "hub", "A", "a/b", "a b", "a.b"}) {
    EXPECT_FALSE(is_member_name(name)) << name;
  }
  EXPECT_TRUE(is_member_name(std::string(40, 'a')));
  EXPECT_FALSE(is_member_name(std::string(41, 'a')));
  EXPECT_NO_THROW(check_member_name("node-3"));
  expect_error(ErrorCode::kInvalidArgument, "'hub' is not a valid member name; use 1 to 40 letters",
               [] { check_member_name("hub"); });
  MemberSays says = some_member();
  says.name = "17";
  EXPECT_THROW(parse_member(member_data(says)), Error);
  // But of one that takes no part.
  says.phase = MemberPhase::kFoundDone;
  EXPECT_EQ(parse_member(member_data(says)), says);
  says.name.clear();
  EXPECT_THROW(parse_member(member_data(says)), Error);
}

}  // namespace
}  // namespace tersewire
