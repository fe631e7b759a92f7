// Numbers as people read them, above all where they round to the next unit.
#include "apps/cli/quantities.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "tersewire/counted.h"

namespace tersewire::apps {
namespace {

TEST(Quantities, Digits) {
  EXPECT_EQ(digits_text(1.249, 2), "1.2");
  EXPECT_EQ(digits_text(99.4, 2), "99");
  EXPECT_EQ(digits_text(99.6, 2), "100");
  EXPECT_EQ(digits_text(1234.4, 2), "1234");
  EXPECT_EQ(digits_text(0, 3), "0");
}

TEST(Quantities, Decimals) {
  EXPECT_EQ(decimals_text(0.125, 4), "0.1250");
  EXPECT_EQ(decimals_text(-std::numeric_limits<double>::quiet_NaN(), 4), "nan");
  EXPECT_EQ(decimals_text(std::numeric_limits<double>::infinity(), 4), "inf");
}

TEST(Quantities, Counted) {
  EXPECT_EQ(counted(0, "worker"), "0 workers");
  EXPECT_EQ(counted(1, "worker"), "1 worker");
  EXPECT_EQ(counted(std::uint64_t{1} << 40, "value"), "1099511627776 values");
  EXPECT_EQ(counted(3, "process", "processes"), "3 processes");
}

TEST(Quantities, Bytes) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(999.4), "999 B");
  EXPECT_EQ(bytes_text(999.6), "1 kB");
  EXPECT_EQ(bytes_text(4130), "4.13 kB");
  EXPECT_EQ(bytes_text(999'960), "1 MB");
  EXPECT_EQ(bytes_text(41.26e9), "41.3 GB");
  EXPECT_EQ(bytes_text(1.2346e16), "12346 TB");
}

TEST(Quantities, Seconds) {
  EXPECT_EQ(seconds_text(0), "0 us");
  EXPECT_EQ(seconds_text(83e-6), "83 us");
  EXPECT_EQ(seconds_text(0.9996e-3), "1 ms");
  EXPECT_EQ(seconds_text(0.9994), "999 ms");
  EXPECT_EQ(seconds_text(0.9996), "1 s");
  EXPECT_EQ(seconds_text(2.756), "2.76 s");
  EXPECT_EQ(seconds_text(59.94), "59.9 s");
  EXPECT_EQ(seconds_text(59.96), "1 min 0 s");
  EXPECT_EQ(seconds_text(125), "2 min 5 s");
  EXPECT_EQ(seconds_text(3599.6), "1 h 0 min");
  EXPECT_EQ(seconds_text(3.2 * 3600), "3 h 12 min");
  EXPECT_EQ(seconds_text(4.1 * 86400), "4.1 days");
}

TEST(Quantities, Rates) {
  EXPECT_EQ(rate_text(1e7), "10 Mbit/s");
  EXPECT_EQ(rate_text(943.26e6), "943 Mbit/s");
  EXPECT_EQ(rate_text(999.6e6), "1 Gbit/s");
  EXPECT_EQ(rate_text(999.6e6, 6), "999.6 Mbit/s");
  EXPECT_EQ(rate_text(2.5e9), "2.5 Gbit/s");
  EXPECT_EQ(rate_text(1e12), "1000 Gbit/s");
  EXPECT_EQ(rate_text(300), "300 bit/s");
}

}  // namespace
}  // namespace tersewire::apps
