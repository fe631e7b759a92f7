#include "cgroup_quota.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tersewire/thread_pool.h"

namespace tersewire {
namespace {

namespace fs = std::filesystem;

// The two directories of a machine that say what control groups allow.
class CgroupQuota : public testing::Test {
 protected:
  ~CgroupQuota() override { fs::remove_all(root_); }

  void write(const std::string& name, const std::string& text) {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  [[nodiscard]] std::optional<std::size_t> cores() const { return cores_of_quota(root_.string()); }

  const fs::path root_ =
      fs::path(testing::TempDir()) / ("cgroup_quota." + std::to_string(::getpid()));
};

TEST_F(CgroupQuota, Machine_without_control_groups_has_none) { EXPECT_FALSE(cores()); }

TEST_F(CgroupQuota, Quota_of_version_2_is_rounded_up) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/cpu.max", "150000 100000\n");
  EXPECT_EQ(cores(), 2U);
  write("sys/fs/cgroup/cpu.max", "20000 100000\n");
  EXPECT_EQ(cores(), 1U);
}

TEST_F(CgroupQuota, Group_without_a_limit_has_none) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_FALSE(cores());
}

TEST_F(CgroupQuota, Smallest_quota_of_a_group_and_its_parents_counts) {
  write("proc/self/cgroup", "0::/pod/worker\n");
  write("sys/fs/cgroup/pod/worker/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/pod/cpu.max", "300000 100000\n");
  EXPECT_EQ(cores(), 3U);
  write("sys/fs/cgroup/pod/worker/cpu.max", "200000 100000\n");
  EXPECT_EQ(cores(), 2U);
}

TEST_F(CgroupQuota, Quota_of_version_1_is_that_of_its_cpu_controller) {
  write("proc/self/cgroup", "12:memory:/job\n4:cpu,cpuacct:/job\n0::/\n");
  write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "400000\n");
  write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cores(), 4U);
  write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
  EXPECT_FALSE(cores());
}

// The host's name of its group, in a container that sees that alone.
TEST_F(CgroupQuota, Quota_of_a_container_is_found_where_its_own_path_is_not) {
  write("proc/self/cgroup", "4:cpu,cpuacct:/docker/0123\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cores(), 1U);
}

TEST(AllowedCores, Are_no_more_than_the_quota) {
  EXPECT_LE(allowed_cores(), cores_of_quota().value_or(allowed_cores()));
}

}  // namespace
}  // namespace tersewire
