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
  EXPECT_EQ(join_network("in-process:rate=1gbit", 3).size(), 3U);
}

TEST(Transports, WhatThereIsNotIsRefused) {
  const auto refused = [](const char* text, const char* part) {
    expect_error(ErrorCode::kInvalidArgument, part, [&] { choose_transport(text); });
  };
  refused("pigeon", "unknown transport 'pigeon'; use in-process or mpi");
  refused("in-process:speed=1", "unknown parameter 'speed'; in-process has rate");
  refused("in-process:rate=fast", "rate must be a rate, as 10mbit, 1gbit or 2.5gbit, not 'fast'");
  refused("mpi:rate=1gbit", "limit that with lab/netlab");
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
