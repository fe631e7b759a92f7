// What members of a job hand each other, and what is refused of it.
#include "trainer/members/hand_over.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "expect_error.h"
#include "tersewire/communicator.h"
#include "trainer/files/tensor_file.h"
#include "trainer/members/packed_floats.h"

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
  NodesNetwork network(std::move(ends[0]), 2);
  const MemberList list = one_joins();
  EXPECT_TRUE(HandOver(list, 0).run(network, state(), Job::kColocated, {}));
  return *ends[1]->receive(std::chrono::seconds(60))->bytes;
}

// What rank 1 makes of it.
std::optional<JobCheckpoint> taken(Bytes bytes) {
  auto ends = make_in_process_network(2);
  ends[0]->send(1, std::make_shared<const Bytes>(std::move(bytes)));
  NodesNetwork network(std::move(ends[1]), 2);
  const MemberList list = one_joins();
  return HandOver(list, 1).run(network, nullptr, Job::kColocated, {});
}

// Residuals of pushes and of results; not where others know what was sent, or have a copy.
TEST(HandOver, WhatDiesWithANodeIsKnown) {
  NodeCheckpoint own = *state();
  EXPECT_DOUBLE_EQ(undelivered(own, "3lc"), std::sqrt(1 + 4 + 9 + 16 + 25 + 36));
  EXPECT_DOUBLE_EQ(undelivered(own, "3lc:ef=21"), std::sqrt(16 + 25 + 36));
  own.arrays["server/w@0"] = {{1}, {9}};
  EXPECT_DOUBLE_EQ(undelivered(own, "3lc"), std::sqrt(1 + 4 + 9));
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

// Of three workers, on whose nodes servers own a part of the model each, these are left.
MemberList left_of_three(const std::vector<std::uint32_t>& base_ranks) {
  MemberList list{.generation = 2, .phase = JobPhase::kRuns, .base = {1, kStep}};
  list.base_workers = 3;
  list.workers = static_cast<std::uint32_t>(base_ranks.size());
  for (const std::uint32_t rank : base_ranks) {
    list.members.push_back(member("w" + std::to_string(rank), rank));
  }
  return list;
}

std::shared_ptr<const NodeCheckpoint> state_with_server(std::uint32_t base_rank) {
  const auto value = static_cast<float>(base_rank);
  const float before = base_rank == 0 ? 2 : value - 1;
  NodeCheckpoint own{.rank = 0, .step = kStep, .facts = {}, .arrays = {}};
  own.arrays["model/w"] = {{3}, {7, 8, 9}};
  own.arrays["pushed/w"] = {{3}, {value, value, value}};
  const std::string at = "@" + std::to_string(base_rank);
  const std::string at_before = "@" + std::to_string(static_cast<int>(before));
  for (const char* group : {"server/w", "pulled/w", "momentum/w"}) {
    own.arrays[group + at] = {{1}, {value}};
    own.copies[group + at_before] = {{1}, {before}};
  }
  return std::make_shared<const NodeCheckpoint>(std::move(own));
}

TEST(HandOver, WhatAServerHadIsThereWhereItsNodeHasDied) {
  const MemberList list = left_of_three({2, 0});
  auto ends = make_in_process_network(2);
  NodesNetwork first(std::move(ends[0]), 2);
  NodesNetwork second(std::move(ends[1]), 2);
  std::optional<JobCheckpoint> of_first;
  std::thread other(
      [&] { of_first = HandOver(list, 0).run(first, state_with_server(2), Job::kColocated, {}); });
  const std::optional<JobCheckpoint> of_second =
      HandOver(list, 1).run(second, state_with_server(0), Job::kColocated, {});
  other.join();
  for (const std::optional<JobCheckpoint>* checkpoint : {&std::as_const(of_first), &of_second}) {
    ASSERT_TRUE(*checkpoint);
    std::map<std::string, std::vector<float>> found;
    for (const StoredNode& node : (*checkpoint)->nodes) {
      for (const auto& [key, array] : node.arrays) {
        if (!is_of_server(key)) continue;
        EXPECT_FALSE(found.contains(key)) << key;
        found[key] = values(array);
      }
    }
    EXPECT_EQ(found.size(), 9U);
    for (const char* group : {"server/w@", "pulled/w@", "momentum/w@"}) {
      for (int rank = 0; rank < 3; ++rank) {
        EXPECT_EQ(found[group + std::to_string(rank)],
                  std::vector<float>{static_cast<float>(rank)});
      }
    }
    // Of the one who has died nothing else is known.
    EXPECT_TRUE((*checkpoint)->nodes[2].arrays.empty());
  }
}

TEST(HandOver, AServerThatDiedWithItsCopyIsMissed) {
  auto ends = make_in_process_network(1);
  NodesNetwork network(std::move(ends[0]), 1);
  const MemberList list = left_of_three({0});
  expect_error(ErrorCode::kFailedPrecondition, "1 and 2 in generation 1",
               [&] { HandOver(list, 0).run(network, state_with_server(0), Job::kColocated, {}); });
}

// Two workers and two servers, of whom a worker has left and one is new, and a server hands over.
MemberList servers_apart() {
  MemberList list{.generation = 2, .phase = JobPhase::kRuns, .base = {1, kStep}};
  list.base_workers = 2;
  list.base_servers = 2;
  list.workers = 2;
  list.servers = 1;
  list.members = {member("b", 1), member("c", std::nullopt), member("t", 3), member("s", 2)};
  list.members[2].serves = list.members[3].serves = true;
  return list;
}

std::shared_ptr<const NodeCheckpoint> state_of_worker() {
  NodeCheckpoint own{.rank = 0, .step = kStep, .facts = {{"data", "1"}}, .arrays = {}};
  own.arrays["model/w"] = {{2}, {7, 8}};
  own.arrays["pushed/w"] = {{2}, {1, 2}};
  own.arrays["shared/w"] = {{2}, {5, 6}};
  return std::make_shared<const NodeCheckpoint>(std::move(own));
}

std::shared_ptr<const NodeCheckpoint> state_of_server(float value) {
  const std::string at = value == 2 ? "@0" : "@1";
  NodeCheckpoint own{.rank = 0, .step = kStep, .facts = {}, .arrays = {}};
  for (const char* group : {"server/w", "pulled/w", "momentum/w"}) {
    own.arrays[group + at] = {{1}, {value}};
  }
  return std::make_shared<const NodeCheckpoint>(std::move(own));
}

// What each member of a list makes of what all hand over.
std::vector<std::optional<JobCheckpoint>> handed_among(
    const MemberList& list, const std::vector<std::shared_ptr<const NodeCheckpoint>>& states) {
  auto ends = make_in_process_network(static_cast<int>(states.size()));
  std::vector<std::optional<JobCheckpoint>> taken(states.size());
  std::vector<std::thread> members;
  for (std::size_t rank = 0; rank < states.size(); ++rank) {
    members.emplace_back([&, rank] {
      NodesNetwork network(std::move(ends[rank]), static_cast<int>(list.nodes()));
      taken[rank] =
          HandOver(list, static_cast<int>(rank)).run(network, states[rank], std::nullopt, {});
    });
  }
  for (std::thread& member : members) member.join();
  return taken;
}

TEST(HandOver, WorkersAndServersEachHandOverToTheirOwn) {
  const auto taken = handed_among(
      servers_apart(), {state_of_worker(), nullptr, state_of_server(3), state_of_server(2)});
  EXPECT_FALSE(taken[3]);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(taken[rank]);
    EXPECT_EQ(taken[rank]->workers, 2);
    EXPECT_EQ(taken[rank]->servers, 2);
    EXPECT_TRUE(taken[rank]->reordered);
    const std::vector<StoredNode>& nodes = taken[rank]->nodes;
    ASSERT_EQ(nodes.size(), 4U);
    EXPECT_EQ(nodes[0].facts.at("data"), "1");
    EXPECT_EQ(values(nodes[0].arrays.at("shared/w")), (std::vector<float>{5, 6}));
    EXPECT_FALSE(nodes[1].arrays.contains("model/w"));  // of the dead, but what all have alike
    const bool serves = rank == 2;
    EXPECT_EQ(nodes[0].arrays.contains("model/w"), !serves);
    EXPECT_EQ(nodes[0].arrays.contains("pushed/w"), !serves);
    EXPECT_EQ(nodes[2].arrays.size(), serves ? 3U : 0U);
    EXPECT_EQ(nodes[3].arrays.size(), serves ? 3U : 0U);
  }
  const std::vector<StoredNode>& of_server = taken[2]->nodes;
  for (const std::string group : {"server/w@", "pulled/w@", "momentum/w@"}) {
    EXPECT_EQ(values(of_server[2].arrays.at(group + "1")), std::vector<float>{3});
    EXPECT_EQ(values(of_server[3].arrays.at(group + "0")), std::vector<float>{2});
  }
  // The newcomer has the model, and nobody's residual.
  EXPECT_EQ(values(taken[1]->nodes[0].arrays.at("model/w")), (std::vector<float>{7, 8}));
  EXPECT_EQ(values(taken[1]->nodes[0].arrays.at("pushed/w")), (std::vector<float>{0, 0}));
}

TEST(HandOver, WhatAServerHadIsAtTheNextWhereItHasDied) {
  MemberList list = servers_apart();
  list.members.pop_back();
  auto keeper = std::make_shared<NodeCheckpoint>(*state_of_server(3));
  keeper->copies = state_of_server(2)->arrays;
  const auto taken = handed_among(list, {state_of_worker(), nullptr, keeper});
  const std::vector<StoredNode>& of_server = taken.at(2)->nodes;
  for (const std::string group : {"server/w@", "pulled/w@", "momentum/w@"}) {
    EXPECT_EQ(values(of_server[2].arrays.at(group + "1")), std::vector<float>{3});
    EXPECT_EQ(values(of_server[2].arrays.at(group + "0")), std::vector<float>{2});
  }
  EXPECT_TRUE(of_server[3].arrays.empty());
  EXPECT_TRUE(taken[0]->nodes[2].arrays.empty());  // no worker needs it
  // Of three, two that are neighbours.
  list.base_servers = 3;
  list.workers = 1;
  list.servers = 2;
  list.members = {member("b", 1), member("t", 3), member("u", std::nullopt)};
  list.members[1].serves = list.members[2].serves = true;
  auto ends = make_in_process_network(3);
  NodesNetwork network(std::move(ends[1]), 3);
  expect_error(ErrorCode::kFailedPrecondition, "the servers that were 4 and 2 in generation 1",
               [&] { HandOver(list, 1).run(network, keeper, std::nullopt, {}); });
}

TEST(HandOver, WithoutAWorkerThatHoldsTheStateNothingGoesOn) {
  MemberList list = servers_apart();
  list.members[0].base_rank.reset();
  auto ends = make_in_process_network(1);
  NodesNetwork network(std::move(ends[0]), 1);
  expect_error(ErrorCode::kFailedPrecondition, "no worker holds the state after step 3",
               [&] { HandOver(list, 0).run(network, nullptr, 2, {}); });
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
      EXPECT_TRUE(std::string(error.what()).starts_with("the hand-over from 'a': "))
          << error.what();
    }
  }
  for (const std::size_t size : {std::size_t{0}, std::size_t{7}, good.size() - 1}) {
    expect_error(ErrorCode::kDataLoss, "the hand-over from 'a': ", [&] {
      taken(Bytes(good.begin(), good.begin() + static_cast<long>(size)));
    });
  }
}

TEST(HandOver, AnotherStepIsRefused) {
  expect_error(ErrorCode::kDataLoss, "it is of step '4', not of 3", [] {
    taken(pack_floats(tensor_file_bytes({.facts = {{"step", "4"}}, .arrays = {}})));
  });
  expect_error(ErrorCode::kDataLoss, "is 'many', not a length", [] {
    taken(pack_floats(
        tensor_file_bytes({.facts = {{"step", "3"}, {"zeros/pushed/w", "many"}}, .arrays = {}})));
  });
}

}  // namespace
}  // namespace tersewire::trainer
