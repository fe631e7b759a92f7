// The exchanges ring and hierarchical-ring over threads as ranks: what they add up in which order,
// what they send, and what they refuse.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "exchange_test_support.h"

namespace tersewire {
namespace {

struct Case {
  int workers;
  int group;
  bool tree;
};

std::string name_of(const testing::TestParamInfo<Case>& info) {
  return std::to_string(info.param.workers) + "_in_" + std::to_string(info.param.group) +
         (info.param.tree ? "_tree" : "_ring");
}

std::string exchange_of(const Case& test) {
  return "hierarchical-ring:group=" + std::to_string(test.group) +
         (test.tree ? ",top=tree" : ",top=ring");
}

// Lengths that do not divide, and one below any number of blocks.
Job job_of(const Case& test, const std::string& codec) {
  Job job = make_job(test.workers, 0, codec);
  job.tensors.push_back({"few", {3}, TensorKind::kBias});
  job.exchange = exchange_of(test);
  job.servers.reset();
  job.policy = "";
  job.bucket_bytes = 1;  // every tensor by itself
  return job;
}

Outcome run_one_step(const Job& job) {
  Outcome outcome = run_job(job, {.steps = 1, .before_step = {}, .gradient = {}});
  expect_no_errors(outcome);
  for (const Model& replica : outcome.replicas) expect_equal_bits(outcome.replicas[0], replica);
  return outcome;
}

// What is at `index` where `elems` values are cut into `parts`: the number of its part, its index
// in there, and that part's length.
struct Part {
  int number;
  std::size_t index;
  std::size_t elems;
};

Part part_of(std::size_t index, std::size_t elems, int parts) {
  const std::size_t full =
      (elems + static_cast<std::size_t>(parts) - 1) / static_cast<std::size_t>(parts);
  const std::size_t number = index / full;
  return {static_cast<int>(number), index % full, std::min(full, elems - number * full)};
}

// Added up from number `first` of `size` on, around the ring.
float sum_around(int first, int size, const std::function<float(int)>& value) {
  float sum = value(first);
  for (int hop = 1; hop < size; ++hop) sum += value((first + hop) % size);
  return sum;
}

// The mean in the order that docs/exchanges.md states.
float mean_in_order(const Case& test, std::size_t tensor, std::size_t elems, std::size_t i) {
  const int groups = test.workers / test.group;
  const Part block = part_of(i, elems, test.group);
  const auto group_sum = [&](int group) {
    return sum_around(block.number, test.group, [&](int member) {
      return gradient_value(group * test.group + member, 1, tensor, i);
    });
  };
  const int first = test.tree ? 0 : part_of(block.index, block.elems, groups).number;
  return sum_around(first, groups, group_sum) * (1.0F / static_cast<float>(test.workers));
}

class RingTest : public testing::TestWithParam<Case> {};

TEST_P(RingTest, SumsAreThePlainSumsInTheStatedOrderForFp32) {
  const Job job = job_of(GetParam(), "fp32");
  const Outcome outcome = run_one_step(job);
  for (std::size_t tensor = 0; tensor < job.tensors.size(); ++tensor) {
    const auto& values = outcome.replicas[0][tensor];
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], -mean_in_order(GetParam(), tensor, values.size(), i))
          << tensor << ", " << i;
    }
  }
}

// Encodings whose errors add up in a sum: one for each worker's message that carries it, and the
// last.
int encodings(const Case& test) { return test.workers + (test.tree ? 1 : 0); }

void expect_means_within(const Case& test, const std::string& codec, double error_of_mean) {
  const Job job = job_of(test, codec);
  const Outcome outcome = run_one_step(job);
  double largest = 0;
  for (std::size_t tensor = 0; tensor < job.tensors.size(); ++tensor) {
    const auto& values = outcome.replicas[0][tensor];
    for (std::size_t i = 0; i < values.size(); ++i) {
      double mean = 0;
      for (int worker = 0; worker < test.workers; ++worker) {
        mean += gradient_value(worker, 1, tensor, i);
      }
      mean /= test.workers;
      largest = std::max(largest, std::abs(-values[i] - mean));
    }
  }
  EXPECT_LE(largest, error_of_mean + 1e-5) << codec;
  EXPECT_GT(largest, 0) << codec;
}

TEST_P(RingTest, ErrorsAreWithinTheirBoundsTimesTheEncodings) {
  const double share = static_cast<double>(encodings(GetParam())) / GetParam().workers;
  expect_means_within(GetParam(), "inceptionn:bound=2^-8", share / 256);
  // Half a step of a sum of values of at most 1; the errors before may have made it larger.
  const double largest_sum = GetParam().workers * 1.05;
  expect_means_within(GetParam(), "int8", share * largest_sum / 254);
}

TEST_P(RingTest, ARunRepeatsToTheBitWithRandomCodecs) {
  expect_a_run_repeats(job_of(GetParam(), "qsgd"));
}

TEST_P(RingTest, InfinitiesReachEveryone) {
  const Job job = job_of(GetParam(), "int8");
  const auto overflow = [](int worker, std::uint64_t step, std::vector<float>& values) {
    if (worker == 0 && step == 2) values.front() = std::numeric_limits<float>::infinity();
  };
  const Outcome outcome = run_job(job, {.steps = 4, .before_step = {}, .gradient = overflow});
  expect_no_errors(outcome);
  std::uint64_t not_finite = 0;
  for (const Counters& counters : outcome.counters) not_finite += counters.not_finite_tensors;
  EXPECT_GE(not_finite, job.tensors.size());
  for (const Model& replica : outcome.replicas) {
    expect_equal_bits(outcome.replicas[0], replica);
    for (const auto& values : replica) {
      EXPECT_EQ(values.front(), -std::numeric_limits<float>::infinity());
      EXPECT_TRUE(std::isfinite(values.back()));
    }
  }
}

// A message with a frame of so many values for each of these pieces.
std::uint64_t message_bytes(std::size_t values, const std::vector<std::size_t>& pieces) {
  MessageWriter writer({});
  const Bytes payload(values * sizeof(float));
  for (const std::size_t piece : pieces) {
    writer.add({.tensor = 0,
                .part = static_cast<std::uint32_t>(piece),
                .codec = CodecId::kFp32,
                .not_finite = false,
                .description = std::nullopt,
                .payload = payload});
  }
  return writer.take().size();
}

// What a worker sends of a bucket of so many values: in its group's ring sums of all blocks but
// one, and complete ones of all but one.
std::uint64_t bytes_of_step(const Case& test, std::size_t rank, std::size_t elems) {
  const auto group = static_cast<std::size_t>(test.group);
  const std::size_t groups = static_cast<std::size_t>(test.workers) / group;
  const std::size_t pieces = test.tree ? 1 : groups;  // of a block
  const std::size_t member = rank % group;
  const std::size_t own = (member + 1) % group;
  std::uint64_t bytes = 0;
  for (std::size_t block = 0; block < group; ++block) {
    if (block != own) bytes += message_bytes(elems / group, {block * pieces});
    if (block == (member + 2) % group) continue;
    std::vector<std::size_t> whole;
    for (std::size_t piece = 0; piece < pieces; ++piece) whole.push_back(block * pieces + piece);
    if (group > 1) bytes += message_bytes(elems / group / pieces, whole);
  }
  if (test.tree) return bytes + message_bytes(elems / group, {own});
  // The same between the groups, of its own block.
  for (std::size_t piece = 0; piece < groups; ++piece) {
    const std::uint64_t message = message_bytes(elems / group / groups, {own * groups + piece});
    if (piece != (rank / group + 1) % groups) bytes += message;
    if (piece != (rank / group + 2) % groups) bytes += message;
  }
  return bytes;
}

TEST_P(RingTest, SendsWhatItsFormulaSays) {
  constexpr std::size_t kElems = 720;  // every case's number of workers divides it
  constexpr std::uint64_t kSteps = 2;
  Job job = job_of(GetParam(), "fp32");
  job.tensors = {{"one", {kElems}, TensorKind::kDense}};
  job.checksum_steps = 0;
  const Outcome outcome = run_job(job, {.steps = kSteps, .before_step = {}, .gradient = {}});
  expect_no_errors(outcome);

  const auto group = static_cast<std::size_t>(GetParam().group);
  const auto workers = static_cast<std::size_t>(GetParam().workers);
  const std::uint64_t done = GetParam().tree ? message_bytes(0, {}) : 0;
  for (std::size_t rank = 0; rank < workers; ++rank) {
    EXPECT_EQ(outcome.counters[rank].pushed_bytes,
              kSteps * bytes_of_step(GetParam(), rank, kElems) + done)
        << rank;
    EXPECT_EQ(outcome.counters[rank].pushed_values, outcome.counters[rank].pulled_values);
    EXPECT_EQ(outcome.counters[rank].pushed_values,
              kSteps * (GetParam().tree ? (2 * group - 1) * kElems / group
                                        : 2 * (workers - 1) * kElems / workers));
  }
  if (!GetParam().tree) return;
  std::uint64_t sums = 0;
  for (std::size_t block = 0; block < group; ++block) {
    sums += workers / group * message_bytes(kElems / group, {block});
  }
  const Counters& server = outcome.counters.back();
  EXPECT_EQ(server.pulled_bytes, kSteps * sums);
  EXPECT_EQ(server.pushed_bytes, server.pulled_bytes + workers * done);
}

INSTANTIATE_TEST_SUITE_P(All, RingTest,
                         testing::Values(Case{1, 1, false}, Case{2, 1, false}, Case{2, 2, false},
                                         Case{3, 1, false}, Case{3, 3, false}, Case{4, 2, false},
                                         Case{6, 2, false}, Case{6, 3, false}, Case{6, 6, false},
                                         Case{8, 2, false}, Case{8, 4, false}, Case{9, 3, false},
                                         Case{1, 1, true}, Case{2, 1, true}, Case{2, 2, true},
                                         Case{4, 2, true}, Case{6, 3, true}, Case{8, 2, true},
                                         Case{9, 3, true}),
                         name_of);

void expect_alike(const Job& a, const Job& b) {
  const Outcome first = run_job(a);
  const Outcome second = run_job(b);
  expect_no_errors(first);
  expect_no_errors(second);
  expect_equal_bits(first.replicas[0], second.replicas[0]);
  for (std::size_t rank = 0; rank < first.replicas.size(); ++rank) {
    EXPECT_EQ(first.counters[rank].pushed_bytes, second.counters[rank].pushed_bytes);
  }
}

TEST(Ring, IsTheHierarchyOfOneGroupAndOfGroupsOfOne) {
  for (const char* codec : {"int8:ef=on", "qsgd", "inceptionn"}) {
    for (const int workers : {2, 5}) {
      Job ring = job_of({.workers = workers, .group = 1, .tree = false}, codec);
      ring.exchange = "ring";
      expect_alike(ring, job_of({.workers = workers, .group = 1, .tree = false}, codec));
      expect_alike(ring, job_of({.workers = workers, .group = workers, .tree = false}, codec));
    }
  }
}

TEST(HierarchicalRing, GroupsAreNearTheSquareRootUnlessSaid) {
  const std::vector<std::pair<int, int>> groups{{1, 1}, {2, 2}, {4, 2}, {6, 3}, {7, 7}, {8, 4}};
  for (const auto& [workers, group] : groups) {
    const Job said = job_of({.workers = workers, .group = group, .tree = false}, "int8");
    Job unsaid = said;
    unsaid.exchange = "hierarchical-ring";
    expect_alike(said, unsaid);
  }
}

TEST(HierarchicalRing, TheNumberOfServersChangesNoBit) {
  const Job one = job_of({.workers = 6, .group = 3, .tree = true}, "int8:ef=on");
  for (const int servers : {2, 3}) {
    Job more = one;
    more.servers = servers;
    const Outcome alone = run_job(one);
    const Outcome shared = run_job(more);
    expect_no_errors(shared);
    expect_equal_bits(alone.replicas[0], shared.replicas[0]);
    for (std::size_t rank = 6; rank < shared.counters.size(); ++rank) {
      EXPECT_GT(shared.counters[rank].pulled_values, 0U) << rank;
    }
  }
}

// Whatever a sum was sent with, it is encoded once on its way down.
TEST(HierarchicalRing, ServersSendSumsWithAnyCodec) {
  Job job = make_job(4, 1, "int8:ef=on");
  job.exchange = "hierarchical-ring:group=2,top=tree";
  job.pull_codec = "3lc";
  expect_everything_pushed_arrives(job);
  expect_a_run_repeats(job);
}

struct Said {
  int from;
  MessageKind kind;
  std::uint64_t step;
  std::vector<std::uint32_t> pieces;
  std::size_t values = 2;  // of each
  CodecId codec = CodecId::kFp32;
  std::uint32_t bucket = 0;
};

void say(Transport& from, int to, const Said& said) {
  MessageWriter writer({said.kind, static_cast<std::uint32_t>(said.from), said.step});
  Bytes ones;
  for (std::size_t i = 0; i < said.values; ++i) {
    const float one = 1;
    const auto* bytes = reinterpret_cast<const std::byte*>(&one);
    ones.insert(ones.end(), bytes, bytes + sizeof(one));
  }
  for (const std::uint32_t piece : said.pieces) {
    writer.add({.tensor = said.bucket,
                .part = piece,
                .codec = said.codec,
                .not_finite = false,
                .description = std::nullopt,
                .payload = ones});
  }
  from.send(to, std::make_shared<const Bytes>(writer.take()));
}

// Eight values, that is four pieces; worker 0 of two groups of two gets what the test makes up.
Job small_job() {
  Job job = make_job(4, 0, "fp32");
  job.tensors = {{"eight", {8}, TensorKind::kDense}};
  job.exchange = "hierarchical-ring:group=2";
  job.progress_limit = std::chrono::seconds(5);
  return job;
}

// What worker 0 takes in a step: the group's sum of block 1, then, of that block, a sum of piece 3
// and the whole piece 2 from the other group, then block 0 whole.
const std::vector<Said> kRight{{1, MessageKind::kPush, 1, {2}, 4},
                               {2, MessageKind::kPush, 1, {3}},
                               {2, MessageKind::kPull, 1, {2}},
                               {1, MessageKind::kPull, 1, {0, 1}}};

std::vector<float> pull_after(const std::vector<Said>& messages) {
  const Job job = small_job();
  const auto ends = make_in_process_network(4);
  Model replica = zeros(job);
  Model own = zeros(job);
  // All are there before the worker, which ends the job for whoever still sends.
  for (const Said& said : messages) say(*ends[static_cast<std::size_t>(said.from)], 0, said);
  const auto worker = make_communicator(job, *ends[0], descend(own));
  try {
    worker->begin_step();
    worker->push(0, std::vector<float>(8, 10.0F));
    worker->begin_step();
    worker->pull(0, replica[0]);
  } catch (const Error&) {
    EXPECT_EQ(replica, zeros(job));
    EXPECT_THROW(ends[3]->receive(std::chrono::milliseconds(0)), Error);
    throw;
  }
  return replica[0];
}

TEST(HierarchicalRing, AWorkerTakesWhatItsPeersMaySend) {
  // Pieces 0, 1 and 2 came whole; piece 3 is 10 of its own and 1 from each peer's sums.
  EXPECT_EQ(pull_after(kRight),
            (std::vector<float>{-.25F, -.25F, -.25F, -.25F, -.25F, -.25F, -3, -3}));
  // In the order of each sender, whoever comes first.
  EXPECT_EQ(pull_after({kRight[1], kRight[2], kRight[0], kRight[3]}), pull_after(kRight));
}

TEST(HierarchicalRing, RubbishFromAPeerEndsTheJobWithItsName) {
  const std::vector<Said> wrong{{3, MessageKind::kPush, 1, {2}, 4},  // nothing goes from 3 to 0
                                {1, MessageKind::kPush, 1, {}},      // nothing in it
                                {1, MessageKind::kDone, 1, {}},      // not for workers
                                {1, MessageKind::kPush, 1, {4}, 4},  // no such piece
                                {1, MessageKind::kPush, 1, {4000000000U}, 4},  // nor such a number
                                {1, MessageKind::kPush, 1, {2}, 4, CodecId::kFp32, 1},  // bucket
                                {1, MessageKind::kPush, 1, {0}, 4},  // another block
                                {1, MessageKind::kPush, 1, {3}, 4},  // no block
                                {1, MessageKind::kPull, 1, {2}, 4},  // another kind
                                {1, MessageKind::kPush, 1, {2, 3}},  // two frames for one
                                {1, MessageKind::kPush, 0, {2}, 4},  // steps that are not the next
                                {1, MessageKind::kPush, 2, {2}, 4},
                                {1, MessageKind::kPush, 1, {2}, 2},  // too short
                                {1, MessageKind::kPush, 1, {2}, 4, CodecId::kInt8},
                                {2, MessageKind::kPush, 1, {2}}};  // that piece comes whole
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    // In the place of its sender's first.
    std::vector<Said> messages{wrong[i]};
    std::ranges::copy_if(kRight, std::back_inserter(messages), [&](const Said& right) {
      return right.from != wrong[i].from || right.kind != MessageKind::kPush;
    });
    try {
      pull_after(messages);
      ADD_FAILURE() << "case " << i << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDataLoss) << i << ": " << error.what();
      const std::string who = "rank " + std::to_string(wrong[i].from);
      EXPECT_NE(std::string(error.what()).find(who), std::string::npos) << error.what();
    }
  }
}

TEST(HierarchicalRing, ABlockThatIsNotWholeIsRefused) {
  for (const std::vector<std::uint32_t>& pieces :
       {std::vector<std::uint32_t>{0}, {1, 0}, {0, 0}, {0, 1, 2}}) {
    auto messages = kRight;
    messages.back().pieces = pieces;
    EXPECT_THROW(pull_after(messages), Error);
  }
}

// A peer may be one step ahead, and no further: what it sends is not kept without limit.
TEST(HierarchicalRing, APeerThatRunsAheadEndsTheJob) {
  const Job job = small_job();
  for (const int ahead : {1, 2}) {
    const auto ends = make_in_process_network(4);
    Model own = zeros(job);
    const auto worker = make_communicator(job, *ends[0], descend(own));
    // Whichever call comes after the worker has noticed it throws.
    const auto run_ahead = [&] {
      for (std::uint64_t step = 1; step <= static_cast<std::uint64_t>(ahead); ++step) {
        say(*ends[1], 0, {1, MessageKind::kPush, step, {2}, 4});
        say(*ends[1], 0, {1, MessageKind::kPull, step, {0, 1}});
      }
      wait_until_taken(*worker, *ends[1], ends[1]->bytes_sent());
      worker->begin_step();
    };
    if (ahead == 1) {
      EXPECT_NO_THROW(run_ahead());
    } else {
      EXPECT_THROW(run_ahead(), Error);
    }
  }
}

// The server is rank 2, over two groups of one.
void expect_server_fails(const std::vector<Said>& messages, ErrorCode code) {
  Job job = small_job();
  job.workers = 2;
  job.servers = 1;
  job.exchange = "hierarchical-ring:group=1,top=tree";
  const auto ends = make_in_process_network(3);
  for (const Said& said : messages) say(*ends[static_cast<std::size_t>(said.from)], 2, said);
  try {
    run_server(job, *ends[2]);
    ADD_FAILURE() << "the server took it";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    const std::string sentence = error.what();
    EXPECT_TRUE(sentence.find("rank 1") != std::string::npos ||
                sentence.find("worker 1") != std::string::npos)
        << sentence;
  }
  EXPECT_THROW(ends[0]->receive(std::chrono::milliseconds(0)), Error);
}

TEST(HierarchicalRing, RubbishFromAWorkerEndsTheServer) {
  const Said right{0, MessageKind::kPush, 1, {0}, 8};
  for (const Said& wrong : std::vector<Said>{{1, MessageKind::kPull, 1, {0}, 8},
                                             {1, MessageKind::kPush, 1, {}},
                                             {1, MessageKind::kPush, 1, {1}, 8},
                                             {1, MessageKind::kPush, 1, {0, 0}, 8},
                                             {1, MessageKind::kPush, 2, {0}, 8},
                                             {1, MessageKind::kPush, 1, {0}, 7},
                                             {1, MessageKind::kPush, 1, {0}, 8, CodecId::kInt8}}) {
    expect_server_fails({right, wrong}, ErrorCode::kDataLoss);
  }
  expect_server_fails({{1, MessageKind::kPush, 1, {0}, 8}, {1, MessageKind::kPush, 1, {0}, 8}},
                      ErrorCode::kDataLoss);
  expect_server_fails({{0, MessageKind::kDone, 4, {}}, {1, MessageKind::kDone, 5, {}}},
                      ErrorCode::kFailedPrecondition);
}

// A worker says that it is done while others' parts of the last step are still on their way.
TEST(HierarchicalRing, AServerStaysUntilTheLastStepIsAddedUp) {
  Job job = small_job();
  job.workers = 2;
  job.exchange = "hierarchical-ring:group=1,top=tree";
  job.servers = 1;
  const auto ends = make_in_process_network(3);
  for (const int worker : {0, 1}) {
    say(*ends[static_cast<std::size_t>(worker)], 2, {worker, MessageKind::kDone, 1, {}});
  }
  for (const int worker : {0, 1}) {
    say(*ends[static_cast<std::size_t>(worker)], 2, {worker, MessageKind::kPush, 1, {0}, 8});
  }
  const Counters counters = run_server(job, *ends[2]);
  EXPECT_EQ(counters.pushed_values, 16U);
  for (const int worker : {0, 1}) {
    const auto sum = ends[static_cast<std::size_t>(worker)]->receive(std::chrono::milliseconds(0));
    ASSERT_TRUE(sum.has_value());
    std::vector<float> values(8);
    decode(CodecId::kFp32, parse_message(*sum->bytes).frames.front().payload, values);
    EXPECT_EQ(values, std::vector<float>(8, 2.0F));
  }
}

// Blocks go by the members of a group: those of the other member are not this one's to push.
TEST(HierarchicalRing, AServerTakesABlockFromItsHoldersAlone) {
  Job job = small_job();
  job.servers = 1;
  job.exchange = "hierarchical-ring:group=2,top=tree";
  const auto ends = make_in_process_network(5);
  say(*ends[3], 4, {3, MessageKind::kPush, 1, {1}, 4});
  try {
    run_server(job, *ends[4]);
    ADD_FAILURE() << "the server took it";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDataLoss) << error.what();
  }
}

}  // namespace
}  // namespace tersewire
