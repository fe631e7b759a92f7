// What a network and this machine can do, as they are measured.
#include "tersewire/probe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <thread>

#include "expect_error.h"
#include "tersewire/predict.h"

namespace tersewire {
namespace {

constexpr double kRate = 5e7;

SharedBytes message_of(std::initializer_list<int> values) {
  Bytes bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return std::make_shared<const Bytes>(std::move(bytes));
}

TEST(Probe, FindsWhatALinkCarriesFromEveryNode) {
  const auto ends = make_in_process_network(3, {.bits_per_second = kRate});
  std::vector<std::jthread> others;
  for (std::size_t node = 1; node < ends.size(); ++node) {
    others.emplace_back([&end = *ends[node]] { EXPECT_TRUE(probe_network(end, {}).empty()); });
  }
  Probe probe;
  probe.peers = probe_network(*ends.front(), {});
  ASSERT_EQ(probe.peers.size(), 2U);
  EXPECT_EQ(probe.peers[0].rank, 1);
  EXPECT_EQ(probe.peers[1].rank, 2);
  // A machine that others use may make it less.
  EXPECT_LT(probe.rate(), 1.02 * kRate);
  for (const ProbedPeer& peer : probe.peers) {
    EXPECT_LE(probe.rate(), std::min(peer.bits_per_second_to, peer.bits_per_second_from));
    EXPECT_GE(probe.latency(), peer.latency_seconds);
  }
  EXPECT_GT(probe.latency(), 0);
}

TEST(Probe, NeedsAnotherNode) {
  const auto ends = make_in_process_network(1);
  expect_error(ErrorCode::kFailedPrecondition, "no other node",
               [&] { probe_network(*ends.front(), {}); });
}

TEST(Probe, RefusesWhatIsNoPartOfOne) {
  Bytes too_many(9);
  too_many.front() = std::byte{3};
  const std::uint64_t count = kLongestProbeMessage + 1;
  std::memcpy(too_many.data() + 1, &count, sizeof(count));
  for (const SharedBytes& bytes :
       {message_of({}), message_of({0}), message_of({77}), message_of({3}), message_of({3, 1, 0}),
        message_of({3, 0, 0, 0, 0, 0, 0, 0, 0}),
        SharedBytes(std::make_shared<const Bytes>(too_many))}) {
    const auto ends = make_in_process_network(2);
    ends[0]->send(1, bytes);
    expect_error(ErrorCode::kDataLoss, "not belong to a probe",
                 [&] { probe_network(*ends[1], {}); });
    ends[1]->send(0, bytes);
    expect_error(ErrorCode::kDataLoss, "not belong to a probe",
                 [&] { probe_network(*ends[0], {}); });
  }
  const auto ends = make_in_process_network(3);
  ends[2]->send(1, message_of({1}));  // rank 0 alone asks
  expect_error(ErrorCode::kDataLoss, "not belong to a probe", [&] { probe_network(*ends[1], {}); });
}

TEST(Probe, TimesTheCodecsThatPredictionsKnow) {
  const std::vector<ProbedCodec> codecs = probe_codecs();
  ASSERT_EQ(codecs.size(), measured_codecs().size());
  for (std::size_t i = 0; i < codecs.size(); ++i) {
    EXPECT_EQ(codecs[i].codec, measured_codecs()[i].codec);
    EXPECT_GT(codecs[i].encode_seconds_per_value, 0);
    EXPECT_GT(codecs[i].decode_seconds_per_value, 0);
  }
}

}  // namespace
}  // namespace tersewire
