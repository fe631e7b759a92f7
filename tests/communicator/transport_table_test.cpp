// Transports by their texts.
#include <gtest/gtest.h>

#include <cstdlib>

#include "expect_error.h"
#include "tersewire/transports.h"

namespace tersewire {
namespace {

TEST(Transports, AreChosenByTheirTexts) {
  const ChosenTransport threads = choose_transport("in-process");
  EXPECT_EQ(threads.name, "in-process");
  EXPECT_FALSE(threads.between_processes);
  EXPECT_FALSE(threads.bits_per_second);
  EXPECT_EQ(choose_transport("in-process:rate=100mbit").bits_per_second, 1e8);
  EXPECT_TRUE(choose_transport("mpi").between_processes);
  EXPECT_TRUE(choose_transport("mpi").launched);
  EXPECT_EQ(join_network("in-process:rate=1gbit", 3).size(), 3U);
}

TEST(Transports, GrpcIsThreadsOrOneNodeOfAHubsJob) {
  const ChosenTransport threads = choose_transport("grpc");
  EXPECT_FALSE(threads.between_processes);
  EXPECT_FALSE(threads.grpc);
  const ChosenTransport node = choose_transport("grpc:hub=[::1]:7100,rank=3,certs=/etc/node");
  EXPECT_TRUE(node.between_processes);
  EXPECT_FALSE(node.launched);
  ASSERT_TRUE(node.grpc);
  EXPECT_EQ(node.grpc->hub, "[::1]:7100");
  EXPECT_EQ(node.grpc->rank, 3);
  EXPECT_FALSE(choose_transport("grpc:hub=h:1,certs=here").grpc->rank);
  EXPECT_EQ(choose_transport("grpc:hub=h:1,name=node3").grpc->name, "node3");
  EXPECT_EQ(node.grpc->security.certificates, "/etc/node");
  EXPECT_FALSE(node.grpc->security.insecure);
  EXPECT_TRUE(choose_transport("grpc:hub=h:1,rank=0,insecure=on").grpc->security.insecure);
}

TEST(Transports, WhatThereIsNotIsRefused) {
  const auto refused = [](const char* text, const char* part) {
    expect_error(ErrorCode::kInvalidArgument, part, [&] { choose_transport(text); });
  };
  refused("pigeon", "unknown transport 'pigeon'; use in-process, mpi or grpc");
  refused("in-process:speed=1", "unknown parameter 'speed'; in-process has rate");
  refused("in-process:rate=fast", "rate must be a rate, as 10mbit, 1gbit or 2.5gbit, not 'fast'");
  refused("mpi:rate=1gbit", "limit that with lab/netlab");
  refused("grpc:rate=1gbit", "limit that with lab/netlab");
  refused("grpc:rank=1", "say which hub");
  refused("grpc:certs=here", "say which hub");
  refused("grpc:insecure=on", "say which hub");
  refused("grpc:hub=h:1", "rank must be this node's number, from 0 on, not ''");
  refused("grpc:hub=h:1,rank=-1", "rank must be this node's number, from 0 on, not '-1'");
  refused("grpc:hub=h:1,rank=0,token=x", "grpc has hub, rank, name, certs and insecure");
  refused("grpc:hub=h:1,rank=0,name=a", "a node has a rank or a name, not both");
  refused("mpi:ranks=2", "mpi has no parameters");
  expect_error(ErrorCode::kInvalidArgument, "cannot be modelled",
               [] { join_network("in-process:rate=1bit", 2); });
}

TEST(Transports, RatesHaveUnits) {
  EXPECT_EQ(parsed_rate("64kbit"), 64e3);
  EXPECT_EQ(parsed_rate("2.5gbit"), 2.5e9);
  for (const char* text : {"", "10", "mbit", "-1mbit", "0bit", "nanbit", "1 gbit", "infbit"}) {
    EXPECT_FALSE(parsed_rate(text)) << text;
  }
}

class Launcher : public testing::Test {
 protected:
  void TearDown() override {
    for (const char* name : kVariables) ::unsetenv(name);
  }
  static constexpr const char* kVariables[] = {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
                                               "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_SIZE",
                                               "PMI_RANK"};
};

TEST_F(Launcher, IsFoundInTheEnvironment) {
  TearDown();
  EXPECT_FALSE(launched_job());
  ::setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
  EXPECT_FALSE(launched_job());
  ::setenv("PMI_SIZE", "4", 1);
  ::setenv("PMI_RANK", "3", 1);
  const auto hydra = launched_job();
  ASSERT_TRUE(hydra);
  EXPECT_EQ(hydra->transport, "mpi");
  EXPECT_EQ(hydra->processes, 4);
  EXPECT_EQ(hydra->rank, 3);
  EXPECT_EQ(hydra->processes_here, 0);
  ::setenv("OMPI_COMM_WORLD_SIZE", "8", 1);
  ::setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
  EXPECT_EQ(launched_job()->processes, 8);
  EXPECT_EQ(launched_job()->processes_here, 2);
}

}  // namespace
}  // namespace tersewire
