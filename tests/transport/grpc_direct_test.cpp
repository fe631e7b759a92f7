// Direct connections between nodes of the transport grpc, past the hub: the same messages as
// through it, whatever breaks, and nobody at a node's port who would not get in at the hub's.
#include <arpa/inet.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>

#include "both_ways.h"
#include "cutting_proxy.h"
#include "ends.h"
#include "expect_error.h"
#include "grpc_batch.h"
#include "grpc_certificates.h"
#include "grpc_credentials.h"
#include "grpc_end.h"
#include "hub_door.h"
#include "network_ends.h"
#include "tersewire/grpc_members.h"
#include "transport_cases.h"

namespace tersewire {
namespace {

using test::end_all;
using transport_cases::pattern;
using transport_cases::same;

using Ends = std::vector<std::unique_ptr<Transport>>;

constexpr const char* kAnyPort = "127.0.0.1:0";
// Nobody listens there.
constexpr const char* kNowhere = "127.0.0.1:1";
// Where nodes are that are reached through a proxy, which has the same port of 127.0.0.1. Nothing
// else is at this address: grpc_security_test takes thousands of ports of 127.0.0.2.
constexpr const char* kBehind = "127.0.0.3:";
constexpr std::uint32_t kBehindHost = 0x7f000003;

int port_of(const std::string& address) {
  return std::stoi(address.substr(address.rfind(':') + 1));
}

// Where a node listens, and where others find it; empty: it does not, and there.
struct Place {
  std::string direct;
  std::string forwarded = {};
};

Place behind(const CuttingProxy& proxy) {
  return {.direct = kBehind + std::to_string(proxy.port()), .forwarded = proxy.address()};
}

using SecurityOf = std::function<GrpcSecurity(int rank)>;

Ends join_all(const std::vector<std::string>& hubs, const std::vector<Place>& places,
              const SecurityOf& security_of = {}) {
  const int ranks = static_cast<int>(places.size());
  std::vector<GrpcSecurity> security(places.size());
  for (int rank = 0; rank < ranks && security_of; ++rank) {
    security[static_cast<std::size_t>(rank)] = security_of(rank);
  }
  return test::join_all(ranks, [&](int rank) -> std::unique_ptr<Transport> {
    const auto at = static_cast<std::size_t>(rank);
    const GrpcNode node{.rank = rank,
                        .nodes = ranks,
                        .direct = places[at].direct,
                        .forwarded = places[at].forwarded};
    return std::make_unique<GrpcEnd>(hubs[at % hubs.size()], node, security[at],
                                     WaitLimits{.deadline = 60s});
  });
}

// One message of each rank to every other.
void send_around(const Ends& ends, std::size_t bytes) {
  for (const auto& end : ends) {
    const SharedBytes message = pattern(bytes, static_cast<std::uint64_t>(end->rank()));
    for (int to = 0; to < end->size(); ++to) {
      if (to != end->rank()) end->send(to, message);
    }
  }
  for (const auto& end : ends) {
    for (int i = 1; i < end->size(); ++i) {
      const auto incoming = end->receive(60s);
      ASSERT_TRUE(incoming);
      EXPECT_TRUE(
          same(incoming->bytes, pattern(bytes, static_cast<std::uint64_t>(incoming->from))));
    }
  }
}

// Waits until nothing but what is said to the hub passes the proxy before it.
void await_direct(const Ends& ends, const CuttingProxy& before_hub) {
  constexpr std::size_t kBytes = 100000;
  const auto end = std::chrono::steady_clock::now() + 60s;
  for (std::uint64_t before = 0; std::chrono::steady_clock::now() < end;) {
    before = before_hub.carried();
    send_around(ends, kBytes);
    if (testing::Test::HasFatalFailure()) return;
    if (before_hub.carried() - before < kBytes) return;
  }
  FAIL() << "messages still pass the hub";
}

// Whether the hub says it within a time that is enough on any machine.
bool says(GrpcHub& hub, const std::string& what) {
  for (int looks = 0; looks < 600; ++looks) {
    for (const std::string& event : hub.take_events()) {
      if (event.find(what) != std::string::npos) return true;
    }
    std::this_thread::sleep_for(50ms);
  }
  return false;
}

// --- The promises of every transport.

class GrpcDirectCases : public testing::TestWithParam<TransportCase> {};

// While the nodes are only about to find each other.
TEST_P(GrpcDirectCases, FromTheStart) {
  for (const int ranks : {2, 3, 5}) {
    SCOPED_TRACE(ranks);
    const GrpcHub hub("127.0.0.1:0", ranks);
    auto ends = join_all({hub.address()},
                         std::vector<Place>(static_cast<std::size_t>(ranks), {.direct = kAnyPort}));
    run_on_all(ends, GetParam());
    end_all(ends);
    EXPECT_TRUE(hub.wait(30s));
  }
}

TEST_P(GrpcDirectCases, DirectAlone) {
  const GrpcHub hub("127.0.0.1:0", 3);
  CuttingProxy before_hub(port_of(hub.address()));
  auto ends = join_all({before_hub.address()}, std::vector<Place>(3, {.direct = kAnyPort}));
  ASSERT_NO_FATAL_FAILURE(await_direct(ends, before_hub));
  run_on_all(ends, GetParam());
  end_all(ends);
}

// Two that listen, one that only dials, one that nobody reaches.
TEST_P(GrpcDirectCases, BesideRelayedPairs) {
  const GrpcHub hub("127.0.0.1:0", 4);
  auto ends = join_all({hub.address()}, {{.direct = kAnyPort},
                                         {},
                                         {.direct = kAnyPort, .forwarded = kNowhere},
                                         {.direct = kAnyPort}});
  run_on_all(ends, GetParam());
  end_all(ends);
  EXPECT_TRUE(hub.wait(30s));
}

INSTANTIATE_TEST_SUITE_P(Transport, GrpcDirectCases, testing::ValuesIn(kTransportCases), case_name);

// --- Connections that break.

// Two ranks, a proxy before each one's hub, and one between them: rank 1 dials.
struct Cuttable {
  Cuttable() { await_direct(ends, hubs[0]); }
  ~Cuttable() { end_all(ends); }

  GrpcHub hub{"127.0.0.1:0", 2};
  std::array<CuttingProxy, 2> hubs{CuttingProxy(port_of(hub.address())),
                                   CuttingProxy(port_of(hub.address()))};
  CuttingProxy between{kBehindHost, 0};
  Ends ends = join_all({hubs[0].address(), hubs[1].address()}, {behind(between), {}});
};

TEST(GrpcDirect, ANodeThatOnlyDialsIsSpokenToDirect) {
  Cuttable network;
  EXPECT_GE(network.between.connections(), 1);
  const std::uint64_t before = network.between.carried();
  send_around(network.ends, 1000000);
  EXPECT_GT(network.between.carried() - before, 2000000U);
}

TEST(GrpcDirect, GoesOnWhileTheHubIsAway) {
  Cuttable network;
  for (CuttingProxy& proxy : network.hubs) {
    proxy.refuse(true);
    proxy.cut();
  }
  send_around(network.ends, 300000);
  send_around(network.ends, 0);
  for (CuttingProxy& proxy : network.hubs) proxy.refuse(false);
}

TEST(GrpcDirect, LosesAndRepeatsNothingWhereverItIsCut) {
  Cuttable network;
  std::uint64_t cut = 1;
  test::exchange_both_ways(network.ends, 400, 300000, [&](int sent) {
    if (sent % 40 != 10) return;
    // The next one is cut, too, in a handshake, a head, a chunk; now and then the hub's as well.
    // One that comes to nothing by itself is not the last, or the pauses between attempts would
    // grow.
    const int more = cut < 1000 ? 2 : 1;
    network.between.cut_next_after(cut);
    cut = cut * 4 + 7;
    const int before = network.between.connections();
    network.between.cut();
    if (sent % 120 == 50) network.hubs.at(static_cast<std::size_t>(sent / 120 % 2)).cut();
    while (network.between.connections() < before + more) std::this_thread::sleep_for(1ms);
  });
  await_direct(network.ends, network.hubs[0]);
  EXPECT_GE(network.between.connections(), 1 + 10 + 5);
}

TEST(GrpcDirect, GoesBackToTheHubWhereTheConnectionStaysAway) {
  Cuttable network;
  network.between.refuse(true);
  test::exchange_both_ways(network.ends, 60, 2000000, [&](int sent) {
    if (sent == 30) network.between.cut();
  });
  network.between.refuse(false);
  await_direct(network.ends, network.hubs[0]);
}

// It is not closed: only nothing comes any more.
TEST(GrpcDirect, GoesBackToTheHubWhereNothingIsHandedOn) {
  Cuttable network;
  test::exchange_both_ways(network.ends, 60, 2000000, [&](int sent) {
    if (sent == 30) network.between.hold(true);
  });
  network.between.hold(false);
  await_direct(network.ends, network.hubs[0]);
}

// Each time the connection comes and goes all is sent again, and the hub cannot hand it on.
TEST(GrpcDirect, ComesAndGoesWithoutFillingTheHub) {
  Cuttable network;
  constexpr std::size_t kBytes = 7000000;
  network.between.refuse(true);
  network.between.cut();
  network.hubs[1].hold(true);
  network.ends[0]->send(1, pattern(kBytes, 1));
  network.between.refuse(false);
  for (int i = 0; i < 4; ++i) {
    network.between.cut_next_after(2000);  // a hello and its answer's beginning
    const int before = network.between.connections();
    while (network.between.connections() == before) std::this_thread::sleep_for(1ms);
  }
  network.between.refuse(true);
  network.hubs[1].hold(false);
  const auto incoming = network.ends[1]->receive(60s);
  ASSERT_TRUE(incoming);
  EXPECT_TRUE(same(incoming->bytes, pattern(kBytes, 1)));
}

TEST(GrpcDirect, SaysOnceWhoIsNotReached) {
  GrpcHub hub("127.0.0.1:0", 3);
  auto ends = join_all({hub.address()}, {{.direct = kAnyPort, .forwarded = kNowhere}, {}, {}});
  int said = 0;
  for (int looks = 0; looks < 600 && said < 2; ++looks) {
    send_around(ends, 1000);
    for (const std::string& event : hub.take_events()) {
      said += event.find("cannot reach rank 0 directly, at 127.0.0.1:1") != std::string::npos;
    }
    std::this_thread::sleep_for(50ms);
  }
  EXPECT_EQ(said, 2);  // of rank 1 and rank 2
  end_all(ends);
  for (const std::string& event : hub.take_events()) {
    EXPECT_EQ(event.find("cannot reach"), std::string::npos) << event;
  }
}

TEST(GrpcDirect, DeliversWhatWasSentBeforeItsSenderLeft) {
  Cuttable network;
  constexpr std::size_t kBytes = std::size_t{30} << 20;
  network.ends[0]->send(1, pattern(kBytes, 5));
  auto leaving = std::async(std::launch::async, [&] { network.ends[0].reset(); });
  const auto incoming = network.ends[1]->receive(60s);
  ASSERT_TRUE(incoming);
  EXPECT_TRUE(same(incoming->bytes, pattern(kBytes, 5)));
  leaving.get();
  while (!network.ends[1]->peer(0).gone) std::this_thread::sleep_for(1ms);
}

// The hub counts what passes it by, as its nodes tell it.
TEST(GrpcDirect, TheHubKnowsWhatPassesItBy) {
  Cuttable network;
  const auto traffic = [&] { return network.hub.status().members.at(0).traffic; };
  const Traffic before = traffic();
  for (int i = 0; i < 5; ++i) send_around(network.ends, 2000000);
  const auto is_told = [&] {
    return traffic().sent_bytes - before.sent_bytes >= 10000000 &&
           traffic().received_bytes - before.received_bytes >= 10000000;
  };
  for (int looks = 0; looks < 600 && !is_told(); ++looks) std::this_thread::sleep_for(50ms);
  EXPECT_TRUE(is_told());
  EXPECT_LT(traffic().sent_bytes - before.sent_bytes, 11000000U);
  EXPECT_LT(traffic().received_bytes - before.received_bytes, 11000000U);
}

// --- Strangers.

// A job of three ranks over TLS, of which rank 0 listens at `direct`.
struct SecureJob {
  explicit SecureJob(const Place& place) {
    ends = join_all({hub_of(0).address(), hub_of(1).address()}, {place, {}, {}},
                    [this](int rank) { return certificates.of(static_cast<std::uint32_t>(rank)); });
  }
  CuttingProxy& hub_of(std::size_t rank) { return hubs.at(rank); }

  TestCertificates certificates{"ours"};
  const std::string directory = certificates.of(std::nullopt).certificates;
  GrpcHub hub{"127.0.0.1:0", 3, {.certificates = directory}};
  std::array<CuttingProxy, 2> hubs{CuttingProxy(port_of(hub.address())),
                                   CuttingProxy(port_of(hub.address()))};
  Ends ends;
};

// What a node's port answers to this batch of who dials it, as rank 0's unless said otherwise.
grpc::Status dial(const std::string& address, const GrpcSecurity& security, const Bytes& batch,
                  const char* method = kPeerMethod,
                  const Identity& expected = {.job = "ours", .rank = 0}) {
  const grpc::Slice slice(batch.data(), batch.size());
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 30s);
  grpc::GenericStub stub(channel_to(address, security, expected));
  std::promise<grpc::Status> done;
  stub.UnaryCall(&context, method, {}, &request, &response,
                 [&](const grpc::Status& status) { done.set_value(status); });
  return done.get_future().get();
}

Bytes record(const RecordHead& head, const Bytes& data, bool secure = true) {
  const RecordHead whole = sealed(head, data, secure);
  Bytes bytes(sizeof(whole));
  std::memcpy(bytes.data(), &whole, sizeof(whole));
  bytes.insert(bytes.end(), data.begin(), data.end());
  return bytes;
}

Bytes hello(std::uint32_t from, std::uint64_t incarnation = 7, bool secure = true) {
  return record({.kind = RecordKind::kHello, .from = from, .to = 0},
                hello_data({.incarnation = incarnation, .ranks = 3}), secure);
}

void expect_status(const grpc::Status& status, grpc::StatusCode code,
                   const std::string& what = "") {
  EXPECT_EQ(status.error_code(), code) << status.error_message();
  EXPECT_NE(status.error_message().find(what), std::string::npos) << status.error_message();
}

TEST(GrpcDirectSecurity, StrangersDoNotGetIn) {
  using enum grpc::StatusCode;
  CuttingProxy between(kBehindHost, 0);
  SecureJob job(behind(between));
  const std::string address = between.address();
  TestCertificates other("theirs");
  TestCertificates same_name("ours");
  const std::string& trusted = job.certificates.authority().certificate;
  // Without any; of another job; of another authority with the same name; that has expired; of one
  // authority for two jobs; the hub's.
  expect_status(dial(address, {}, hello(1, 7, false)), UNAVAILABLE);
  expect_status(dial(address, other.of(1), hello(1)), UNAVAILABLE);
  expect_status(dial(address, other.of({"ours", 1}, trusted), hello(1)), UNAVAILABLE);
  expect_status(dial(address, same_name.of({"ours", 1}, trusted), hello(1)), UNAVAILABLE);
  expect_status(dial(address, job.certificates.of(1, -3600s), hello(1)), UNAVAILABLE);
  expect_status(dial(address, job.certificates.of({"another", 1}, trusted), hello(1)),
                PERMISSION_DENIED, "its certificate is of job 'another', not of 'ours'");
  expect_status(dial(address, job.certificates.of(std::nullopt), hello(1)), UNAVAILABLE);
  // Of a rank that is not theirs, or another process of one that is.
  expect_status(dial(address, job.certificates.of(2), hello(1)), PERMISSION_DENIED,
                "its certificate is that of rank 2, not of rank 1");
  expect_status(dial(address, job.certificates.of(1), hello(1)), UNAVAILABLE,
                "the hub has not announced this process to rank 0 as rank 1");
  // What is no hello.
  expect_status(dial(address, job.certificates.of(1), hello(0)), INVALID_ARGUMENT);
  expect_status(dial(address, job.certificates.of(1), hello(99)), INVALID_ARGUMENT);
  expect_status(dial(address, job.certificates.of(1), Bytes(70, std::byte{9})), INVALID_ARGUMENT);
  expect_status(dial(address, job.certificates.of(1), {}), INVALID_ARGUMENT);
  const Bytes one = hello(1);
  Bytes two = one;
  two.insert(two.end(), one.begin(), one.end());
  expect_status(dial(address, job.certificates.of(1), two), INVALID_ARGUMENT,
                "a hello must come alone");
  expect_status(dial(address, job.certificates.of(1),
                     record({.kind = RecordKind::kState, .from = 1, .to = 0}, {})),
                INVALID_ARGUMENT);
  expect_status(dial(address, job.certificates.of(1), hello(1), kExchangeMethod), UNIMPLEMENTED);
  // A node is no hub.
  expect_error(ErrorCode::kUnavailable, "cannot reach the hub",
               [&] { join_grpc_network(address, 1, 3, job.certificates.of(1), {.deadline = 1s}); });
  send_around(job.ends, 100000);
  end_all(job.ends);
}

// --- Members that come and go: their certificates are for names.

constexpr const char* kNames[] = {"a", "b", "c"};

// Three of them over TLS in a first generation, all by one way to the hub. Rank 0 listens at a port
// that it keeps, the others at any.
struct NamedJob {
  NamedJob() {
    for (const char* const name : kNames) {
      const std::string direct =
          name == kNames[0] ? kBehind + std::to_string(before_hub.port()) : std::string(kAnyPort);
      members.push_back(
          std::make_unique<GrpcMember>(GrpcMember::Settings{.hub = before_hub.address(),
                                                            .name = name,
                                                            .fingerprint = 1,
                                                            .security = of(name),
                                                            .limits = {.deadline = 60s},
                                                            .direct = direct}));
    }
    join(1);
  }
  ~NamedJob() { end_all(ends); }

  GrpcSecurity of(const std::string& name) {
    return certificates.of({"ours", std::nullopt, name}, certificates.authority().certificate);
  }
  // The network of a generation; its members hold what they begin with.
  void join(std::uint32_t generation) {
    end_all(ends);
    ends = test::join_all(static_cast<int>(members.size()), [&](int rank) {
      GrpcMember& member = *members[static_cast<std::size_t>(rank)];
      return member.join(member.await(generation - 1));
    });
    for (const auto& member : members) member->holds({{generation, generation}});
  }

  TestCertificates certificates{"ours"};
  GrpcHub hub{"127.0.0.1:0",
              MembershipLimits{.first = 3, .least = 1, .most = 3, .deadline = 60s},
              {},
              certificates.of(std::nullopt)};
  CuttingProxy before_hub{port_of(hub.address())};
  std::vector<std::unique_ptr<GrpcMember>> members;
  Ends ends;
};

TEST(GrpcDirectMembers, TalkDirectInEveryGeneration) {
  NamedJob job;
  ASSERT_NO_FATAL_FAILURE(await_direct(job.ends, job.before_hub));
  job.members[2]->leave();
  // A generation ends after a state that begins once the hub knows who leaves.
  while (!job.members[0]->look().closes) std::this_thread::sleep_for(10ms);
  for (const auto& member : job.members) member->holds({{1, 1}, {1, 2}});
  for (const auto& member : job.members) {
    member->await_end(1);
    member->end(1, "");
  }
  job.join(2);  // with the one that leaves, which hands over what it has
  ASSERT_NO_FATAL_FAILURE(await_direct(job.ends, job.before_hub));
}

TEST(GrpcDirectMembers, TurnAwayWhoHasAnotherName) {
  using enum grpc::StatusCode;
  NamedJob job;
  const std::string address = kBehind + std::to_string(job.before_hub.port());
  const auto dialed = [&](const GrpcSecurity& security, const Identity& expected) {
    const Bytes bytes = record({.kind = RecordKind::kHello, .generation = 1, .from = 1, .to = 0},
                               hello_data({.incarnation = 7, .ranks = 3}));
    return dial(address, security, bytes, kPeerMethod, expected);
  };
  const Identity a{.job = "ours", .rank = std::nullopt, .name = "a"};
  expect_status(dialed(job.of("c"), a), PERMISSION_DENIED,
                "its certificate is that of 'c', not of 'b'");
  expect_status(dialed(job.certificates.of(1), a), PERMISSION_DENIED,
                "its certificate is that of rank 1, not of 'b'");
  expect_status(dialed(job.of("b"), a), UNAVAILABLE,
                "the hub has not announced this process to 'a' as 'b'");
  // Who dials looks for a name, too.
  expect_status(dialed(job.of("b"), {.job = "ours", .rank = std::nullopt, .name = "c"}),
                UNAVAILABLE);
  send_around(job.ends, 100000);
}

TEST(GrpcDirectMembers, AreRefusedWhereTheyCannotListen) {
  const GrpcHub hub("127.0.0.1:0", MembershipLimits{}, {});
  const auto make = [&](const std::string& direct) {
    const GrpcMember member({.hub = hub.address(),
                             .name = "a",
                             .fingerprint = 1,
                             .security = {},
                             .limits = {},
                             .direct = direct});
  };
  expect_error(ErrorCode::kUnavailable, "cannot listen at", [&] { make(hub.address()); });
  expect_error(ErrorCode::kInvalidArgument, "'127.0.0.1:port' is not an address; write HOST:PORT",
               [&] { make("127.0.0.1:port"); });
  expect_error(ErrorCode::kInvalidArgument, "not on this machine's loopback",
               [&] { make("192.0.2.1:0"); });
}

// As where a process ends right afterwards.
TEST(GrpcMembers, TheHubKnowsWhoHasGivenUp) {
  const GrpcHub hub("127.0.0.1:0", MembershipLimits{}, {});
  GrpcMember member(
      {.hub = hub.address(), .name = "a", .fingerprint = 1, .security = {}, .limits = {}});
  EXPECT_EQ(member.await(0).generation, 1U);
  member.give_up("the disk is full");
  EXPECT_NE(hub.aborted().find("the disk is full"), std::string::npos) << hub.aborted();
}

// Where another node listens than the hub said, whoever dials turns away.
TEST(GrpcDirectSecurity, NobodyListensForAnotherRank) {
  CuttingProxy between(kBehindHost, 0);
  TestCertificates certificates("ours");
  GrpcHub hub("127.0.0.1:0", 3, certificates.of(std::nullopt));
  // Rank 0 is said to be where rank 1 is.
  auto ends = join_all({hub.address()},
                       {{.direct = kAnyPort, .forwarded = between.address()},
                        {.direct = kBehind + std::to_string(between.port())},
                        {}},
                       [&](int rank) { return certificates.of(static_cast<std::uint32_t>(rank)); });
  EXPECT_TRUE(says(hub, "rank 2 cannot reach rank 0 directly"));
  send_around(ends, 100000);
  end_all(ends);
}

TEST(GrpcDirectSecurity, HalfOpenConnectionsAndGarbageDisturbNobody) {
  CuttingProxy between(kBehindHost, 0);
  SecureJob job(behind(between));
  const auto connect = [&] {
    sockaddr_in far{};
    far.sin_family = AF_INET;
    far.sin_addr.s_addr = htonl(kBehindHost);
    far.sin_port = htons(static_cast<std::uint16_t>(between.port()));
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(::connect(socket, reinterpret_cast<sockaddr*>(&far), sizeof(far)), 0);
    return socket;
  };
  const auto open_descriptors = [] {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                      std::filesystem::directory_iterator()));
  };
  const std::size_t before = open_descriptors();
  std::vector<int> silent;
  std::size_t most = 0;
  for (std::uint64_t i = 0; i < 2 * kMostStrangers; ++i) {
    silent.push_back(connect());
    if (i % 4 == 0) {
      const auto garbage = pattern(i * 97, i);
      ::send(silent.back(), garbage->data(), garbage->size(), MSG_NOSIGNAL);
    }
    most = std::max(most, open_descriptors() - before - silent.size());
  }
  // The node has two of each. One may be on its way.
  EXPECT_LE(most, 2 * kMostStrangers + 64);
  send_around(job.ends, 100000);
  for (const int socket : silent) ::close(socket);
  send_around(job.ends, 100000);
  end_all(job.ends);
}

// Also where the hub cannot tell it so.
TEST(GrpcDirectSecurity, WhoIsRevokedIsNotSpokenToDirect) {
  CuttingProxy between(kBehindHost, 0);
  SecureJob job(behind(between));
  // Rank 1 alone comes by this way, and loses it: it goes on directly.
  while (between.connections() < 2) send_around(job.ends, 1000);
  job.hub_of(1).refuse(true);
  job.hub_of(1).cut();
  const auto arrives = [&](std::chrono::milliseconds timeout) {
    job.ends[1]->send(0, pattern(1000, 1));
    return job.ends[0]->receive(timeout).has_value();
  };
  EXPECT_TRUE(arrives(60s));
  const std::string file = job.directory + "/revoked";
  std::ofstream(file + ".new") << make_revocation(job.certificates.authority(), "", {"ours", 1});
  std::filesystem::rename(file + ".new", file);
  EXPECT_TRUE(says(job.hub, "the list of revoked certificates has changed"));
  // Nothing of what it says from then on; something may have been on its way.
  int missed = 0;
  for (int sent = 0; sent < 600 && missed < 3; ++sent) missed = arrives(1s) ? 0 : missed + 1;
  EXPECT_EQ(missed, 3);
  job.hub_of(1).refuse(false);
  expect_error(ErrorCode::kAborted, "its certificate is revoked",
               [&] { job.ends[1]->receive(30s); });
  job.hub.abort("the test is over");
}

TEST(GrpcDirectSecurity, RefusesWhatMakesNoSense) {
  const GrpcHub hub("127.0.0.1:0", 2);
  const auto join = [&](const std::string& direct, bool insecure = false) {
    join_grpc_network(hub.address(), 0, 2, {.certificates = "", .insecure = insecure},
                      {.deadline = 1s}, direct);
  };
  expect_error(ErrorCode::kInvalidArgument, "not on this machine's loopback",
               [&] { join("10.0.0.1:7101"); });
  expect_error(ErrorCode::kInvalidArgument, "write HOST:PORT", [&] { join("localhost"); });
  expect_error(ErrorCode::kInvalidArgument, "is not an address at which other nodes reach this one",
               [&] { join("0.0.0.0:0", true); });
  expect_error(ErrorCode::kInvalidArgument, "'127.0.0.1:port' is not an address; write HOST:PORT",
               [&] { join("127.0.0.1:port"); });
  expect_error(ErrorCode::kInvalidArgument, "write [::1]:0", [&] { join("::1:0"); });
  expect_error(ErrorCode::kUnavailable, "cannot listen at", [&] { join(hub.address()); });
}

// --- What is said of it.

TEST(GrpcDirectRecords, AddressesAreHostAndPort) {
  for (const char* text : {"node-3.site:7101", "10.0.0.1:1", "[::1]:65535", "[fe80::1]:7101"}) {
    EXPECT_TRUE(is_peer_address(text)) << text;
  }
  for (const char* text : {"", ":1", "host", "host:", "host:0", "host:65536", "host:-1", "host:1 ",
                           "unix:/tmp/x", "dns:///host:1", "a/b:1", "a:b:1", "[::1]", "[]:1",
                           "host\n:1", "ipv4:1.2.3.4:5", "a%b:1"}) {
    EXPECT_FALSE(is_peer_address(text)) << text;
  }
  EXPECT_FALSE(is_peer_address(std::string(kMostAddressBytes, 'a') + ":1"));
}

TEST(GrpcDirectRecords, ComeBackAsTheyWere) {
  const std::vector<PeerAddress> places{
      {.incarnation = 5, .address = "host:1"}, {}, {.incarnation = 6, .address = ""}};
  const Bytes data = addresses_data(places);
  const auto parsed = parse_addresses(data, 3);
  for (std::size_t i = 0; i < places.size(); ++i) {
    EXPECT_EQ(parsed[i].incarnation, places[i].incarnation);
    EXPECT_EQ(parsed[i].address, places[i].address);
  }
  EXPECT_THROW(parse_addresses(data, 2), Error);
  EXPECT_THROW(parse_addresses(data, 4), Error);
  for (std::size_t bytes = 0; bytes < data.size(); ++bytes) {
    EXPECT_THROW(parse_addresses(ByteView(data).first(bytes), 3), Error) << bytes;
  }
  const Hello said = parse_hello(hello_data({.incarnation = 1, .ranks = 2, .address = "host:3"}));
  EXPECT_EQ(said.address, "host:3");
  EXPECT_THROW(parse_hello(hello_data({.incarnation = 1, .ranks = 2, .address = "host"})), Error);
  const DirectReport report =
      parse_direct(direct_data({.sent_bytes = 1, .received_bytes = 2, .trouble = "so"}));
  EXPECT_EQ(report.sent_bytes, 1U);
  EXPECT_EQ(report.received_bytes, 2U);
  EXPECT_EQ(report.trouble, "so");
  EXPECT_THROW(parse_direct(Bytes(15)), Error);
  EXPECT_THROW(parse_direct(Bytes(17 + kMostReasonBytes)), Error);
}

// What has no room is left out, and its node is relayed.
TEST(GrpcDirectRecords, OfVeryManyRanksFitIntoOne) {
  const std::vector<PeerAddress> places(
      20000, {.incarnation = 1, .address = std::string(kMostAddressBytes - 2, 'a') + ":1"});
  const Bytes data = addresses_data(places);
  EXPECT_LE(data.size(), kMostRecordBytes);
  const auto parsed = parse_addresses(data, places.size());
  EXPECT_FALSE(parsed.front().address.empty());
  EXPECT_TRUE(parsed.back().address.empty());
}

}  // namespace
}  // namespace tersewire
