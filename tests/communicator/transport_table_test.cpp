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
  EXPECT_EQ(threads.links.bits_per_second, 0);
  EXPECT_EQ(choose_transport("in-process:rate=100mbit").links.bits_per_second, 1e8);
  EXPECT_TRUE(choose_transport("mpi").between_processes);
  EXPECT_TRUE(choose_transport("mpi").launched);
  EXPECT_EQ(join_network("in-process:rate=1gbit", 3).size(), 3U);
}

TEST(Transports, LinksAreModelledAsTheTextSays) {
  const ModelledLinks links =
      choose_transport("in-process:rate=20mbit,delay=40ms,jitter=500us,loss=0.1%,seed=7").links;
  EXPECT_EQ(links.bits_per_second, 2e7);
  EXPECT_EQ(links.delay_seconds, 0.04);
  EXPECT_EQ(links.jitter_seconds, 500e-6);
  EXPECT_EQ(links.loss, 0.001);
  EXPECT_EQ(links.seed, 7U);
  EXPECT_EQ(choose_transport("in-process:loss=0.01").links.loss, 0.01);
  EXPECT_EQ(join_network("in-process:delay=1s", 2).size(), 2U);
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
  EXPECT_FALSE(choose_transport("grpc:hub=h:1,name=node3").grpc->serves);
  EXPECT_TRUE(choose_transport("grpc:hub=h:1,name=node3,role=server").grpc->serves);
  EXPECT_FALSE(choose_transport("grpc:hub=h:1,certs=here,role=worker").grpc->serves);
  EXPECT_EQ(node.grpc->security.certificates, "/etc/node");
  EXPECT_FALSE(node.grpc->security.insecure);
  EXPECT_TRUE(choose_transport("grpc:hub=h:1,rank=0,insecure=on").grpc->security.insecure);
  EXPECT_EQ(choose_transport("grpc:hub=h:1,certs=here,direct=[::1]:0").grpc->direct, "[::1]:0");
  EXPECT_TRUE(choose_transport("grpc:hub=h:1,certs=here").grpc->direct.empty());
}

TEST(Transports, WhatThereIsNotIsRefused) {
  const auto refused = [](const char* text, const char* part) {
    expect_error(ErrorCode::kInvalidArgument, part, [&] { choose_transport(text); });
  };
  refused("pigeon", "unknown transport 'pigeon'; use in-process, mpi or grpc");
  refused("in-process:speed=1",
          "unknown parameter 'speed'; in-process has rate, delay, jitter, loss and seed");
  refused("in-process:rate=fast",
          "rate must be a rate, such as 10mbit, 1gbit or 2.5gbit, not 'fast'");
  refused("in-process:delay=40", "delay must be a time, such as 20ms, 300us or 0.5s, not '40'");
  refused("in-process:jitter=-1ms", "jitter must be a time");
  refused("in-process:loss=1ms",
          "loss must be a share of frames, such as 0.1% or 0.001, not '1ms'");
  refused("in-process:loss=nan%", "loss must be a share of frames");
  refused("in-process:seed=-1", "seed must be a whole number");
  refused("mpi:delay=1ms", "mpi has no parameters");
  refused("mpi:rate=1gbit", "limit that with lab/netlab");
  refused("grpc:rate=1gbit", "limit that with lab/netlab");
  refused("grpc:rank=1", "name the hub");
  refused("grpc:certs=here", "name the hub");
  refused("grpc:insecure=on", "name the hub");
  refused("grpc:hub=h:1", "say which node this is with rank=R");
  refused("grpc:hub=h:1,rank=-1", "rank must be this node's number, from 0 on, not '-1'");
  refused("grpc:hub=h:1,rank=0,token=x",
          "grpc has hub, rank, name, role, certs, direct and insecure");
  refused("grpc:hub=h:1,rank=0,name=a", "a node has a rank or a name, not both");
  refused("grpc:hub=h:1,rank=0,role=server", "a rank says whether a node is a server");
  refused("grpc:hub=h:1,name=a,role=boss", "role must be worker or server, not 'boss'");
  refused("grpc:role=server", "name the hub");
  expect_error(ErrorCode::kInvalidArgument, "role=server is for jobs whose nodes come and go",
               [] { join_network("grpc:hub=h:1,name=a,role=server", 2); });
  refused("mpi:ranks=2", "mpi has no parameters");
  expect_error(ErrorCode::kInvalidArgument, "cannot be modelled",
               [] { join_network("in-process:rate=1bit", 2); });
  expect_error(ErrorCode::kInvalidArgument, "a delay of 61 s cannot be modelled; use 0 to 60 s",
               [] { join_network("in-process:delay=61s", 2); });
  expect_error(ErrorCode::kInvalidArgument, "a loss of 0.6 of the frames cannot be modelled",
               [] { join_network("in-process:loss=60%", 2); });
}

TEST(Transports, RatesHaveUnits) {
  EXPECT_EQ(parsed_rate("64kbit"), 64e3);
  EXPECT_EQ(parsed_rate("2.5gbit"), 2.5e9);
  for (const char* text : {"", "10", "mbit", "-1mbit", "0bit", "nanbit", "1 gbit", "infbit"}) {
    EXPECT_FALSE(parsed_rate(text)) << text;
  }
}

TEST(Transports, TimesHaveUnits) {
  EXPECT_EQ(parsed_time("300us"), 300e-6);
  EXPECT_EQ(parsed_time("20ms"), 20e-3);
  EXPECT_EQ(parsed_time("0.5s"), 0.5);
  EXPECT_EQ(parsed_time("0ms"), 0);
  for (const char* text : {"", "10", "ms", "-1ms", "nans", "1 s", "infs", "1h"}) {
    EXPECT_FALSE(parsed_time(text)) << text;
  }
}

class Launcher : public testing::Test {
 protected:
  void TearDown() override {
    for (const char* name : kVariables) ::unsetenv(name);
  }
  static constexpr const char* kVariables[] = {"OMPI_COMM_WORLD_SIZE",
                                               "OMPI_COMM_WORLD_RANK",
                                               "OMPI_COMM_WORLD_LOCAL_SIZE",
                                               "PMI_SIZE",
                                               "PMI_RANK",
                                               "PMIX_RANK",
                                               "SLURM_NTASKS",
                                               "SLURM_STEP_NUM_TASKS",
                                               "SLURM_STEP_TASKS_PER_NODE",
                                               "SLURM_PROCID",
                                               "FLUX_JOB_SIZE",
                                               "FLUX_TASK_RANK",
                                               "WORLD_SIZE",
                                               "RANK",
                                               "LOCAL_WORLD_SIZE"};
};

TEST_F(Launcher, IsFoundInTheEnvironment) {
  TearDown();
  EXPECT_FALSE(launched_job());
  ::setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
  ::setenv("OMPI_COMM_WORLD_RANK", "0", 1);
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

TEST_F(Launcher, Srun_without_pmix_starts_nodes_of_a_hub) {
  TearDown();
  ::setenv("SLURM_NTASKS", "4", 1);
  ::setenv("SLURM_PROCID", "0", 1);
  EXPECT_FALSE(launched_job()) << "a script of sbatch is one process";
  ::setenv("SLURM_STEP_NUM_TASKS", "4", 1);
  ::setenv("SLURM_STEP_TASKS_PER_NODE", "2", 1);
  ::setenv("SLURM_PROCID", "3", 1);
  const auto job = launched_job();
  ASSERT_TRUE(job);
  EXPECT_EQ(job->transport, "grpc:hub=HOST:PORT,rank=$SLURM_PROCID");
  EXPECT_EQ(job->processes, 4);
  EXPECT_EQ(job->processes_here, 2);
  EXPECT_EQ(job->rank, 3);
  ::setenv("SLURM_STEP_TASKS_PER_NODE", "2(x2)", 1);
  EXPECT_EQ(launched_job()->processes_here, 0);
}

TEST_F(Launcher, Srun_with_pmix_starts_processes_of_mpi) {
  TearDown();
  ::setenv("PMIX_RANK", "1", 1);
  ::setenv("SLURM_PROCID", "1", 1);
  ::setenv("SLURM_STEP_NUM_TASKS", "4", 1);
  EXPECT_EQ(launched_job()->transport, "mpi");
  EXPECT_EQ(launched_job()->processes, 4);
  ::setenv("SLURM_STEP_NUM_TASKS", "1", 1);
  EXPECT_FALSE(launched_job());
}

TEST_F(Launcher, Torchrun_starts_nodes_of_a_hub) {
  TearDown();
  ::setenv("WORLD_SIZE", "4", 1);
  EXPECT_FALSE(launched_job()) << "without a rank it says nothing of this process";
  ::setenv("RANK", "2", 1);
  ::setenv("LOCAL_WORLD_SIZE", "4", 1);
  ASSERT_TRUE(launched_job());
  EXPECT_EQ(launched_job()->transport, "grpc:hub=HOST:PORT,rank=$RANK");
  EXPECT_EQ(launched_job()->processes_here, 4);
  EXPECT_EQ(launched_job()->rank, 2);
}

TEST_F(Launcher, Pmix_alone_starts_a_job_of_unknown_size) {
  TearDown();
  ::setenv("PMIX_RANK", "0", 1);
  ASSERT_TRUE(launched_job());
  EXPECT_EQ(launched_job()->transport, "mpi");
  EXPECT_EQ(launched_job()->processes, 0);
  EXPECT_EQ(launched_job()->rank, 0);
}

}  // namespace
}  // namespace tersewire
