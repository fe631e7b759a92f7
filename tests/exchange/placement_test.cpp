// How tensors are cut into parts, spread over servers and put into buckets, without any exchange.
#include "../../src/exchange/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "../../src/communicator/place_job.h"
#include "../../src/exchange/strategies/ring_layout.h"
#include "apps/bench/model_tensors.h"
#include "tersewire/error.h"

namespace tersewire {
namespace {

constexpr int kMostServers = 1024;

Job job_with(std::vector<TensorInfo> tensors) {
  Job job;
  job.tensors = std::move(tensors);
  return job;
}

// A transformer of 8.0 billion values: 32 layers of 4096, 32,000 tokens that are embedded once more
// at the end.
std::vector<TensorInfo> transformer() {
  constexpr std::uint64_t kWidth = 4096;
  constexpr std::uint64_t kHidden = 14336;
  constexpr std::uint64_t kTokens = 128256;
  std::vector<TensorInfo> tensors{{"tokens", {kTokens, kWidth}, TensorKind::kEmbedding}};
  for (int layer = 0; layer < 32; ++layer) {
    const auto add = [&](const char* name, std::vector<std::uint64_t> shape) {
      tensors.push_back({std::to_string(layer) + name, std::move(shape), TensorKind::kDense});
    };
    add("query", {kWidth, kWidth});
    add("key", {kWidth / 4, kWidth});
    add("value", {kWidth / 4, kWidth});
    add("output", {kWidth, kWidth});
    add("gate", {kHidden, kWidth});
    add("up", {kHidden, kWidth});
    add("down", {kWidth, kHidden});
    add("attention norm", {kWidth});
    add("feed-forward norm", {kWidth});
  }
  tensors.push_back({"norm", {kWidth}, TensorKind::kNorm});
  tensors.push_back({"logits", {kTokens, kWidth}, TensorKind::kDense});
  return tensors;
}

// Parts are numbered as they lie, and every element is in one.
void expect_covers(const Job& job, const std::vector<Part>& parts) {
  std::size_t number = 0;
  for (std::size_t tensor = 0; tensor < job.tensors.size(); ++tensor) {
    std::size_t begin = 0;
    do {
      ASSERT_LT(number, parts.size());
      const Part& part = parts[number];
      ASSERT_EQ(part, (Part{number, tensor, begin, part.elems}));
      ASSERT_EQ(begin % 4, 0U);
      ASSERT_LE(part.elems, job.part_values);
      begin += part.elems;
      ++number;
    } while (begin < job.tensors[tensor].elems());
    ASSERT_EQ(begin, job.tensors[tensor].elems());
  }
  ASSERT_EQ(number, parts.size());
}

std::uint64_t values_of(const Job& job) {
  std::uint64_t values = 0;
  for (const TensorInfo& tensor : job.tensors) values += tensor.elems();
  return values;
}

// Of the tensors that are too short to be cut for balance.
double longest_uncut(const Job& job) {
  std::size_t longest = 0;
  for (const TensorInfo& tensor : job.tensors) {
    if (tensor.elems() < 2 * kLeastPartElems) longest = std::max(longest, tensor.elems());
  }
  return static_cast<double>(longest);
}

// What the busiest server holds, in shares.
double busiest(const PartTable& table, std::size_t servers) {
  std::vector<std::uint64_t> held(servers, 0);
  std::uint64_t total = 0;
  for (const Part& part : table.parts) {
    held[table.servers[part.number]] += part.elems;
    total += part.elems;
  }
  const double share = static_cast<double>(total) / static_cast<double>(servers);
  return static_cast<double>(std::ranges::max(held)) / share;
}

std::vector<std::string> models() {
  std::vector<std::string> names = bench::model_names();
  names.emplace_back("transformer");
  return names;
}

class PlacementTest : public testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] static Job job() {
    return job_with(GetParam() == "transformer" ? transformer() : bench::model_tensors(GetParam()));
  }
};

TEST_P(PlacementTest, NoServerHoldsMuchMoreThanItsShare) {
  const Job model = job();
  for (std::size_t servers = 1; servers <= kMostServers;
       servers += servers < 20 ? 1 : servers / 9) {
    SCOPED_TRACE(servers);
    ASSERT_GE(most_owners(model), servers);
    const PartTable table = cut_tensors(model, servers);
    const double share = static_cast<double>(values_of(model)) / static_cast<double>(servers);
    expect_covers(model, table.parts);
    EXPECT_LE(busiest(table, servers), std::max(1.05, longest_uncut(model) / share));
  }
}

// A few more parts than the longest allowed would make, so that frames cost next to nothing.
TEST_P(PlacementTest, BalanceCutsFewMoreThanOnceAServer) {
  const Job model = job();
  const std::size_t uncut = cut_tensors(model, 0).parts.size();
  for (const std::size_t servers : {1, 2, 8, 64, kMostServers}) {
    EXPECT_LE(cut_tensors(model, servers).parts.size(), uncut + 2 * servers) << servers;
  }
}

TEST_P(PlacementTest, WholeTensorsStayWhole) {
  Job model = job();
  model.part_values = Job::kWholeTensors;
  const PartTable table = cut_tensors(model, 8);
  expect_covers(model, table.parts);
  EXPECT_EQ(table.parts.size(), model.tensors.size());
  EXPECT_EQ(most_owners(model), model.tensors.size());
}

std::string name_of(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, PlacementTest, testing::ValuesIn(models()), name_of);

TEST(Placement, CutsAtTheLongestPart) {
  Job job = job_with({{"a", {1000}}, {"b", {}}, {"c", {0}}});
  job.part_values = 400;
  const std::vector<Part> expected{
      {0, 0, 0, 400}, {1, 0, 400, 400}, {2, 0, 800, 200}, {3, 1, 0, 1}, {4, 2, 0, 0}};
  EXPECT_EQ(cut_tensors(job, 0).parts, expected);
  EXPECT_EQ(job_parts([&] {
              job.exchange = "ring";
              job.push_codec = "fp32";
              return job;
            }()),
            expected);
}

// Each server's share is 1000 values, and the small tensor stays whole.
TEST(Placement, CutsWhatIsMoreThanAShare) {
  const Job job = job_with({{"a", {1600}}, {"b", {400}}});
  const PartTable table = cut_tensors(job, 2);
  EXPECT_EQ(table.parts, (std::vector<Part>{{0, 0, 0, 1000}, {1, 0, 1000, 600}, {2, 1, 0, 400}}));
  EXPECT_EQ(table.servers, (std::vector<std::size_t>{1, 0, 0}));
}

// The job that a node of the ring makes of 8 billion values: 64 workers and 1,024, flat and in
// groups. No hop carries less than 64 KiB of gradients, and there are no more buckets than 4,096.
TEST(Placement, ALargeModelsRingHasLongMessagesAndFewBuckets) {
  constexpr std::size_t kLeastElems = (std::size_t{1} << 16) / sizeof(float);
  for (const int workers : {64, 1024}) {
    for (const char* exchange : {"ring", "hierarchical-ring", "hierarchical-ring:top=tree"}) {
      SCOPED_TRACE(std::string(exchange) + ", " + std::to_string(workers));
      Job job = job_with(transformer());
      job.workers = workers;
      job.exchange = exchange;
      job.push_codec = job.pull_codec = "int8";
      job.policy = "";
      const RingLayout layout(place_job(job));
      EXPECT_LE(layout.buckets().size(), 4096U);
      // What is left over may be shorter: a bucket of each kind of tensor.
      std::size_t shorter = 0;
      for (std::size_t bucket = 0; bucket < layout.buckets().size(); ++bucket) {
        const std::size_t last = layout.pieces() - 1;
        shorter += layout.extent(bucket, {.first = last, .count = 1}).elems < kLeastElems ? 1 : 0;
      }
      EXPECT_LE(shorter, 3U);
    }
  }
}

// Consecutive parts go to different servers, so that all links carry each stretch of the backward
// pass.
TEST(Placement, NeighboursHaveDifferentServers) {
  const Job job = job_with({{"a", {64 * Job::kDefaultPartValues}}});
  const PartTable table = cut_tensors(job, 8);
  ASSERT_EQ(table.parts.size(), 64U);
  for (std::size_t i = 8; i < 64; ++i) {
    std::vector<std::size_t> seen(table.servers.begin() + static_cast<std::ptrdiff_t>(i - 8),
                                  table.servers.begin() + static_cast<std::ptrdiff_t>(i));
    std::ranges::sort(seen);
    ASSERT_TRUE(std::ranges::unique(seen).empty()) << i;
  }
}

TEST(Placement, RefusesPartsThatDoNotBeginWithABlockOfRandomNumbers) {
  Job job = job_with({{"a", {1000}}});
  for (const std::size_t values : {0, 2, 258, 1001}) {
    job.part_values = values;
    try {
      job_parts(job);
      ADD_FAILURE() << values;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find("use a multiple of 4, or whole"), std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace tersewire
