// Where a run of several processes ends: what its nodes say to each other of it.
#include "trainer/members/stop_point.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tersewire/error.h"
#include "trainer/members/node_report.h"

namespace tersewire::trainer {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kSteps = 20;
constexpr WaitLimits kLimits{.deadline = 60s, .progress_limit = 60s};

class StopPoints : public testing::Test {
 protected:
  void SetUp() override {
    ends_ = make_in_process_network(2);
    first_.agree_over(*ends_[0], kLimits, {});
    second_.agree_over(*ends_[1], kLimits, [this](std::uint64_t last) { heard_ = last; });
    first_end_.emplace(*ends_[0], first_);
    second_end_.emplace(*ends_[1], second_);
  }
  void say(int from, const StopMessage& message) {
    ends_[static_cast<std::size_t>(from)]->send(1 - from, pack_report(message));
  }
  void expect_refused(int from, const StopMessage& message) {
    say(from, message);
    StopEnd& end = from == 0 ? second_end_.value() : first_end_.value();
    try {
      end.receive(0ms);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
      EXPECT_NE(std::string(error.what()).find("rank " + std::to_string(from)), std::string::npos);
    }
  }

  std::vector<std::unique_ptr<Transport>> ends_;
  std::atomic<bool> none_{false};
  std::atomic<bool> stop_{false};
  std::uint64_t heard_ = 0;
  StopPoint first_{kSteps, &none_, false, 4};
  StopPoint second_{kSteps, &stop_, false, 4};
  std::optional<StopEnd> first_end_;
  std::optional<StopEnd> second_end_;
};

TEST_F(StopPoints, TheyAgreeOnAStepThatNoneHasBegun) {
  EXPECT_FALSE(first_.passed(3));
  EXPECT_FALSE(second_.passed(4));
  stop_ = true;
  EXPECT_FALSE(first_end_->receive(0ms));   // nothing was said yet
  EXPECT_FALSE(second_end_->receive(0ms));  // says it
  EXPECT_FALSE(first_end_->receive(0ms));
  // The first is waited for and answered by other threads, as in a job.
  std::thread asks([this] { EXPECT_FALSE(first_.passed(4)); });
  const auto message = std::make_shared<const Bytes>(3);
  ends_[0]->send(1, message);  // of the exchange; before or behind the question
  std::optional<Incoming> passed;
  for (std::uint64_t last = 0; last == 0; last = first_.state_after()) {
    if (auto incoming = second_end_->receive(1ms)) passed = std::move(incoming);
    EXPECT_FALSE(first_end_->receive(1ms));
  }
  asks.join();
  while (!passed) passed = second_end_->receive(1ms);
  EXPECT_EQ(passed->bytes, message);
  while (second_.state_after() == 0) EXPECT_FALSE(second_end_->receive(1ms));
  EXPECT_EQ(heard_, 8U);
  for (StopPoint* point : {&first_, &second_}) {
    EXPECT_EQ(point->state_after(), 8U);
    EXPECT_EQ(point->asker(), 1);
    EXPECT_FALSE(point->passed(8));
    EXPECT_TRUE(point->passed(9));
  }
}

TEST_F(StopPoints, FromTheQuestionOnNothingPasses) {
  EXPECT_FALSE(second_.passed(3));
  say(0, {.word = StopWord::kAsk});
  const auto message = std::make_shared<const Bytes>(3);
  ends_[0]->send(1, message);
  EXPECT_FALSE(second_end_->receive(0ms));
  EXPECT_FALSE(second_end_->receive(0ms));
  const auto answer = parse_report<StopMessage>(ends_[0]->receive(0ms).value(), 0);
  EXPECT_EQ(answer.word, StopWord::kAnswer);
  EXPECT_EQ(answer.step, 3U);
  std::atomic<bool> has_begun{false};
  std::thread worker([&] {
    EXPECT_FALSE(second_.passed(4));
    has_begun = true;
  });
  EXPECT_FALSE(has_begun);
  say(0, {.word = StopWord::kLast, .step = 4});
  EXPECT_EQ(second_end_->receive(0ms).value().bytes, message);
  worker.join();
  EXPECT_EQ(heard_, 4U);
  EXPECT_EQ(second_.asker(), 0);
}

TEST_F(StopPoints, ARunThatEndsAnywayIsNotCutShort) {
  say(0, {.word = StopWord::kAsk});
  say(0, {.word = StopWord::kLast, .step = kSteps, .asker = 1});
  EXPECT_FALSE(second_end_->receive(0ms));
  EXPECT_EQ(second_.state_after(), 0U);
  EXPECT_EQ(second_.asker(), std::nullopt);
}

TEST_F(StopPoints, WhatMakesNoSenseIsRefused) {
  expect_refused(1, {.word = StopWord::kAnswer});  // to no question
  expect_refused(1, {.word = StopWord::kAsk});     // what rank 0 alone does
  expect_refused(1, {.word = StopWord::kLast, .step = 4});
  expect_refused(0, {.word = StopWord::kLast, .step = 4});  // without a question
  expect_refused(0, {.word = StopWord::kWish});
  expect_refused(0, {.word = static_cast<StopWord>(7)});
  EXPECT_FALSE(second_.passed(6));
  say(0, {.word = StopWord::kAsk});
  EXPECT_FALSE(second_end_->receive(0ms));
  expect_refused(0, {.word = StopWord::kAsk});
  expect_refused(0, {.word = StopWord::kLast, .step = 4});  // has been passed
  expect_refused(0, {.word = StopWord::kLast, .step = 9});  // no state
  expect_refused(0, {.word = StopWord::kLast, .step = kSteps + 4});
  expect_refused(0, {.word = StopWord::kLast, .step = 8, .asker = 2});
}

TEST_F(StopPoints, WhoWaitsHearsThatTheJobIsOver) {
  say(0, {.word = StopWord::kAsk});
  EXPECT_FALSE(second_end_->receive(0ms));
  std::thread worker([&] { EXPECT_FALSE(second_.passed(4)); });
  expect_refused(0, {.word = StopWord::kAsk});
  worker.join();
}

TEST_F(StopPoints, WhoIsGoneIsNotWaitedFor) {
  ends_[1].reset();
  stop_ = true;
  StopPoint lonely(kSteps, &stop_, false, 1);
  lonely.agree_over(*ends_[0], kLimits, [](std::uint64_t) {});
  try {
    lonely.passed(1);
    ADD_FAILURE() << "went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
    EXPECT_NE(std::string(error.what()).find("rank 1, which was to report its progress"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tersewire::trainer
