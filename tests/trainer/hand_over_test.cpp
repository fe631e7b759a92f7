// What members of a job hand each other, and what is refused of it.
#include "trainer/hand_over.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "expect_error.h"
#include "tersewire/communicator.h"
#include "trainer/tensor_file.h"

namespace tersewire::trainer {
namespace {

constexpr std::uint64_t kStep = 3;

MemberEntry member(const std::string& name, std::optional<std::uint32_t> base_rank) {
  return {.name = name, .newest = {}, .base_rank = base_rank};
}

// Rank 0 holds the state of a job of one, and rank 1 is new.
MemberList one_joins() {
  MemberList list{.generation = 2, .phase = JobPhase::kRuns, .base = {1, kStep}};
  list.base_workers = 1;
  list.workers = 2;
  list.members = {member("a", 0), member("b", std::nullopt)};
  return list;
}

std::shared_ptr<const NodeCheckpoint> state() {
  NodeCheckpoint own{.rank = 0, .step = kStep, .facts = {}, .arrays = {}};
  own.arrays["pushed/w@0"] = {{3}, {1, 2, 3}};
  own.arrays["pulled/w@0"] = {{3}, {4, 5, 6}};
  own.arrays["shared/parameters"] = {{2}, {7, 8}};
  return std::make_shared<const NodeCheckpoint>(std::move(own));
}

std::vector<float> values(const StoredArray& array) {
  std::vector<float> read(array.elems);
  array.read(0, read);
  return read;
}

// What rank 0 sends to rank 1 by itself.
Bytes handed_over() {
  auto ends = make_in_process_network(2);
  WorkersNetwork network(std::move(ends[0]), 2);
  const MemberList list = one_joins();
  EXPECT_TRUE(HandOver(list, 0).run(network, state(), Job::kColocated, {}));
  return *ends[1]->receive(std::chrono::seconds(60))->bytes;
}

// What rank 1 makes of it.
std::optional<JobCheckpoint> taken(Bytes bytes) {
  auto ends = make_in_process_network(2);
  ends[0]->send(1, std::make_shared<const Bytes>(std::move(bytes)));
  WorkersNetwork network(std::move(ends[1]), 2);
  const MemberList list = one_joins();
  return HandOver(list, 1).run(network, nullptr, Job::kColocated, {});
}

TEST(HandOver, ANewcomerGetsTheModelAndNobodysResidual) {
  const auto checkpoint = taken(handed_over());
  ASSERT_TRUE(checkpoint);
  ASSERT_EQ(checkpoint->nodes.size(), 1U);
  EXPECT_EQ(checkpoint->step(), kStep);
  const auto& arrays = checkpoint->nodes[0].arrays;
  EXPECT_EQ(values(arrays.at("shared/parameters")), (std::vector<float>{7, 8}));
  EXPECT_EQ(values(arrays.at("pulled/w@0")), (std::vector<float>{4, 5, 6}));
  EXPECT_EQ(values(arrays.at("pushed/w@0")), (std::vector<float>{0, 0, 0}));
}

TEST(HandOver, DamageIsRefused) {
  const Bytes good = handed_over();
  for (std::size_t i = 0; i < good.size(); ++i) {
    Bytes bytes = good;
    bytes[i] ^= std::byte{1};
    try {
      taken(std::move(bytes));
      ADD_FAILURE() << "byte " << i;
    } catch (const Error& error) {  // of another type where that is what the byte says
      EXPECT_TRUE(std::string(error.what()).starts_with("what 'a' hands over: ")) << error.what();
    }
  }
  for (const std::size_t size : {std::size_t{0}, std::size_t{7}, good.size() - 1}) {
    expect_error(ErrorCode::kDataLoss, "what 'a' hands over: ", [&] {
      taken(Bytes(good.begin(), good.begin() + static_cast<long>(size)));
    });
  }
}

TEST(HandOver, AnotherStepIsRefused) {
  expect_error(ErrorCode::kDataLoss, "it is of step '4', not of 3", [] {
    taken(tensor_file_bytes({.facts = {{"step", "4"}}, .arrays = {}}));
  });
  expect_error(ErrorCode::kDataLoss, "is 'many' and no length", [] {
    taken(tensor_file_bytes({.facts = {{"step", "3"}, {"zeros/pushed/w", "many"}}, .arrays = {}}));
  });
}

}  // namespace
}  // namespace tersewire::trainer
