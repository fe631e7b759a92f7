// The floating point mode of the caller's thread changes nothing.
#include "float_mode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#include <map>
#include <optional>

#include "codec_test_support.h"
#include "exchange_test_support.h"
#include "tersewire/thread_pool.h"

#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace tersewire::test {
namespace {

enum class Mode { kUpward, kZeroDenormals };

const std::vector<Mode> kModes{
    Mode::kUpward,
#ifdef __SSE2__
    Mode::kZeroDenormals,
#endif
};

void set_mode(Mode mode) {
  std::fesetenv(FE_DFL_ENV);
  if (mode == Mode::kUpward) std::fesetround(FE_UPWARD);
#ifdef __SSE2__
  if (mode == Mode::kZeroDenormals) {
    _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
    _MM_SET_DENORMALS_ZERO_MODE(_MM_DENORMALS_ZERO_ON);
  }
#endif
}

// 1 where rounding upward, 2 where denormals count as 0, 3 for both.
int mode_seen() {
  const volatile float one = 1;
  const volatile float little = 1e-30F;
  const volatile float denormal = kDenormal;
  const volatile float sum = one + little;
  const volatile float kept = denormal * one;
  return (sum > one ? 1 : 0) + (bits_of(std::vector<float>{kept})[0] == 0 ? 2 : 0);
}

class ModeOf {
 public:
  explicit ModeOf(Mode mode) { set_mode(mode); }
  ~ModeOf() { std::fesetenv(FE_DFL_ENV); }
  ModeOf(const ModeOf&) = delete;
  ModeOf& operator=(const ModeOf&) = delete;
};

TEST(FloatMode, IsTheDefaultOneInTheGuardAndTheCallersBehindIt) {
  EXPECT_EQ(mode_seen(), 0);
  for (const Mode mode : kModes) {
    const ModeOf callers(mode);
    const int seen = mode == Mode::kUpward ? 1 : 2;
    EXPECT_EQ(mode_seen(), seen);
    {
      const DefaultFloatMode own;
      EXPECT_EQ(mode_seen(), 0);
    }
    EXPECT_EQ(mode_seen(), seen);
  }
}

TEST(FloatMode, IsTheDefaultOneInThreadsOfAPoolThatWasMadeInAnother) {
  const ModeOf callers(Mode::kUpward);
  ThreadPool pool(2);
  const auto caller = std::this_thread::get_id();
  std::atomic<int> elsewhere{0};
  std::atomic<int> wrong{0};
  // Until the other thread has had a part of it.
  while (elsewhere == 0) {
    pool.run(2, [&](std::size_t) {
      if (std::this_thread::get_id() == caller) {
        while (elsewhere == 0) std::this_thread::yield();
        return;
      }
      wrong += mode_seen();
      ++elsewhere;
    });
  }
  EXPECT_EQ(wrong, 0);
}

// Everything that a codec computes: two steps, so that the residual counts.
struct Made {
  std::vector<Bytes> payloads;
  std::vector<std::uint32_t> residual;
  std::vector<std::uint32_t> decoded;
  std::vector<std::uint32_t> added;
  std::vector<float> scalers;

  bool operator==(const Made&) const = default;
};

Made make_all(const std::string& text, const Floats& input, const std::vector<double>& doubles,
              const Floats& target, ThreadPool* pool) {
  const auto codec = make_codec(text);
  const auto encoder = codec->make_encoder(input.size());
  Made made;
  for (std::uint64_t step = 0; step < 2; ++step) {
    made.scalers = encoder->local_scalers(input, pool);
    encoder->observe_gradient(input);
    Bytes& payload = made.payloads.emplace_back();
    const Encoded encoded = encoder->encode(input, step, payload, pool);
    Floats out(input.size());
    decode(encoded.codec, payload, out, pool);
    made.decoded = bits_of(out);
    out = target;
    decode_add(encoded.codec, payload, 0.3F, out, pool);
    made.added = bits_of(out);
  }
  encoder->give_back(codec->id(), made.payloads.back());
  made.residual = bits_of(encoder->residual());
  encoder->encode_f64(doubles, 2, made.payloads.emplace_back(), pool);
  return made;
}

class EveryCodec : public testing::TestWithParam<std::string> {};

// As gradients are, half of them shrunk until many of the values are denormal.
Floats values_near_denormals(std::size_t n) {
  Floats values = heavy_tailed(n, 4);
  for (std::size_t i = 0; i < n; i += 2) values[i] *= 1e-35F;
  return values;
}

TEST_P(EveryCodec, MakesTheSameInEveryModeOfItsCaller) {
  const Floats few_denormals = values_near_denormals(150'001);
  Floats all_small = few_denormals;
  for (float& value : all_small) value *= 1e-33F;
  for (const Floats& input : {few_denormals, all_small}) {
    // Made in this mode: to convert is to compute.
    const std::vector<double> doubles(input.begin(), input.end());
    const Floats target = heavy_tailed(input.size(), 5, 1e-36F);
    const Made expected = make_all(GetParam(), input, doubles, target, nullptr);
    for (const Mode mode : kModes) {
      for (const std::size_t threads : {1U, 2U}) {
        std::optional<Made> made;
        int after = 0;
        {
          const ModeOf callers(mode);
          ThreadPool pool(threads);
          made = make_all(GetParam(), input, doubles, target, &pool);
          after = mode_seen();
        }
        EXPECT_TRUE(*made == expected) << "mode " << static_cast<int>(mode) << ", " << threads;
        EXPECT_EQ(after, mode == Mode::kUpward ? 1 : 2);
      }
    }
  }
}

std::vector<std::string> codecs_with_residuals() {
  std::vector<std::string> texts;
  for (const CodecDescription& codec : codec_descriptions()) {
    texts.push_back(codec.name == "fp32" ? codec.name : codec.name + ":ef=on");
  }
  return texts;
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param.substr(0, info.param.find(':'));
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, EveryCodec, testing::ValuesIn(codecs_with_residuals()), test_name);

// Gradients that are the same in every mode, many of them denormal; then the worker computes in its
// own mode, but for the last, which stays in the default one.
Outcome run_in(const Job& job, std::optional<Mode> mode) {
  const auto small = [&](int worker, std::uint64_t step, std::vector<float>& values) {
    const DefaultFloatMode own;
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = gradient_value(worker, step, 0, i) * (i % 2 == 0 ? 1e-37F : 1e-3F);
    }
  };
  const auto enter = [&](int worker, std::uint64_t) {
    if (mode && worker + 1 < job.workers) set_mode(*mode);
  };
  return run_job(job, {.steps = 6, .before_step = enter, .gradient = small});
}

TEST(FloatMode, OfWorkersChangesNothingInAJob) {
  for (const char* exchange : {"parameter-server", "ring", "all-gather", "weight-average"}) {
    for (const int local_steps : {1, 3}) {
      Job job = job_for(exchange, 3, "fp32");
      job.local_steps = local_steps;
      const Outcome expected = run_in(job, {});
      expect_no_errors(expected);
      for (const Mode mode : kModes) {
        SCOPED_TRACE(testing::Message() << exchange << ", " << static_cast<int>(mode));
        const Outcome outcome = run_in(job, mode);
        expect_no_errors(outcome);
        for (const Model& replica : outcome.replicas) {
          expect_equal_bits(replica, expected.replicas[0]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tersewire::test
