// Who gets into a job over the transport grpc, and who does not.
#include <arpa/inet.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <mutex>
#include <thread>

#include "expect_error.h"
#include "grpc_batch.h"
#include "grpc_certificates.h"
#include "grpc_credentials.h"
#include "grpc_end.h"
#include "grpc_record.h"
#include "handshake_trouble.h"
#include "host_and_port.h"
#include "http_proxy.h"
#include "hub_door.h"
#include "hub_log.h"
#include "tersewire/grpc_members.h"
#include "transport_cases.h"

namespace tersewire {
namespace {

using transport_cases::pattern;
using transport_cases::same;

constexpr std::optional<std::uint32_t> kHub;
const GrpcSecurity kInsecure{.certificates = {}, .insecure = true};

struct Job {
  std::vector<std::unique_ptr<Transport>> join_both() {
    auto joining = std::async(std::launch::async, [&] {
      return join_grpc_network(hub.address(), 1, 2, certificates.of(1), {.deadline = 30s});
    });
    std::vector<std::unique_ptr<Transport>> ends;
    ends.push_back(join_grpc_network(hub.address(), 0, 2, certificates.of(0), {.deadline = 30s}));
    ends.push_back(joining.get());
    return ends;
  }

  TestCertificates certificates{"ours"};
  const std::string directory = certificates.of(kHub).certificates;
  GrpcHub hub{"127.0.0.1:0", 2, {.certificates = directory}};
};

void end_both(std::vector<std::unique_ptr<Transport>>& ends) {
  auto leaving = std::async(std::launch::async, [&] { ends[0].reset(); });
  ends[1].reset();
}

// The job is as it was: messages pass both ways.
void expect_undisturbed(std::vector<std::unique_ptr<Transport>>& ends) {
  for (const int from : {0, 1}) {
    const auto to = static_cast<std::size_t>(1 - from);
    ends[1 - to]->send(1 - from, pattern(100000, 7));
    const auto incoming = ends[to]->receive(30s);
    ASSERT_TRUE(incoming);
    EXPECT_TRUE(same(incoming->bytes, pattern(100000, 7)));
  }
}

int connect_to(const std::string& address, const char* from) {
  const auto port = std::stoi(address.substr(address.rfind(':') + 1));
  sockaddr_in own{};
  own.sin_family = AF_INET;
  EXPECT_EQ(::inet_pton(AF_INET, from, &own.sin_addr), 1);
  sockaddr_in far{};
  far.sin_family = AF_INET;
  far.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  far.sin_port = htons(static_cast<std::uint16_t>(port));
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&own), sizeof(own)), 0);
  EXPECT_EQ(::connect(socket, reinterpret_cast<sockaddr*>(&far), sizeof(far)), 0);
  return socket;
}

void expect_refused(ErrorCode code, const std::string& why, const Job& job, int rank,
                    const GrpcSecurity& security) {
  expect_error(code, why,
               [&] { join_grpc_network(job.hub.address(), rank, 2, security, {.deadline = 1s}); });
}

TEST(GrpcSecurity, NodesOfTheJobGetIn) {
  Job job;
  auto ends = job.join_both();
  expect_undisturbed(ends);
  end_both(ends);
  EXPECT_TRUE(job.hub.wait(30s));
}

TEST(GrpcSecurity, StrangersDoNotGetIn) {
  Job job;
  auto ends = job.join_both();
  TestCertificates other("theirs");
  TestCertificates same_name("ours");
  const std::string& trusted = job.certificates.authority().certificate;
  // Without any.
  expect_refused(ErrorCode::kUnavailable, "cannot reach the hub", job, 0, {});
  // Of another job, whether its node believes our hub or not; and of another of the same name.
  expect_refused(ErrorCode::kUnavailable, "cannot reach the hub", job, 0, other.of(0));
  expect_refused(ErrorCode::kUnavailable, "cannot reach the hub", job, 0,
                 other.of({"theirs", 0}, trusted));
  expect_refused(ErrorCode::kUnavailable, "cannot reach the hub", job, 0,
                 other.of({"ours", 0}, trusted));
  expect_refused(ErrorCode::kUnavailable, "cannot reach the hub", job, 0,
                 same_name.of({"ours", 0}, trusted));
  expect_undisturbed(ends);
  end_both(ends);
}

// Nobody waits to be refused for it.
TEST(GrpcSecurity, WhatHasExpiredIsNamedAtOnce) {
  Job job;
  const std::string hub = job.hub.address();
  const auto expect_expired = [](const std::string& file, const auto& task) {
    expect_error(ErrorCode::kFailedPrecondition, file + "' has expired", task);
  };
  const GrpcSecurity hubs = job.certificates.of(kHub, -1s);
  expect_expired("/certificate.pem", [&] { GrpcHub("127.0.0.1:0", 2, hubs); });
  const KeyAndCertificate old = make_authority("ours", -1h);
  for (const auto& [file, node] :
       {std::pair("/certificate.pem", job.certificates.of(0, -1s)),
        std::pair("/authority.pem", job.certificates.of({"ours", 0}, old.certificate))}) {
    expect_expired(file,
                   [&, &node = node] { join_grpc_network(hub, 0, 2, node, {.deadline = 600s}); });
    expect_expired(file, [&, &node = node] { look_at_hub(hub, node, 600s); });
    expect_expired(file, [&, &node = node] { tell_done(hub, "0", node, 600s); });
    expect_expired(file, [&, &node = node] {
      GrpcMember({.hub = hub, .name = "a", .security = node, .limits = {.deadline = 600s}});
    });
  }
  expect_expired("authority.pem", [&] { certify(old, make_request().request, {"ours", 1}, 1h); });
}

TEST(GrpcSecurity, Certificate_that_is_not_valid_yet_is_named_at_once) {
  Job job;
  const std::string& authority = job.certificates.authority().certificate;
  const GrpcSecurity node = job.certificates.of({"ours", 0}, authority, 2h, -1h);
  const std::string sentence = "/certificate.pem' is not valid yet (it is valid from 20";
  for (const std::string& part : {sentence, std::string("; compare the clocks")}) {
    expect_error(ErrorCode::kFailedPrecondition, part,
                 [&] { join_grpc_network(job.hub.address(), 0, 2, node, {.deadline = 600s}); });
  }
  const GrpcSecurity hubs = job.certificates.of({"ours", kHub}, authority, 2h, -1h);
  expect_error(ErrorCode::kFailedPrecondition, sentence, [&] { GrpcHub("127.0.0.1:0", 2, hubs); });
}

// What a node does not look at, as if its clock were another: the hub finds it.
void expect_hub_objects(const Job& job, const GrpcSecurity& security, const std::string& why) {
  expect_error(ErrorCode::kUnavailable, why, [&] {
    GrpcEnd(job.hub.address(), {.rank = 0, .nodes = 2}, security, {.deadline = 1s});
  });
}

TEST(GrpcSecurity, Certificate_that_is_out_of_date_to_the_hubs_clock_is_said) {
  Job job;
  const std::string& authority = job.certificates.authority().certificate;
  const std::string sentence =
      "the hub closes the connection when it has seen the certificate in '";
  for (const GrpcSecurity& node :
       {job.certificates.of(0, -3600s), job.certificates.of({"ours", 0}, authority, 2h, -1h)}) {
    expect_hub_objects(job, node,
                       sentence + node.certificates + "/certificate.pem', which is valid from 20");
    expect_hub_objects(job, node, ": compare the clocks of both machines");
  }
}

TEST(GrpcSecurity, Certificate_of_another_authority_is_said_whichever_end_finds_it) {
  Job job;
  TestCertificates other("ours");
  expect_refused(ErrorCode::kUnavailable, "its certificate is not of the authority in '", job, 0,
                 other.of(0));
  expect_refused(ErrorCode::kUnavailable, "have it signed by the hub's own authority", job, 0,
                 other.of({"ours", 0}, job.certificates.authority().certificate));
}

TEST(GrpcSecurity, A_good_certificate_is_not_blamed_for_another_failure) {
  Job job;
  EXPECT_FALSE(
      handshake_trouble(host_and_port(job.hub.address()), job.certificates.of(0).certificates));
  EXPECT_FALSE(
      handshake_trouble(host_and_port("127.0.0.1:9"), job.certificates.of(0).certificates));
}

// While it listens, since it would not start with it.
TEST(GrpcSecurity, Hubs_certificate_that_is_not_valid_yet_is_said_to_nodes) {
  Job job;
  job.certificates.renew({.certificates = job.directory}, kHub, -1h);
  std::string said;
  for (int looks = 0; looks < 30 && said.find("not valid yet") == std::string::npos; ++looks) {
    try {
      look_at_hub(job.hub.address(), job.certificates.of(0), 1s);
      std::this_thread::sleep_for(500ms);  // until it has read it
    } catch (const Error& error) {
      said = error.what();
    }
  }
  EXPECT_NE(said.find("the hub's certificate is not valid yet (it is valid from 20"), said.npos)
      << said;
  EXPECT_NE(said.find("): compare the clocks of both machines"), said.npos) << said;
}

bool says(GrpcHub& hub, const std::string& what) {
  for (int looks = 0; looks < 200; ++looks) {
    for (const std::string& event : hub.take_events()) {
      if (event.find(what) != std::string::npos) return true;
    }
    std::this_thread::sleep_for(50ms);
  }
  return false;
}

TEST(GrpcSecurity, Hub_says_when_its_certificates_have_vanished) {
  Job job;
  std::filesystem::rename(job.directory, job.directory + ".away");
  EXPECT_TRUE(says(job.hub, job.directory + "/certificate.pem' has vanished"));
  std::filesystem::rename(job.directory + ".away", job.directory);
  EXPECT_TRUE(says(job.hub, job.directory + "/certificate.pem' is there again"));
}

TEST(HostAndPort, Is_a_name_or_a_number_and_a_port) {
  EXPECT_EQ(host_and_port("hub.example:7100").host, "hub.example");
  EXPECT_EQ(host_and_port("10.0.0.1:0").port, 0);
  EXPECT_EQ(host_and_port("[::1]:7100").host, "::1");
  EXPECT_EQ(host_and_port("[fe80::1%eth0]:7100").text(), "[fe80::1%eth0]:7100");
  for (const char* text : {"", ":1", "host", "host:", "host:65536", "host:-1", "[::1]", "[]:1",
                           "[host]:1", "[::1:1", "a:b:1", "dns:///host:1"}) {
    expect_error(ErrorCode::kInvalidArgument, "is not an address", [&] { host_and_port(text); });
  }
}

TEST(HostAndPort, Ipv6_without_brackets_is_shown_with_them) {
  for (const auto& [text, advice] :
       {std::pair("::1:7171", "write [::1]:7171"),
        std::pair("fd00:9::2:7171", "write [fd00:9::2]:7171"),
        std::pair("fe80::1%eth0:7171", "write [fe80::1%eth0]:7171"),
        std::pair("::1", "write [::1]:PORT"), std::pair("fd00::abcd", "write [fd00::abcd]:PORT")}) {
    expect_error(ErrorCode::kInvalidArgument, advice, [&] { host_and_port(text); });
    expect_error(ErrorCode::kInvalidArgument, advice,
                 [&] { join_grpc_network(text, 0, 2, kInsecure, {.deadline = 600s}); });
    expect_error(ErrorCode::kInvalidArgument, advice, [&] { GrpcHub(text, 2, kInsecure); });
  }
}

TEST(HostAndPort, Loopback_is_known_by_its_number) {
  for (const char* text : {"localhost:1", "127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[0::1]:1"}) {
    EXPECT_TRUE(host_and_port(text).is_loopback()) << text;
  }
  for (const char* text : {"127.example:1", "10.0.0.1:1", "[::]:1", "localhost.example:1"}) {
    EXPECT_FALSE(host_and_port(text).is_loopback()) << text;
  }
}

TEST(GrpcHub, Is_named_by_the_number_at_which_it_listens) {
  const GrpcHub hub("localhost:0", 1);
  EXPECT_TRUE(hub.address().starts_with("127.0.0.1:") || hub.address().starts_with("[::1]:"))
      << hub.address();
}

class Proxies : public testing::Test {
 protected:
  Proxies() { TearDown(); }
  void TearDown() override {
    for (const char* name : {"grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy",
                             "NO_PROXY", "HTTPS_PROXY"}) {
      ::unsetenv(name);
    }
  }
};

TEST_F(Proxies, The_first_that_is_set_counts) {
  EXPECT_EQ(proxy_variable("hub.example"), "");
  ::setenv("HTTPS_PROXY", "http://127.0.0.1:9", 1);
  EXPECT_EQ(proxy_variable("hub.example"), "") << "gRPC does not read it";
  ::setenv("http_proxy", "http://127.0.0.1:9", 1);
  EXPECT_EQ(proxy_variable("hub.example"), "http_proxy");
  ::setenv("https_proxy", "http://127.0.0.1:9", 1);
  EXPECT_EQ(proxy_variable("hub.example"), "https_proxy");
}

TEST_F(Proxies, Exceptions_may_be_names_domains_networks_or_all) {
  ::setenv("https_proxy", "http://127.0.0.1:9", 1);
  ::setenv("NO_PROXY", "Hub.example, .site,*.other,10.0.0.0/8,fd00::/16,192.0.2.7", 1);
  for (const char* host : {"hub.example", "HUB.example", "a.hub.example", "b.site", "c.other",
                           "10.200.0.1", "fd00:9::1", "192.0.2.7"}) {
    EXPECT_EQ(proxy_variable(host), "") << host;
  }
  for (const char* host :
       {"myhub.example", "hub.example.org", "11.0.0.1", "fd01::1", "192.0.2.70", "10.example"}) {
    EXPECT_EQ(proxy_variable(host), "https_proxy") << host;
  }
  ::setenv("NO_PROXY", "*", 1);
  EXPECT_EQ(proxy_variable("anything"), "");
}

TEST_F(Proxies, A_failure_through_one_names_its_variable) {
  ::setenv("https_proxy", "http://user:secret@127.0.0.1:9", 1);
  const auto join = [] { join_grpc_network("192.0.2.1:7100", 0, 2, kInsecure, {.deadline = 1s}); };
  expect_error(
      ErrorCode::kUnavailable,
      "it was dialed by the HTTP proxy that https_proxy names: check whether that runs and "
      "allows CONNECT to port 7100, or add 192.0.2.1 to no_proxy",
      join);
}

TEST_F(Proxies, A_host_in_NO_PROXY_is_dialed_without_one) {
  const GrpcHub hub("0.0.0.0:0", 1, kInsecure);
  ::setenv("https_proxy", "http://127.0.0.1:9", 1);
  ::setenv("NO_PROXY", "0.0.0.0/8", 1);
  const auto end = join_grpc_network(hub.address(), 0, 1, kInsecure, {.deadline = 30s});
  EXPECT_EQ(end->size(), 1);
}

// While it listens.
TEST(GrpcSecurity, AHubThatIsRenewedLetsNodesIn) {
  TestCertificates certificates("ours");
  const GrpcSecurity security = certificates.of(kHub, 2s);
  GrpcHub hub("127.0.0.1:0", 1, security);
  const auto join = [&](std::chrono::milliseconds deadline) {
    return join_grpc_network(hub.address(), 0, 1, certificates.of(0), {.deadline = deadline});
  };
  std::this_thread::sleep_for(3s);
  expect_error(ErrorCode::kUnavailable, "the hub's certificate has expired (it was valid until 20",
               [&] { join(1s); });
  certificates.renew(security, kHub);
  EXPECT_EQ(join(30s)->size(), 1);
  EXPECT_TRUE(std::ranges::any_of(hub.take_events(), [](const std::string& event) {
    return event.find("expires in 1 min; renew it with 'tersewire certs join'") !=
           std::string::npos;
  }));
}

TEST(GrpcSecurity, WhatCannotBeReadIsSaidToBeSo) {
  Job job;
  std::filesystem::create_directory(job.directory + "/revoked");
  expect_error(ErrorCode::kNotFound, "/revoked' cannot be read: Is a directory",
               [&] { GrpcHub("127.0.0.1:0", 2, {.certificates = job.directory}); });
  const GrpcSecurity node = job.certificates.of(0);
  std::filesystem::remove(node.certificates + "/key.pem");
  std::filesystem::create_directory(node.certificates + "/key.pem");
  expect_error(ErrorCode::kNotFound, "/key.pem' cannot be read: Is a directory",
               [&] { look_at_hub(job.hub.address(), node, 600s); });
}

TEST(GrpcSecurity, NobodyIsARankThatIsNotTheirs) {
  Job job;
  expect_refused(ErrorCode::kFailedPrecondition, "certificate is that of rank 1, not of rank 0",
                 job, 0, job.certificates.of(1));
  expect_refused(ErrorCode::kFailedPrecondition, "certificate is that of rank 7, not of rank 0",
                 job, 0, job.certificates.of(7));
  // One authority for two jobs.
  expect_refused(ErrorCode::kUnavailable, "cannot reach the hub", job, 0,
                 job.certificates.of({"another", 0}, job.certificates.authority().certificate));
  auto ends = job.join_both();
  expect_undisturbed(ends);
  end_both(ends);
}

// What a stream says after these records, one after the other.
grpc::Status answer_to(const std::string& hub,
                       const std::vector<std::pair<RecordHead, Bytes>>& records) {
  grpc::GenericStub stub(channel_to(hub, {}));
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  const auto happens = [&queue] {
    void* tag = nullptr;
    bool fine = false;
    return queue.Next(&tag, &fine) && fine;
  };
  const auto call = stub.PrepareCall(&context, kExchangeMethod, &queue);
  call->StartCall(nullptr);
  EXPECT_TRUE(happens());
  BatchWriter batch(false);
  for (const auto& [head, data] : records) batch.add(head, data);
  call->Write(batch.finish(), nullptr);
  EXPECT_TRUE(happens());
  grpc::ByteBuffer told;
  do {
    call->Read(&told, nullptr);
  } while (happens());
  grpc::Status status;
  call->Finish(&status, nullptr);
  happens();
  return status;
}

// Once it is in, either.
TEST(GrpcSecurity, NobodySpeaksForAnother) {
  const GrpcHub hub("127.0.0.1:0", 2);
  const auto head = [](RecordKind kind, std::uint32_t from) {
    return RecordHead{.kind = kind, .from = from, .to = kHubRank};
  };
  const std::pair hello(head(RecordKind::kHello, 1), hello_data({.incarnation = 7, .ranks = 2}));
  const grpc::Status answer =
      answer_to(hub.address(), {hello, {head(RecordKind::kAlive, 0), Bytes()}});
  EXPECT_EQ(answer.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(answer.error_message().find("rank 1 speaks for rank 0"), std::string::npos)
      << answer.error_message();
}

// As 'tersewire certs revoke' and 'certs join' do it, while the job runs.
TEST(GrpcSecurity, WhoIsRevokedIsPutOutAndNotLetInAgain) {
  Job job;
  auto ends = job.join_both();
  const auto write = [&](const std::string& list) {
    const std::string file = job.directory + "/revoked";
    std::ofstream(file + ".new") << list;
    std::filesystem::rename(file + ".new", file);
  };
  const auto said = [&](const std::string& what) {
    for (int looks = 0; looks < 600; ++looks) {
      for (const std::string& event : job.hub.take_events()) {
        if (event.find(what) != std::string::npos) return true;
      }
      std::this_thread::sleep_for(50ms);
    }
    return false;
  };
  // That the job's authority has not signed.
  TestCertificates other("ours");
  write(make_revocation(other.authority(), "", {"ours", 1}));
  EXPECT_TRUE(said("not a list of revoked certificates that this job's authority has signed"));
  expect_undisturbed(ends);
  const std::string first = make_revocation(job.certificates.authority(), "", {"ours", 7});
  write(first);
  EXPECT_TRUE(said("the list of revoked certificates has changed"));
  expect_undisturbed(ends);
  write(make_revocation(job.certificates.authority(), first, {"ours", 1}));
  EXPECT_TRUE(said("its certificate is revoked"));
  expect_error(ErrorCode::kAborted, "its certificate is revoked", [&] { ends[1]->receive(30s); });
  expect_refused(ErrorCode::kFailedPrecondition, "its certificate is revoked", job, 1,
                 job.certificates.of(1));
  expect_error(ErrorCode::kFailedPrecondition, "refuses this node: its certificate is revoked",
               [&] { look_at_hub(job.hub.address(), job.certificates.of(1), 600s); });
  // A list that lacks it does not count.
  write(first);
  EXPECT_TRUE(said("is older than the list before it"));
  expect_refused(ErrorCode::kFailedPrecondition, "its certificate is revoked", job, 1,
                 job.certificates.of(1));
  job.hub.abort("the test is over");
}

TEST(Revocations, AreOfTheirAuthorityAndWhole) {
  const KeyAndCertificate authority = make_authority("job", 1h);
  const std::string one = make_revocation(authority, "", {"job", 3});
  const std::string two =
      make_revocation(authority, one, {.job = "job", .rank = std::nullopt, .name = "node-1"});
  const Revocations all = parse_revocations(two, authority.certificate);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_TRUE(all.contains("tersewire://job/3") && all.contains("tersewire://job/node-1"));
  const std::string made = certify(authority, make_request().request, {"job", 3}, 1h, 301s);
  EXPECT_TRUE(keeps_revoked(two, one, authority.certificate));
  EXPECT_TRUE(keeps_revoked(two, two, authority.certificate));
  EXPECT_FALSE(keeps_revoked(one, two, authority.certificate));
  const auto revoked_until = std::chrono::system_clock::from_time_t(all.at("tersewire://job/3"));
  EXPECT_LE(validity_of(made).from, revoked_until);
  const std::string later = certify(authority, make_request().request, {"job", 3}, 1h, 200s);
  EXPECT_GT(validity_of(later).from, revoked_until);
  EXPECT_THROW(make_revocation(authority, "", {"job", std::nullopt}), Error);
  EXPECT_FALSE(is_revocation("-----BEGIN CERTIFICATE-----", authority.certificate));
  EXPECT_THROW(parse_revocations(two, make_authority("job", 1h).certificate), Error);
  for (std::size_t at = 0; at < two.size(); ++at) {
    std::string damaged = two;
    damaged[at] ^= 1;
    if (damaged[at] == '\n' || two[at] == '\n') continue;
    EXPECT_THROW(parse_revocations(damaged, authority.certificate), Error) << at;
    EXPECT_THROW(parse_revocations(two.substr(0, at), authority.certificate), Error) << at;
  }
}

std::size_t open_descriptors() {
  return static_cast<std::size_t>(std::distance(
      std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()));
}

// Far more than there is room for, from an address of their own and from the members'.
TEST(GrpcSecurity, HalfOpenConnectionsTakeNoMoreThanTheirRoom) {
  Job job;
  auto ends = job.join_both();
  const std::size_t before = open_descriptors();
  std::size_t most = 0;
  for (const char* from : {"127.0.0.2", "127.0.0.1"}) {
    std::vector<int> silent;
    for (std::size_t i = 0; i < 2 * kMostStrangers; ++i) {
      silent.push_back(connect_to(job.hub.address(), from));
      most = std::max(most, open_descriptors() - before - silent.size());
    }
    expect_undisturbed(ends);
    for (const int socket : silent) ::close(socket);
  }
  // The hub has two of each. One may be on its way.
  EXPECT_LE(most, 2 * kMostStrangers + 64);
  const std::vector<std::string> events = job.hub.take_events();
  EXPECT_TRUE(std::ranges::any_of(events, [](const std::string& event) {
    return event.find("closed, as the hub keeps at most") != std::string::npos;
  }));
  // Who comes now gets in.
  ends[1].reset();
  expect_refused(ErrorCode::kFailedPrecondition, "another process is rank 1", job, 1,
                 job.certificates.of(1));
  ends[0].reset();
}

// So does a hub that lacks processor time.
TEST(HubDoor, TakesNobodyWhileTooManyHaveYetToBeClosed) {
  constexpr std::size_t kCallers = 2 * kMostStrangers + 100;
  HubDoor door("127.0.0.1:0");
  std::mutex mutex;
  std::vector<int> open;
  std::size_t taken = 0;
  bool closes = false;
  door.open([&](int descriptor) {
    const std::lock_guard lock(mutex);
    ++taken;
    if (closes) {
      ::close(descriptor);
    } else {
      open.push_back(descriptor);
    }
  });
  for (std::size_t i = 0; i < kCallers; ++i) ::close(connect_to(door.address(), "127.0.0.1"));
  std::this_thread::sleep_for(500ms);
  {
    const std::lock_guard lock(mutex);
    EXPECT_LE(taken, 2 * kMostStrangers);
    closes = true;
    for (const int descriptor : open) ::close(descriptor);
  }
  const auto deadline = std::chrono::steady_clock::now() + 30s;
  const auto all = [&] {
    const std::lock_guard lock(mutex);
    return taken == kCallers;
  };
  while (!all() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(10ms);
  EXPECT_TRUE(all());
  door.close();
}

// A node that has a certificate is no hub for others.
TEST(GrpcSecurity, NodesAreNoHubs) {
  TestCertificates certificates("ours");
  expect_error(ErrorCode::kInvalidArgument, "is that of rank 1; a hub needs its own",
               [&] { GrpcHub("127.0.0.1:0", 2, certificates.of(1)); });
}

// Garbage on the port, and connections that say nothing.
TEST(GrpcSecurity, GarbageOnThePortDisturbsNobody) {
  Job job;
  auto ends = job.join_both();
  std::vector<int> silent;
  for (std::uint64_t i = 0; i < 200; ++i) {
    const int socket = connect_to(job.hub.address(), "127.0.0.1");
    if (i % 2 == 0) {
      silent.push_back(socket);
      continue;
    }
    const auto garbage = pattern(i * 97, i);
    ::send(socket, garbage->data(), garbage->size(), MSG_NOSIGNAL);
    ::close(socket);
  }
  expect_undisturbed(ends);
  for (const int socket : silent) ::close(socket);
  expect_undisturbed(ends);
  end_both(ends);
}

// However many come, and whoever reads it late.
TEST(HubLog, HasOneSentenceASecondForStrangers) {
  using Clock = HubLog::Clock;
  const Clock::time_point start = Clock::now();
  HubLog log;
  for (int i = 0; i < 3000; ++i) {
    log.add_stranger("a stranger", start + std::chrono::milliseconds(i));
    if (i % 500 == 0) log.add("a node");
  }
  const std::vector<std::string> sentences = log.take();
  EXPECT_EQ(std::ranges::count(sentences, "a node"), 6);
  EXPECT_EQ(std::ranges::count(sentences, "a stranger"), 1);
  EXPECT_EQ(std::ranges::count(sentences, "a stranger (and 999 before)"), 2);
  EXPECT_EQ(sentences.size(), 9U);
  EXPECT_TRUE(log.take().empty());
  for (int i = 0; i < 5000; ++i) log.add(std::to_string(i));
  EXPECT_EQ(log.take().size(), 1000U);
}

TEST(Certificates, NameWhomTheyAreFor) {
  const KeyAndCertificate authority = make_authority("a-job-2", 1h);
  const std::string request = make_request().request;
  for (const Identity& identity : {Identity{"a-job-2", 5}, Identity{"a-job-2", std::nullopt}}) {
    const Identity found = identity_of(certify(authority, request, identity, 60s), "file");
    EXPECT_EQ(found.job, identity.job);
    EXPECT_EQ(found.rank, identity.rank);
  }
  expect_error(ErrorCode::kDataLoss, "names no node of a job",
               [&] { identity_of(authority.certificate, "authority.pem"); });
  expect_error(ErrorCode::kDataLoss, "'x.pem' holds no certificate",
               [] { identity_of("nothing", "x.pem"); });
  for (const char* job :
       {"", "Job", "a/b", "a.b", "a b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}) {
    expect_error(ErrorCode::kInvalidArgument, "not a valid job name",
                 [&] { make_authority(job, 1h); });
  }
}

TEST(Certificates, AreNotMadeForLongerThanAnAuthority) {
  const KeyAndCertificate authority = make_authority("job", kLongestValidity);
  const std::string request = make_request().request;
  EXPECT_NO_THROW(certify(authority, request, {"job", 1}, kLongestValidity));
  const auto expect_too_long = [](const std::function<void()>& make) {
    expect_error(ErrorCode::kInvalidArgument, "choose 8784 at most", make);
  };
  expect_too_long([] { make_authority("job", std::chrono::hours::max()); });
  expect_too_long([&] { certify(authority, request, {"job", 1}, kLongestValidity + 1s); });
  expect_too_long([&] { make_token(authority, {"job", 1}, std::chrono::seconds::max()); });
}

TEST(Certificates, AreNotMadeForWhatIsNoRequest) {
  const KeyAndCertificate authority = make_authority("job", 1h);
  std::string request = make_request().request;
  expect_error(ErrorCode::kDataLoss, "not a certificate request", [&] {
    certify(authority, "nothing", {"job", 1}, 1h);
  });
  // Another's key, which it cannot sign with.
  const std::size_t middle = request.size() / 2;
  request[middle] = request[middle] == 'A' ? 'B' : 'A';
  expect_error(ErrorCode::kDataLoss, "not a certificate request", [&] {
    certify(authority, request, {"job", 1}, 1h);
  });
}

TEST(Tokens, SignRequestsForWhomTheyWereMade) {
  const KeyAndCertificate authority = make_authority("job", 1h);
  const KeyAndRequest node = make_request();
  for (const Identity& identity :
       {Identity{"job", 5}, Identity{.job = "job", .rank = {}, .name = "node-1"},
        Identity{"job", {}}}) {
    const std::string token = make_token(authority, identity, 1h);
    check_authority(token, authority.certificate);
    const std::string asked = sign_request(node.request, token);
    EXPECT_EQ(asked.find(token.substr(token.rfind(':') + 1, 64)), std::string::npos) << asked;
    const std::string made = certify_by_token(authority, "", asked, 1h);
    const Identity found = check_certificate(made, node.key, authority.certificate);
    EXPECT_EQ(uri_of(found), uri_of(identity));
    EXPECT_TRUE(is_signed_request(asked));
    EXPECT_FALSE(is_signed_request(node.request));
  }
}

TEST(Tokens, SignNothingElse) {
  const KeyAndCertificate authority = make_authority("job", 1h);
  const KeyAndCertificate other = make_authority("job", 1h);
  const std::string request = make_request().request;
  const std::string token = make_token(authority, {"job", 5}, 1h);
  const std::string asked = sign_request(request, token);
  const auto expect_unsigned = [&](const std::string& what) {
    expect_error(ErrorCode::kDataLoss, "none of this authority's tokens signed the request",
                 [&] { certify_by_token(authority, "", what, 1h); });
  };
  expect_unsigned(request);
  expect_unsigned("");
  expect_unsigned(sign_request(request, make_token(other, {"job", 5}, 1h)));
  // Another rank, another key, more before the request, and each byte in turn.
  std::string changed = asked;
  changed.replace(changed.find("job/5"), 5, "job/4");
  expect_unsigned(changed);
  expect_unsigned(make_request().request + asked.substr(asked.find("token ")));
  expect_unsigned(make_request().request + asked);
  for (std::size_t at = 0; at < asked.size(); ++at) {
    changed = asked;
    changed[at] ^= 1;
    expect_unsigned(changed);
    expect_unsigned(asked.substr(0, at));
  }
  expect_error(ErrorCode::kDataLoss,
               "of another authority than the one that made this node's token",
               [&] { check_authority(token, other.certificate); });
  for (const std::string& none : {std::string(), std::string("job/5"), token.substr(0, 100),
                                  token.substr(3), " " + token, token + token}) {
    expect_error(ErrorCode::kDataLoss, "this is not a token", [&] { sign_request(request, none); });
  }
  expect_error(ErrorCode::kInvalidArgument, "'a b'",
               [&] { make_token(authority, {.job = "job", .rank = {}, .name = "a b"}, 1h); });
}

TEST(Tokens, EndWithTheirTimeAndByRevocation) {
  const KeyAndCertificate authority = make_authority("job", 1h);
  const std::string request = make_request().request;
  const std::string old = sign_request(request, make_token(authority, {"job", 5}, -1s));
  expect_error(ErrorCode::kFailedPrecondition, "the token of job/5 has expired",
               [&] { certify_by_token(authority, "", old, 1h); });
  const std::string asked = sign_request(request, make_token(authority, {"job", 5}, 1h));
  certify_by_token(authority, make_revocation(authority, "", {"job", 4}), asked, 1h);
  const std::string list = make_revocation(authority, "", {"job", 5});
  expect_error(ErrorCode::kFailedPrecondition,
               "the token of job/5 was made before its certificates were revoked",
               [&] { certify_by_token(authority, list, asked, 1h); });
  std::this_thread::sleep_for(2s);
  const std::string again = sign_request(request, make_token(authority, {"job", 5}, 1h));
  certify_by_token(authority, list, again, 1h);
}

TEST(Identity, HasOneName) {
  EXPECT_EQ(uri_of({"job", 3}), "tersewire://job/3");
  EXPECT_EQ(uri_of({"job", std::nullopt}), "tersewire://job/hub");
  for (const char* text : {"", "tersewire://", "tersewire://job", "tersewire:///3",
                           "tersewire://job/", "tersewire://job/03", "tersewire://job/-1",
                           "tersewire://job/4294967296", "tersewire://a/b/3", "http://job/3"}) {
    EXPECT_FALSE(parse_uri(text)) << text;
  }
}

}  // namespace
}  // namespace tersewire
