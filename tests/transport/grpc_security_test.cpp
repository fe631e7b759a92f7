// Who gets into a job over the transport grpc, and who does not.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <future>

#include "expect_error.h"
#include "grpc_certificates.h"
#include "grpc_record.h"
#include "hub_log.h"
#include "transport_cases.h"

namespace tersewire {
namespace {

using transport_cases::pattern;
using transport_cases::same;

constexpr std::optional<std::uint32_t> kHub;

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
  GrpcHub hub{"127.0.0.1:0", 2, certificates.of(kHub)};
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
  // That has expired.
  expect_refused(ErrorCode::kUnavailable, "cannot reach the hub", job, 0,
                 job.certificates.of(0, -3600s));
  expect_undisturbed(ends);
  end_both(ends);
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
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(
      std::stoi(job.hub.address().substr(job.hub.address().rfind(':') + 1))));
  std::vector<int> silent;
  for (std::uint64_t i = 0; i < 200; ++i) {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
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
    expect_error(ErrorCode::kInvalidArgument, "no name of a job", [&] { make_authority(job, 1h); });
  }
}

TEST(Certificates, AreNotMadeForWhatIsNoRequest) {
  const KeyAndCertificate authority = make_authority("job", 1h);
  std::string request = make_request().request;
  expect_error(ErrorCode::kDataLoss, "no request", [&] {
    certify(authority, "nothing", {"job", 1}, 1h);
  });
  // Another's key, which it cannot sign with.
  const std::size_t middle = request.size() / 2;
  request[middle] = request[middle] == 'A' ? 'B' : 'A';
  expect_error(ErrorCode::kDataLoss, "no request", [&] {
    certify(authority, request, {"job", 1}, 1h);
  });
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
