// ef=21 of every codec that has it: what is encoded is the difference to what was sent so far.
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>

#include "codec_test_support.h"
#include "expect_error.h"
#include "tersewire/thread_pool.h"

namespace tersewire::test {
namespace {

double norm(std::span<const float> values) {
  double squares = 0;
  for (const float value : values) squares += double{value} * value;
  return std::sqrt(squares);
}

// A sender, and a receiver that adds up what it decodes.
struct Pair {
  explicit Pair(const std::string& text, std::size_t elems)
      : encoder(make_codec(text)->make_encoder(elems)), received(elems, 0.0F) {}

  Encoded send(const Floats& input, std::uint64_t step, ThreadPool* pool = nullptr) {
    payload.clear();
    const Encoded made = encoder->encode(input, step, payload, pool);
    if (!made.not_finite) decode_add(made.codec, payload, 1, received);
    return made;
  }
  // What the receiver lacks of the input.
  [[nodiscard]] Floats lacks(const Floats& input) const {
    Floats found(input);
    for (std::size_t i = 0; i < found.size(); ++i) found[i] -= received[i];
    return found;
  }

  std::unique_ptr<Encoder> encoder;
  Floats received;
  Bytes payload;
};

std::string test_name(const testing::TestParamInfo<std::string>& codec) {
  std::string name = codec.param;
  std::erase_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
  return name;
}

class Differences : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(All, Differences,
                         testing::Values("3lc:ef=21", "3lc:mode=paper,ef=21", "adacomp:ef=21",
                                         "local-selection:ef=21", "dryden:ef=21", "topk:ef=21",
                                         "mqe1bit:ef=21", "signsgd:ef=21"),
                         test_name);

TEST_P(Differences, TheResidualIsWhatWasSentNegated) {
  Pair pair(GetParam(), 5003);
  EXPECT_TRUE(pair.encoder->sends_differences());
  for (std::uint64_t step = 0; step < 5; ++step) {
    pair.send(heavy_tailed(5003, static_cast<unsigned>(step)), step);
    for (std::size_t i = 0; i < pair.received.size(); ++i) {
      ASSERT_EQ(pair.encoder->residual()[i], -pair.received[i]) << "step " << step;
    }
  }
}

// Whatever the codec holds back, it is in the next difference too.
TEST_P(Differences, TheReceiverComesToWhatStays) {
  const Floats input = heavy_tailed(5003, 3);
  Pair pair(GetParam(), input.size());
  pair.send(input, 0);
  const double first = norm(pair.lacks(input));
  for (std::uint64_t step = 1; step < 300; ++step) pair.send(input, step);
  EXPECT_LT(norm(pair.lacks(input)), first / 4);
}

TEST_P(Differences, AReceiverResumesWithTheSender) {
  Pair pair(GetParam(), 700);
  for (std::uint64_t step = 0; step < 3; ++step) pair.send(heavy_tailed(700, 5), step);
  Pair resumed(GetParam(), 700);
  std::ranges::copy(pair.encoder->residual(), resumed.encoder->residual().begin());
  pair.send(heavy_tailed(700, 6), 3);
  resumed.send(heavy_tailed(700, 6), 3);
  EXPECT_EQ(resumed.payload, pair.payload);
  EXPECT_EQ(bits_of(resumed.encoder->residual()), bits_of(pair.encoder->residual()));
}

TEST_P(Differences, ATensorThatIsNotFiniteIsSentWhole) {
  Pair pair(GetParam(), 200);
  pair.send(heavy_tailed(200, 1), 0);
  const auto before = bits_of(pair.encoder->residual());
  Floats bad = heavy_tailed(200, 2);
  bad[150] = std::nanf("");
  const Encoded made = pair.send(bad, 1);
  EXPECT_EQ(made.codec, CodecId::kFp32);
  EXPECT_TRUE(made.not_finite);
  ASSERT_EQ(pair.payload.size(), 800U);
  EXPECT_EQ(std::memcmp(pair.payload.data(), bad.data(), 800), 0);
  EXPECT_EQ(bits_of(pair.encoder->residual()), before);
}

TEST_P(Differences, ThreadsChangeNoBit) {
  const std::size_t elems = (std::size_t{1} << 20) + 77;
  Pair alone(GetParam(), elems);
  Pair shared(GetParam(), elems);
  ThreadPool pool(3);
  for (std::uint64_t step = 0; step < 2; ++step) {
    const Floats input = heavy_tailed(elems, static_cast<unsigned>(step));
    alone.send(input, step);
    shared.send(input, step, &pool);
    ASSERT_EQ(shared.payload, alone.payload) << "step " << step;
  }
}

// A sum would lose the small one for good.
TEST(Difference, AValueAmongLargeOnesIsNotForgotten) {
  Pair pair("3lc:ef=21", 300);
  Floats input(300, 1e-3F);
  for (std::uint64_t step = 0; step < 60; ++step) pair.send(input, step);
  for (float& value : input) value = 1e6F;
  pair.send(input, 60);
  for (float& value : input) value = 1e-3F;
  for (std::uint64_t step = 61; step < 200; ++step) pair.send(input, step);
  for (std::size_t i = 0; i < input.size(); ++i) {
    EXPECT_EQ(pair.encoder->residual()[i], -pair.received[i]);
    EXPECT_NEAR(pair.received[i], 1e-3F, 1e-4F);
  }
}

TEST(Difference, IsOfCodecsThatKeepAResidualAndHasNoLead) {
  EXPECT_NE(make_codec("3lc:ef=21")->text().find("lead=1,ef=21"), std::string::npos);
  EXPECT_EQ(make_codec("3lc:ef=21,lead=1")->text(), make_codec("3lc:ef=21")->text());
  const auto refused = [](const char* text, const char* why) {
    expect_error(ErrorCode::kInvalidArgument, why, [&] { make_codec(text); });
  };
  refused("3lc:ef=21,lead=2", "lead must be 1 with ef=21");
  refused("3lc:ef=20", "ef must be one of on, off, 21");
  refused("int8:ef=21", "ef must be one of off, on");
  EXPECT_FALSE(make_codec("3lc")->make_encoder(1)->sends_differences());
}

}  // namespace
}  // namespace tersewire::test
