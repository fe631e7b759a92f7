// Job::raw_from_all: what is not finite on one worker travels raw from all of them, and nothing
// else changes.
#include <cmath>
#include <set>

#include "exchange_suite.h"
#include "faulty_transports.h"

namespace tersewire {
namespace {

// Two aggregators of a tree, and groups of a ring, with two of them each.
constexpr int kWorkers = 4;
constexpr std::uint64_t kSteps = 6;
constexpr std::uint64_t kRawStep = 3;
constexpr int kRawWorker = 1;
constexpr std::size_t kRawTensor = 0;
constexpr std::size_t kRawValue = 5;

// ---- What nodes sent.

struct SentFrame {
  MessageKind kind;
  std::uint32_t sender;
  std::uint64_t step;
  std::uint32_t tensor;
  CodecId codec;
  bool not_finite;
};

class Record {
 public:
  void add(const Message& message) {
    const std::lock_guard lock(mutex_);
    const MessageHeader& header = message.header;
    for (const Frame& frame : message.frames) {
      frames_.push_back(
          {header.kind, header.sender, header.step, frame.tensor, frame.codec, frame.not_finite});
    }
  }
  // Of gradients, sums or weights.
  [[nodiscard]] std::vector<SentFrame> tensors() const {
    std::vector<SentFrame> tensors = frames_;
    std::erase_if(tensors, [](const SentFrame& frame) {
      return frame.kind != MessageKind::kPush && frame.kind != MessageKind::kPull;
    });
    return tensors;
  }
  [[nodiscard]] std::set<std::uint64_t> steps_of(MessageKind kind) const {
    std::set<std::uint64_t> steps;
    for (const SentFrame& frame : frames_) {
      if (frame.kind == kind) steps.insert(frame.step);
    }
    return steps;
  }

 private:
  std::mutex mutex_;
  std::vector<SentFrame> frames_;
};

class RecordingTransport final : public OwningTransport {
 public:
  RecordingTransport(std::unique_ptr<Transport> inner, Record& record)
      : OwningTransport(std::move(inner)), record_(record) {}

  void send(int to, SharedBytes bytes) override {
    record_.add(parse_message(*bytes));
    OwningTransport::send(to, std::move(bytes));
  }

 private:
  Record& record_;
};

Outcome run_recorded(const Job& job, const Behaviour& behaviour, Record& record) {
  auto ends = make_in_process_network(job.workers + server_nodes(job));
  for (auto& end : ends) end = std::make_unique<RecordingTransport>(std::move(end), record);
  return run_job_over(ends, job, behaviour);
}

// ---- Jobs. Two buckets at least: the first tensors are not in that of the last.

std::string compressing_codec(Sends sends) {
  if (sends == Sends::kGradients) return "3lc";
  return sends == Sends::kTernary ? "terngrad" : "int8:ef=on";
}

Job raw_job(const TestedExchange& exchange) {
  Job job = suite_job(exchange, compressing_codec(exchange.sends), kWorkers);
  job.bucket_bytes = 100;
  // Rings do not fuse different kinds where servers are their top.
  for (TensorInfo& tensor : job.tensors) tensor.kind = TensorKind::kDense;
  job.raw_from_all = true;
  return job;
}

// Zeros from everyone in one step, and in one tensor of one worker a NaN among them.
void spoil(int worker, std::uint64_t step, std::size_t elems, std::vector<float>& values) {
  if (step != kRawStep) return;
  std::ranges::fill(values, 0.0F);
  if (worker == kRawWorker && values.size() == elems) values[kRawValue] = NAN;
}

Behaviour with_a_nan(const Job& job) {
  const std::size_t elems = job.tensors[kRawTensor].elems();
  return {.steps = kSteps,
          .before_step = {},
          .gradient = [elems](int worker, std::uint64_t step, std::vector<float>& values) {
            spoil(worker, step, elems, values);
          }};
}

class RawFromAll : public testing::TestWithParam<TestedExchange> {};

INSTANTIATE_TEST_SUITE_P(All, RawFromAll, testing::ValuesIn(kTestedExchanges), exchange_name);

// ---- What travels raw.

// Those of what workers and aggregators make; not what servers make of a mean.
std::vector<SentFrame> encoded_frames(const TestedExchange& exchange, const Record& record) {
  std::vector<SentFrame> frames = record.tensors();
  std::erase_if(frames, [&](const SentFrame& frame) {
    return exchange.sends != Sends::kSums && frame.kind == MessageKind::kPull;
  });
  return frames;
}

// Whether a frame is a part of what must travel raw; in a ring, of its bucket, which is the second.
bool is_of_raw_tensor(const TestedExchange& exchange, const std::vector<SentFrame>& frames,
                      const SentFrame& frame) {
  if (exchange.sends != Sends::kSums) return frame.tensor == kRawTensor;
  const std::uint32_t last = std::ranges::max(frames, {}, &SentFrame::tensor).tensor;
  return frame.tensor > last / 2;
}

void expect_raw(const TestedExchange& exchange, const SentFrame& frame) {
  EXPECT_EQ(frame.codec, CodecId::kFp32);
  // An agreed scaler that is infinite says it too.
  EXPECT_TRUE(frame.not_finite || exchange.sends == Sends::kTernary);
}

TEST_P(RawFromAll, OneTensorFromEveryNodeInOneStep) {
  const Job job = raw_job(GetParam());
  Record record;
  const Outcome outcome = run_recorded(job, with_a_nan(job), record);
  expect_no_errors(outcome);
  for (const Model& replica : outcome.replicas) expect_equal_bits(outcome.replicas[0], replica);

  const CodecId codec = make_codec(job.push_codec)->id();
  const std::vector<SentFrame> frames = encoded_frames(GetParam(), record);
  std::set<std::uint32_t> raw_senders;
  for (const SentFrame& frame : frames) {
    SCOPED_TRACE(testing::Message() << "tensor " << frame.tensor << " from " << frame.sender
                                    << " in step " << frame.step);
    // Weights stay what they are.
    const bool spoilt =
        frame.step == kRawStep || (frame.step > kRawStep && GetParam().sends == Sends::kWeights);
    if (spoilt && is_of_raw_tensor(GetParam(), frames, frame)) {
      expect_raw(GetParam(), frame);
      if (frame.step == kRawStep) raw_senders.insert(frame.sender);
    } else {
      EXPECT_EQ(frame.codec, codec);
      EXPECT_FALSE(frame.not_finite);
    }
  }
  // What a worker sends to its own node's server crosses no network.
  const int unseen = job.servers == Job::kColocated ? 1 : 0;
  EXPECT_GE(raw_senders.size(), static_cast<std::size_t>(job.workers - unseen));
}

// ---- What stays as it was.

TEST_P(RawFromAll, WithFiniteTensorsNothingChanges) {
  Job job = raw_job(GetParam());
  const Outcome raw = run_job(job);
  expect_no_errors(raw);
  job.raw_from_all = false;
  const Outcome plain = run_job(job);
  expect_equal_bits(raw.replicas[0], plain.replicas[0]);
  expect_equal_bits(raw.global, plain.global);
}

// The step without its zeros and its NaN: what residuals held before it, they held after it.
TEST_P(RawFromAll, ResidualsAreAsIfTheStepHadNotBeen) {
  // Weights do not forget a NaN, and random numbers go by the step.
  if (GetParam().sends == Sends::kWeights || GetParam().sends == Sends::kTernary) return;
  Job job = raw_job(GetParam());
  job.pull_codec = "fp32";  // so that a server's residual has no part in it
  const Outcome with = run_job(job, with_a_nan(job));
  Behaviour without{.steps = kSteps - 1,
                    .before_step = {},
                    .gradient = [&](int worker, std::uint64_t step, std::vector<float>& values) {
                      if (step < kRawStep) return;
                      const auto tensor =
                          std::ranges::find(job.tensors, values.size(), &TensorInfo::elems) -
                          job.tensors.begin();
                      values = gradient(job, worker, step + 1, static_cast<std::size_t>(tensor));
                    }};
  std::vector<float> expected = run_job(job, without).replicas[0][kRawTensor];
  std::vector<float> found = with.replicas[0][kRawTensor];
  EXPECT_TRUE(std::isnan(found[kRawValue]));
  expected[kRawValue] = found[kRawValue] = 0;
  EXPECT_EQ(found, expected);
}

// ---- With exchanges once in several steps.

TEST(RawFromAllSometimes, LocalStepsAgreeOnMeans) {
  Job job = raw_job({"all-gather", std::nullopt, Sends::kGradients, one_error});
  job.local_steps = 2;
  Record record;
  const Outcome outcome = run_recorded(job, with_a_nan(job), record);
  expect_no_errors(outcome);
  EXPECT_EQ(record.steps_of(MessageKind::kFiniteness), (std::set<std::uint64_t>{1, 2, 3}));
  for (const SentFrame& frame : record.tensors()) {
    EXPECT_EQ(frame.not_finite, frame.step == 2 && frame.tensor == kRawTensor);
  }
}

TEST(RawFromAllSometimes, WeightsAreAgreedOnWhereTheyAreExchanged) {
  Job job = raw_job({"weight-average:every=2", std::nullopt, Sends::kWeights, one_error});
  Record record;
  Behaviour behaviour = with_a_nan(job);
  behaviour.steps = 3;  // the last of which leaves the NaN to the closing average
  const Outcome outcome = run_recorded(job, behaviour, record);
  expect_no_errors(outcome);
  for (const Model& replica : outcome.replicas) expect_equal_bits(outcome.replicas[0], replica);
  EXPECT_EQ(record.steps_of(MessageKind::kFiniteness), (std::set<std::uint64_t>{2, 4}));
  for (const SentFrame& frame : record.tensors()) {
    EXPECT_EQ(frame.not_finite, frame.step == 4 && frame.tensor == kRawTensor);
  }
}

// ---- When workers wait.

TEST(RawFromAllWaits, NotInPushButInBeginStep) {
  Job job = raw_job({"all-gather", std::nullopt, Sends::kGradients, one_error});
  job.workers = 2;
  job.progress_limit = 50ms;
  const auto ends = make_in_process_network(2);
  Model model = zeros(job);
  const auto worker = make_communicator(job, *ends[1], descend(model));
  Model replica = zeros(job);
  worker->begin_step();
  for (std::size_t i = 0; i < replica.size(); ++i) worker->pull(i, replica[i]);
  for (std::size_t i = replica.size(); i-- > 0;) worker->push(i, gradient(job, 1, 1, i));
  try {
    worker->begin_step();
    ADD_FAILURE() << "it went on without worker 0";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
    EXPECT_NE(std::string(error.what()).find("the agreement on tensors"), std::string::npos);
  }
}

// ---- Jobs that cannot.

std::string refusal(const Job& job) {
  try {
    server_nodes(job);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "accepted";
}

TEST(RawFromAllRefused, WhereWorkersDoNotWaitForEachOther) {
  Job job = make_job(4, 1, "3lc");
  job.raw_from_all = true;
  EXPECT_EQ(refusal(job), "accepted");
  job.backup_workers = 1;
  EXPECT_NE(refusal(job).find("use 0 backup workers"), std::string::npos) << refusal(job);
  job = job_for("weight-average:mode=asynchronous", 4, "int8");
  job.raw_from_all = true;
  EXPECT_NE(refusal(job).find("use mode=synchronous"), std::string::npos) << refusal(job);
}

TEST(RawFromAllRefused, WhereScalersSayNothingOfATensor) {
  Job job = job_for("gradient-server:scaler-sharing=on", 4, "terngrad");
  job.raw_from_all = true;
  EXPECT_EQ(refusal(job), "accepted");
  job.policy = "size<20:stoch3";
  EXPECT_EQ(refusal(job), "accepted");
  job.policy = "size<20:int8";
  EXPECT_NE(refusal(job).find("int8 has none"), std::string::npos) << refusal(job);
}

// ---- Rubbish. One worker of several, and messages that others have sent it.

struct Claim {
  std::uint64_t step;
  std::uint32_t bucket;
  std::vector<bool> not_finite;
};

struct Rubbish {
  const char* what;
  int rank;  // of the worker
  std::uint32_t from;
  std::vector<Claim> claims;
  const char* error;
};

// The first bucket has one tensor, the second two.
const std::vector<Rubbish> kRubbish{
    {"no such bucket", 0, 1, {{1, 2, {false}}}, "rank 1: there is no bucket number 2"},
    {"too many words", 0, 1, {{1, 0, std::vector<bool>(33)}}, "rank 1: 8 bytes do not say"},
    {"too few words", 1, 0, {{1, 0, {}}}, "rank 0: a finiteness message must hold"},
    {"a reserved bit", 0, 1, {{1, 0, {false, true}}}, "rank 1: part 1 of a bucket that has 1"},
    {"the last bit",
     1,
     0,
     {{1, 0,
       [] {
         std::vector<bool> bits(32);
         bits[31] = true;
         return bits;
       }()}},
     "rank 0: part 31 of a bucket that has 1"},
    {"said twice",
     0,
     1,
     {{1, 1, {false, false}}, {1, 1, {true, false}}},
     "rank 1: its report of what is finite"},
    {"of a later step",
     0,
     1,
     {{7, 0, {false}}},
     "rank 1: its report of what is finite in bucket 0 came for step 7 while step 1 is open"},
    {"of no step", 0, 1, {{0, 0, {false}}}, "came for step 0 while step 1 is open"},
    {"a verdict too early", 1, 0, {{1, 1, {false, false}}}, "rank 0: no report of what is finite"},
    {"a verdict of a later step", 1, 0, {{2, 0, {false}}}, "rank 0: no report of what is finite"},
    {"a verdict twice",
     1,
     0,
     {{1, 0, {true}}, {1, 0, {true}}},
     "rank 0: no report of what is finite"},
    {"a verdict that denies what it was told",
     1,
     0,
     {{1, 0, {false}}},
     "rank 0: it reports tensor 'last.weight' of step 1 as finite"},
    {"a verdict from another",
     1,
     2,
     {{1, 0, {false}}},
     "rank 2: its report of what is finite is not for worker 1"},
};

// The sentence that a worker ends with. Its values are not finite; it has been told what it is told
// when it has said so of the first bucket, and not of the second.
std::string error_of_a_worker(const Job& job, const Rubbish& rubbish) {
  const auto ends = make_in_process_network(job.workers);
  Transport& liar = *ends[rubbish.from];
  Model model = zeros(job);
  try {
    const auto worker =
        make_communicator(job, *ends[static_cast<std::size_t>(rubbish.rank)], descend(model));
    worker->begin_step();
    for (std::size_t i = 0; i < model.size(); ++i) worker->pull(i, model[i]);
    for (std::size_t i = model.size(); i-- > 0;) {
      worker->push(i, std::vector<float>(model[i].size(), INFINITY));
      if (i + 1 < model.size()) continue;
      for (const Claim& claim : rubbish.claims) {
        liar.send(rubbish.rank, std::make_shared<const Bytes>(finiteness_message(
                                    rubbish.from, claim.step, claim.bucket, claim.not_finite)));
      }
      wait_until_taken(*worker, liar, liar.bytes_sent());
    }
    worker->begin_step();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(RawFromAllRubbish, EndsTheJobWithASentence) {
  Job job = raw_job({"all-gather", std::nullopt, Sends::kGradients, one_error});
  job.progress_limit = 50ms;
  for (const Rubbish& rubbish : kRubbish) {
    job.workers = rubbish.from == 2 ? 3 : 2;
    const std::string error = error_of_a_worker(job, rubbish);
    EXPECT_NE(error.find(rubbish.error), std::string::npos) << rubbish.what << ": " << error;
  }
}

TEST(RawFromAllRubbish, WorkersThatAgreeOnNothingTakeNoVerdict) {
  Job job = raw_job({"all-gather", std::nullopt, Sends::kGradients, one_error});
  job.workers = 2;
  job.raw_from_all = false;
  const std::string error = error_of_a_worker(job, {"", 1, 0, {{1, 0, {true}}}, ""});
  EXPECT_NE(error.find("rank 0: its report of what is finite is not for worker 1"),
            std::string::npos)
      << error;
}

}  // namespace
}  // namespace tersewire
