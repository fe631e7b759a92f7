// What peers, and the size of a job, can make a node hold: bytes of memory are counted.
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "exchange_test_support.h"

namespace {

std::atomic<std::size_t> live_bytes{0};
std::atomic<std::size_t> most_bytes{0};

void count(void* memory) {
  const std::size_t live = live_bytes += malloc_usable_size(memory);
  std::size_t most = most_bytes;
  while (most < live && !most_bytes.compare_exchange_weak(most, live)) {
  }
}

}  // namespace

// Not inlined: gcc would take the pair of malloc and delete for a mistake.
[[gnu::noinline]] void* operator new(std::size_t size) {
  void* const memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  count(memory);
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  live_bytes -= malloc_usable_size(memory);
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  operator delete(memory);
}

namespace tersewire {
namespace {

// What `task` held at once beside what was there before.
template <typename Task>
std::size_t peak_of(Task&& task) {
  const std::size_t before = live_bytes;
  most_bytes = before;
  task();
  return most_bytes - before;
}

// ---- A job of many workers.

Job many_tensors(int workers) {
  Job job;
  for (int i = 0; i < 300; ++i) {
    job.tensors.push_back({"tensor " + std::to_string(i), {16}, TensorKind::kDense});
  }
  job.workers = workers;
  job.exchange = "all-gather";
  job.push_codec = "fp32";
  return job;
}

// A worker of an all-gather keeps nothing for each tensor of each other worker.
TEST(Memory, OfAnAllGatherGrowsWithTensorsAndWithWorkers) {
  const auto held = [](int workers) {
    const Job job = many_tensors(workers);
    const auto ends = make_in_process_network(workers);
    Model own = zeros(job);
    return peak_of([&] { make_communicator(job, *ends[0], descend(own)); });
  };
  constexpr std::size_t kOfAWorker = 256;
  const std::size_t of_two = held(2);
  EXPECT_GT(of_two, 300U * sizeof(float) * 16);
  EXPECT_LT(held(1024), of_two + 1024 * kOfAWorker);
}

// ---- A worker that computes for long while another sends its weights, step after step.

TEST(Memory, OfAnAsynchronousAverageIsTwoModelsOfAPeer) {
  constexpr std::size_t kElems = 10'000;
  constexpr std::uint64_t kSteps = 600;
  Job job = make_job(2, 0, "fp32");
  job.tensors = {{"one", {kElems}, TensorKind::kDense}, {"two", {kElems}, TensorKind::kDense}};
  job.exchange = "weight-average:mode=asynchronous";
  job.policy = "";
  const auto ends = make_in_process_network(2);
  Model own = zeros(job);
  const Bytes payload(kElems * sizeof(float), std::byte{0});
  const std::size_t model_bytes = 2 * payload.size();
  const auto worker = make_communicator(job, *ends[0], descend(own));
  worker->begin_step();
  MessageWriter writer({});
  const std::size_t peak = peak_of([&] {
    for (std::uint64_t step = 1; step <= kSteps; ++step) {
      writer.clear({.kind = MessageKind::kPull, .sender = 1, .step = step});
      for (const std::uint32_t tensor : {0, 1}) {
        writer.add({.tensor = tensor,
                    .codec = CodecId::kFp32,
                    .not_finite = false,
                    .description = std::nullopt,
                    .payload = payload});
      }
      ends[1]->send(0, std::make_shared<const Bytes>(writer.take()));
      // No faster than it is taken: what is on its way is the transport's.
      wait_until_taken(*worker, *ends[1], ends[1]->bytes_sent());
    }
  });
  // The writer's, too, whose buffer doubles as it grows.
  constexpr std::size_t kOfTheWriter = 3;
  EXPECT_LT(peak, (2 + kOfTheWriter) * model_bytes);
  EXPECT_GT(peak, model_bytes);
}

// ---- A server whose workers are at nine different versions.

SharedBytes push_of(int worker, std::uint64_t step, ByteView payload) {
  MessageWriter writer(
      {.kind = MessageKind::kPush, .sender = static_cast<std::uint32_t>(worker), .step = step});
  writer.add({.tensor = 0,
              .codec = CodecId::kThreeLc,
              .not_finite = false,
              .description = std::nullopt,
              .payload = payload});
  return std::make_shared<const Bytes>(writer.take());
}

// Groups of workers share one residual: what each lacks beside it is kept as it was sent.
TEST(Memory, OfAServerThatDoesNotWaitIsOneResidualAndTheDeltasThatSomebodyLacks) {
  constexpr int kWorkers = 16;
  constexpr int kGroups = 9;
  constexpr std::size_t kElems = std::size_t{1} << 20;
  Job job = make_job(kWorkers, 1, "3lc");
  job.tensors = {{"only", {kElems}, TensorKind::kDense}};
  job.policy = "";
  job.exchange = "gradient-server";
  job.staleness = kGroups - 1;
  const auto ends = make_in_process_network(kWorkers + 1);
  std::string ended_with;
  std::vector<float> values(kElems);
  for (std::size_t i = 0; i < kElems; ++i) values[i] = gradient_value(0, 1, 0, i);
  Bytes payload;
  make_codec(job.push_codec)->make_encoder(kElems)->encode(values, 1, payload);
  std::size_t longest = 0;
  const auto answer_to = [&](int worker, std::uint64_t step) {
    Transport& end = *ends[static_cast<std::size_t>(worker)];
    end.send(kWorkers, push_of(worker, step, payload));
    const auto answer = end.receive(20s);
    ASSERT_TRUE(answer);
    const Message message = parse_message(*answer->bytes);
    EXPECT_EQ(message.frames.size(), message.header.step - (worker == 0 ? step - 1 : 0));
    longest = std::max(longest, message.frames.front().payload.size());
  };
  std::thread server;
  const std::size_t peak = peak_of([&] {
    server = std::thread([&] {
      try {
        run_server(job, *ends.back());
      } catch (const Error& error) {
        ended_with = error.what();
      }
    });
    try {
      for (int version = 1; version < kGroups; ++version) {
        answer_to(0, static_cast<std::uint64_t>(version));
        answer_to(version, 1);  // and computes from this version now
      }
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  });
  ends.front()->abort("the test is over");
  server.join();
  EXPECT_NE(ended_with.find("the test is over"), std::string::npos) << ended_with;
  constexpr std::size_t kModel = kElems * sizeof(float);
  // Residual, sum and what the encoder works with; the deltas twice, once on their way.
  EXPECT_LT(peak, 4 * kModel + 2 * kGroups * longest + kWorkers * payload.size());
  EXPECT_LT(4 * kModel + 2 * kGroups * longest + kWorkers * payload.size(), kGroups * kModel);
  EXPECT_GT(peak, 2 * kModel);
}

// ---- Messages of as many frames as they can hold.

// Empty ones, of 4 bytes, or ones with a scaler, of 8.
Bytes many_frames(MessageKind kind, std::size_t payload_bytes) {
  constexpr std::size_t kMessageBytes = std::size_t{16} << 20;
  const Bytes payload(payload_bytes, std::byte{0});
  MessageWriter writer({.kind = kind, .sender = 0, .step = 1});
  // Tensor numbers of one byte, each with parts of one byte.
  for (std::size_t i = 0; i < kMessageBytes / (5 + payload_bytes); ++i) {
    writer.add({.tensor = static_cast<std::uint32_t>(i % 128),
                .part = static_cast<std::uint32_t>(i / 128),
                .codec = CodecId::kFp32,
                .not_finite = false,
                .description = std::nullopt,
                .payload = payload});
  }
  return writer.take();
}

class ParseMemoryTest : public testing::TestWithParam<MessageKind> {};

INSTANTIATE_TEST_SUITE_P(Kinds, ParseMemoryTest,
                         testing::Values(MessageKind::kPush, MessageKind::kPull,
                                         MessageKind::kOffer, MessageKind::kAgreement));

TEST_P(ParseMemoryTest, IsAtMostTwiceTheMessages) {
  const bool scalers = GetParam() == MessageKind::kOffer || GetParam() == MessageKind::kAgreement;
  const Bytes bytes = many_frames(GetParam(), scalers ? sizeof(float) : 0);
  std::size_t frames = 0;
  const std::size_t peak = peak_of([&] { frames = parse_message(bytes).frames.size(); });
  EXPECT_GT(frames, bytes.size() / 16);
  EXPECT_LE(peak, 2 * bytes.size());
}

// The smallest description of many dimensions is short, too.
TEST(Memory, OfDescriptionsIsAtMostTwiceTheMessages) {
  MessageWriter writer({.kind = MessageKind::kPush, .sender = 0, .step = 1});
  const std::vector<std::uint64_t> dims(32, 1);
  for (std::uint32_t i = 0; i < 400'000; ++i) {
    writer.add({.tensor = i % 128,
                .codec = CodecId::kFp32,
                .not_finite = false,
                .description = Description{.element_type = ElementType::kFloat32, .dims = dims},
                .payload = {}});
  }
  const Bytes bytes = writer.take();
  EXPECT_LE(peak_of([&] { EXPECT_EQ(parse_message(bytes).frames.size(), 400'000U); }),
            2 * bytes.size());
}

}  // namespace
}  // namespace tersewire
