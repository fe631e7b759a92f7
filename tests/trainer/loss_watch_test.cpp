// What counts as a training that has diverged.
#include "trainer/loop/loss_watch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <limits>

#include "tersewire/error.h"

namespace tersewire::trainer {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

LossWatch after(std::initializer_list<double> losses) {
  LossWatch watch;
  std::uint64_t step = 0;
  for (const double loss : losses) watch.add(++step, loss);
  return watch;
}

TEST(LossWatch, TenfoldOverTheBestIsDiverged) {
  EXPECT_EQ(after({}).diverged_step(), std::nullopt);
  EXPECT_EQ(after({2, 1, 0.5, 4.9}).diverged_step(), std::nullopt);
  EXPECT_EQ(after({2, 1, 0.5, 5}).diverged_step(), 4U);
  EXPECT_EQ(after({2, 21}).diverged_step(), 2U);
}

TEST(LossWatch, SoIsWhatIsNotFinite) {
  EXPECT_EQ(after({2, 1, kNaN}).diverged_step(), 3U);
  EXPECT_EQ(after({2, 1, INFINITY, INFINITY}).diverged_step(), 3U);
  EXPECT_EQ(after({kNaN, kNaN}).diverged_step(), 1U);
}

TEST(LossWatch, ASpikeIsNot) {
  EXPECT_EQ(after({2, 1, 50, 1}).diverged_step(), std::nullopt);
  EXPECT_EQ(after({2, 1, 50, 1, 60, 70}).diverged_step(), 5U);
}

TEST(LossWatch, WhatIsLearnedByHeartMayGrow) {
  EXPECT_EQ(after({2, 1e-6, 1e-4, 0.19}).diverged_step(), std::nullopt);
  EXPECT_EQ(after({2, 1e-6, 0.2}).diverged_step(), 3U);
}

TEST(LossWatch, GoesOnFromItsState) {
  LossWatch watch;
  watch.resume(after({2, 0.3, 4}).state());
  EXPECT_EQ(watch.diverged_step(), 3U);
  watch.add(4, 2.9);
  EXPECT_EQ(watch.diverged_step(), std::nullopt);
  watch.add(5, 3);
  EXPECT_EQ(watch.diverged_step(), 5U);
  watch.resume({});
  EXPECT_EQ(watch.diverged_step(), 5U);  // an older checkpoint says nothing
  for (const auto& damaged : {std::deque<double>{1, 2}, {1, 2, -1}, {1, 2, kNaN}}) {
    EXPECT_THROW(watch.resume(damaged), Error);
  }
}

}  // namespace
}  // namespace tersewire::trainer
