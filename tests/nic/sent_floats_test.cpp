// Which bytes of a write are floats by what a process has said of its memory.
#include "nic/sent_floats.h"

#include <gtest/gtest.h>

#include <array>
#include <initializer_list>

namespace tersewire::nic {
namespace {

using Found = std::vector<SentFloats>;

class SentFloatsTest : public testing::Test {
 protected:
  // Bytes [begin, end) of the memory.
  iovec piece(std::size_t begin, std::size_t end) { return {memory_.data() + begin, end - begin}; }
  Found find(std::initializer_list<iovec> pieces, std::uint64_t offset = 0) {
    return regions_.find({pieces.begin(), pieces.size()}, offset);
  }

  alignas(4) std::array<char, 8192> memory_{};
  FloatRegions regions_;
};

TEST_F(SentFloatsTest, NothingIsFloatsUnlessSaid) {
  EXPECT_EQ(find({piece(0, 8192)}), Found{});
  regions_.add(memory_.data() + 1000, 4000);
  EXPECT_EQ(find({piece(0, 1000)}), Found{});
  EXPECT_EQ(find({piece(5000, 8192)}), Found{});
}

TEST_F(SentFloatsTest, ThePartOfAPieceThatIsSaidByItsPlaceInTheStream) {
  regions_.add(memory_.data() + 1000, 4000);
  EXPECT_EQ(find({piece(0, 8192)}, 50), (Found{{1050, 5050}}));
  EXPECT_EQ(find({piece(2000, 3000)}, 50), (Found{{50, 1050}}));
  // A header of another place first.
  EXPECT_EQ(find({piece(0, 16), piece(1000, 5000), piece(6000, 7000)}, 7), (Found{{23, 4023}}));
}

TEST_F(SentFloatsTest, WholeFloatsAlone) {
  regions_.add(memory_.data() + 1001, 4000);
  EXPECT_EQ(find({piece(1002, 3000)}), (Found{{3, 1995}}));  // from 1005 to 2997
  EXPECT_EQ(find({piece(1000, 8000)}), (Found{{1, 4001}}));
}

TEST_F(SentFloatsTest, WhatIsTooShortForANoticeIsLeftOut) {
  regions_.add(memory_.data(), 8192);
  EXPECT_EQ(find({piece(0, 252)}), Found{});
  EXPECT_EQ(find({piece(0, 256)}), (Found{{0, 256}}));
}

TEST_F(SentFloatsTest, AMessageIsOneRegionMore) {
  const iovec message = piece(1000, 3000);
  EXPECT_EQ(regions_.find(std::array{piece(2000, 3000)}, 5, message), (Found{{5, 1005}}));
  EXPECT_EQ(regions_.find(std::array{piece(3000, 4000)}, 5, message), Found{});
}

TEST_F(SentFloatsTest, MessagesOfGloo) {
  std::array<std::uint64_t, 6> head{48 + 1000, 1, 7, 0, 0, 0};
  const iovec first{head.data(), sizeof(head)};
  const auto payload = [&](iovec one, iovec two) { return gloo_payload(std::array{one, two}); };
  EXPECT_EQ(payload(first, piece(8, 1008)).iov_base, memory_.data() + 8);
  EXPECT_EQ(payload(first, piece(8, 1008)).iov_len, 1000U);
  EXPECT_EQ(payload(first, piece(8, 1009)).iov_len, 0U);  // not what the head says
  EXPECT_EQ(gloo_payload(std::array{first}).iov_len, 0U);
  EXPECT_EQ(payload({head.data(), 40}, piece(8, 1008)).iov_len, 0U);
  head[1] = 2;  // an operation without a payload
  EXPECT_EQ(payload(first, piece(8, 1008)).iov_len, 0U);
}

TEST_F(SentFloatsTest, TheLatestRegionOfAnAddressIsForgotten) {
  regions_.add(memory_.data(), 1000);
  regions_.add(memory_.data(), 2000);
  regions_.remove(memory_.data());
  EXPECT_EQ(find({piece(0, 8192)}), (Found{{0, 1000}}));
  regions_.remove(memory_.data() + 4);  // never said
  regions_.remove(memory_.data());
  EXPECT_EQ(find({piece(0, 8192)}), Found{});
}

}  // namespace
}  // namespace tersewire::nic
