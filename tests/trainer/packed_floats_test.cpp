// Floats are packed without loss, in fewer bytes, and what was not packed so is refused.
#include "trainer/members/packed_floats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "expect_error.h"

namespace tersewire {
namespace {

Bytes bytes_of(const std::vector<float>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

std::vector<float> weights(std::size_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 0.02F);
  std::vector<float> values(count);
  std::ranges::generate(values, [&] { return normal(random); });
  return values;
}

TEST(PackedFloats, AreTheSameBytesAgain) {
  for (const std::size_t floats : {0U, 1U, 1000U, 262143U, 262144U, 262145U, 700000U}) {
    for (const std::size_t rest : {0U, 1U, 3U}) {
      Bytes bytes = bytes_of(weights(floats));
      bytes.resize(bytes.size() + rest, std::byte{7});
      EXPECT_EQ(unpack_floats(pack_floats(bytes)), bytes) << floats << " and " << rest;
    }
  }
}

TEST(PackedFloats, AreFewerBytes) {
  const Bytes bytes = bytes_of(weights(1000000));
  EXPECT_LT(pack_floats(bytes).size(), 0.86 * static_cast<double>(bytes.size()));
  const Bytes zeros(4000000, std::byte{0});
  EXPECT_LT(pack_floats(zeros).size(), zeros.size() / 500);
}

TEST(PackedFloats, ThoseThatAreDamagedAreRefused) {
  const Bytes packed = pack_floats(bytes_of(weights(500)));
  const auto refused = [](const Bytes& bytes) {
    expect_error(ErrorCode::kDataLoss, "run one version everywhere", [&] { unpack_floats(bytes); });
  };
  for (std::size_t size = 0; size < packed.size(); ++size) {
    refused({packed.begin(), packed.begin() + static_cast<std::ptrdiff_t>(size)});
  }
  Bytes longer = packed;
  longer.push_back({});
  refused(longer);
  std::size_t of_no_use = 0;
  for (std::size_t at = 8; at < packed.size(); ++at) {
    Bytes damaged = packed;
    damaged[at] ^= std::byte{0x10};
    try {  // some bits say nothing
      EXPECT_EQ(unpack_floats(damaged), unpack_floats(packed)) << "byte " << at;
      ++of_no_use;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDataLoss) << error.what();
    }
  }
  EXPECT_LT(of_no_use, packed.size() / 100);
  // Another length: shorter, longer, and of more than memory has.
  for (const std::uint64_t length : {1999ULL, 2001ULL, ~0ULL}) {
    Bytes other = packed;
    std::memcpy(other.data(), &length, sizeof(length));
    refused(other);
  }
}

}  // namespace
}  // namespace tersewire
