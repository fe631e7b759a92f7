#include "apps/bench/codec_bench.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>

#include "apps/bench/peers.h"
#include "apps/files/one_array.h"
#include "kernels.h"
#include "tersewire/codec.h"
#include "tersewire/measure.h"
#include "tersewire/simd.h"
#include "tersewire/thread_pool.h"

namespace tersewire::bench {
namespace {

constexpr std::size_t kInputs = 3;
// What is timed at once covers at least so many values, so that the clock's grain does not matter.
constexpr std::size_t kMinTimedElems = std::size_t{1} << 20;
// As many as a call takes about the time of, however few it has.
constexpr std::size_t kMinCallElems = 256;
// A part of an array shorter than this costs more to hand to a thread than it saves.
constexpr std::size_t kMinPartElems = std::size_t{1} << 16;
constexpr std::uint64_t kComputeSteps = 4'000'000;
constexpr float kDecodeAddWeight = 0.25F;

using Clock = double (*)();

template <typename Work>
double seconds_of(Clock now, std::size_t times, Work&& work) {
  const double start = now();
  for (std::size_t i = 0; i < times; ++i) work();
  return now() - start;
}

// What `pool` does is over when the clock on the wall says so.
Clock clock_of(const ThreadPool* pool) {
  return pool != nullptr ? wall_seconds : processor_seconds;
}

// A part of an array.
struct Stretch {
  std::size_t begin;
  std::size_t elems;
};

std::vector<Stretch> cut(std::size_t elems, std::size_t part_values) {
  std::vector<Stretch> parts;
  for (std::size_t i = 0; i < elems; i += parts.back().elems) {
    parts.push_back({i, std::min(part_values, elems - i)});
  }
  return parts;
}

// Calls task(part, pool): a part alone has all threads, several are taken by one thread each.
template <typename Parts, typename Task>
void run_each(ThreadPool* pool, Parts& parts, Task&& task) {
  if (pool != nullptr && parts.size() > 1) {
    return pool->run(parts.size(), [&](std::size_t i) { task(parts[i], nullptr); });
  }
  for (auto& part : parts) task(part, pool);
}

// Calls task(begin, end) for one equal part of n a thread, fewer where they would be short.
template <typename Task>
void run_split(ThreadPool* pool, std::size_t n, Task&& task) {
  const std::size_t threads = pool != nullptr ? pool->threads() : 1;
  const std::size_t part = std::max((n + threads - 1) / threads, kMinPartElems);
  const std::size_t parts = (n + part - 1) / part;
  if (parts < 2) return task(std::size_t{0}, n);
  pool->run(parts, [&](std::size_t i) { task(i * part, std::min((i + 1) * part, n)); });
}

// Three windows, shifted by an eighth each, into one array a quarter longer than they are.
class Inputs {
 public:
  explicit Inputs(std::span<const float> values)
      : elems_(values.size()), shift_((elems_ / 8 + 15) / 16 * 16) {
    array_.resize(elems_ + (kInputs - 1) * shift_);
    for (std::size_t i = 0; i < array_.size(); i += elems_) {
      const std::size_t n = std::min(elems_, array_.size() - i);
      std::memcpy(array_.data() + i, values.data(), n * sizeof(float));
    }
  }

  [[nodiscard]] std::size_t elems() const { return elems_; }
  // Everyone counts his own turns, so that nobody meets one input again and again.
  std::span<const float> next(std::size_t& turn) const {
    return std::span(array_).subspan(turn++ % kInputs * shift_, elems_);
  }

 private:
  std::size_t elems_;
  std::size_t shift_;
  Floats array_;
};

class ForcedTarget {
 public:
  explicit ForcedTarget(const std::string& target) { force_simd_target(target); }
  ~ForcedTarget() { force_simd_target("best"); }
  ForcedTarget(const ForcedTarget&) = delete;
  ForcedTarget& operator=(const ForcedTarget&) = delete;
};

// The passes that an encoder with a residual makes over each part, with nothing packed.
class Floor {
 public:
  Floor(std::size_t elems, std::size_t part_values)
      : residual_(elems, 0.0F), parts_(cut(elems, part_values)) {}

  void pass(std::span<const float> input, ThreadPool* pool) {
    run_each(pool, parts_, [&](const Stretch& part, ThreadPool* threads) {
      pass_part(input.subspan(part.begin, part.elems), residual_.data() + part.begin, threads);
    });
  }

 private:
  static void pass_part(std::span<const float> input, float* residual, ThreadPool* pool) {
    std::atomic<std::uint32_t> largest{0};
    run_split(pool, input.size(), [&](std::size_t begin, std::size_t end) {
      const std::uint32_t bits =
          kernels::accumulate_max_abs_bits(residual + begin, input.data() + begin, end - begin);
      std::uint32_t seen = largest.load();
      while (seen < bits && !largest.compare_exchange_weak(seen, bits)) {
      }
    });
    const auto limit = std::bit_cast<float>(largest.load());
    run_split(pool, input.size(), [&](std::size_t begin, std::size_t end) {
      kernels::subtract_where_above(residual + begin, limit, end - begin);
    });
  }

  std::vector<float> residual_;
  std::vector<Stretch> parts_;
};

// Runs for a while in registers alone.
std::uint64_t compute(std::uint64_t seed) {
  for (std::uint64_t i = 0; i < kComputeSteps; ++i) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
  }
  return seed;
}

// How many times faster `pool` is at computing than one thread: what the machine grants at best.
double compute_scaling(ThreadPool& pool, std::size_t rounds) {
  std::vector<std::uint64_t> sink(pool.threads());
  std::vector<double> alone;
  std::vector<double> together;
  for (std::size_t round = 0; round < rounds; ++round) {
    alone.push_back(seconds_of(wall_seconds, 1, [&] {
      for (std::size_t i = 0; i < sink.size(); ++i) sink[i] ^= compute(round + i + 1);
    }));
    together.push_back(seconds_of(wall_seconds, 1, [&] {
      pool.run(sink.size(), [&](std::size_t i) { sink[i] ^= compute(round + i + 1); });
    }));
  }
  // The results are looked at, so that they must be computed.
  [[maybe_unused]] volatile std::uint64_t looked_at = 0;
  for (const std::uint64_t value : sink) looked_at = value;
  return median(alone) / median(together);
}

struct Times {
  std::vector<double> copy;
  std::vector<double> floor;
  std::vector<double> encode;
  std::vector<double> encode_alone;  // by one thread, where there are several
  std::vector<double> decode;
  std::vector<double> decode_add;
};

// The arrays that all measurements share.
struct Arrays {
  Arrays(std::span<const float> values, std::size_t part_values)
      : inputs(values), floor(values.size(), part_values), out(values.size(), 0.0F) {}

  Inputs inputs;
  Floor floor;
  std::vector<float> out;
};

struct Errors {
  double max = 0;
  double relative = 0;
};

Errors errors_of(std::span<const float> values, std::span<const float> decoded) {
  Errors errors;
  double squares = 0;
  double difference_squares = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double difference = double{values[i]} - double{decoded[i]};
    errors.max = std::max(errors.max, std::fabs(difference));
    squares += double{values[i]} * double{values[i]};
    difference_squares += difference * difference;
  }
  if (squares > 0) errors.relative = std::sqrt(difference_squares / squares);
  return errors;
}

// So many calls are timed at once.
std::size_t repeats_for(std::size_t elems) {
  const std::size_t per_call = std::max(elems, kMinCallElems);
  return (kMinTimedElems + per_call - 1) / per_call;
}

double time_of_copy(Clock now, Arrays& arrays, std::size_t repeats, std::size_t& turn) {
  return seconds_of(now, repeats, [&] {
    const auto input = arrays.inputs.next(turn);
    std::memcpy(arrays.out.data(), input.data(), input.size_bytes());
  });
}

double gb_per_s(std::size_t elems, std::size_t repeats, double seconds) {
  return static_cast<double>(elems * sizeof(float) * repeats) / seconds / 1e9;
}

double bits_per_value(const std::vector<double>& payload_bytes, std::size_t elems) {
  const double bytes = std::accumulate(payload_bytes.begin(), payload_bytes.end(), 0.0);
  return 8 * bytes / static_cast<double>(payload_bytes.size()) / static_cast<double>(elems);
}

// A part's encoder and what it made last.
struct PartEncoder {
  Stretch part;
  std::unique_ptr<Encoder> encoder;
  Encoded encoded{};
  Bytes payload;

  void encode(std::span<const float> input, std::uint64_t step, ThreadPool* pool) {
    payload.clear();
    encoded = encoder->encode(input.subspan(part.begin, part.elems), step, payload, pool);
  }
  [[nodiscard]] std::span<float> in(std::span<float> out) const {
    return out.subspan(part.begin, part.elems);
  }
};

// Random numbers begin anew in each part: how fast they are does not depend on which they are.
std::vector<PartEncoder> make_encoders(const std::string& codec, std::size_t elems,
                                       std::size_t part_values) {
  const auto made = make_codec(codec);
  std::vector<PartEncoder> encoders;
  for (const Stretch part : cut(elems, part_values)) {
    encoders.push_back({.part = part, .encoder = made->make_encoder(part.elems), .payload = {}});
  }
  return encoders;
}

// One codec with its encoders, whose residuals live through all variants: their bytes depend on
// none.
class CodecMeasurement {
 public:
  CodecMeasurement(const std::string& codec, Arrays& arrays, std::size_t part_values)
      : text_(codec),
        part_values_(part_values),
        arrays_(arrays),
        elems_(arrays.inputs.elems()),
        repeats_(repeats_for(elems_)),
        parts_(make_encoders(codec, elems_, part_values)) {}

  // Brings the residual into a steady state; without one there is none to reach.
  void warm_up(std::size_t encodes, ThreadPool* pool) {
    if (parts_.front().encoder->residual().empty()) return;
    for (; warm_up_encodes_ < encodes; ++warm_up_encodes_) encode(pool);
  }

  CodecBenchRow measure(const CodecBenchVariant& variant, ThreadPool* pool, std::size_t rounds) {
    const ForcedTarget forced(variant.target);
    Times times;
    payload_bytes_.clear();
    round(times, pool);  // maps the memory, starts the threads
    times = {};
    payload_bytes_.clear();
    for (std::size_t i = 0; i < rounds; ++i) round(times, pool);
    CodecBenchRow row = row_of(times);
    row.target = simd_target();
    row.threads = variant.threads;
    row.rounds = rounds;
    const Errors errors = first_errors();
    row.max_error = errors.max;
    row.relative_error = errors.relative;
    return row;
  }

 private:
  [[nodiscard]] Errors first_errors() {
    std::size_t first = 0;
    const auto input = arrays_.inputs.next(first);
    for (PartEncoder& part :
         make_encoders(apps::codec_for_one_array(text_), elems_, part_values_)) {
      part.encode(input, 0, nullptr);
      decode(part.encoded.codec, part.payload, part.in(arrays_.out));
    }
    return errors_of(input, arrays_.out);
  }

  void encode(ThreadPool* pool) {
    const auto input = arrays_.inputs.next(encode_turn_);
    run_each(pool, parts_,
             [&](PartEncoder& part, ThreadPool* threads) { part.encode(input, step_, threads); });
    ++step_;
  }

  void round(Times& times, ThreadPool* pool) {
    const Clock now = clock_of(pool);
    std::vector<float>& out = arrays_.out;
    times.copy.push_back(time_of_copy(now, arrays_, repeats_, copy_turn_));
    times.floor.push_back(seconds_of(
        now, repeats_, [&] { arrays_.floor.pass(arrays_.inputs.next(floor_turn_), pool); }));
    if (pool != nullptr) {
      times.encode_alone.push_back(seconds_of(now, repeats_, [&] { encode(nullptr); }));
    }
    times.encode.push_back(seconds_of(now, repeats_, [&] { encode(pool); }));
    payload_bytes_.push_back(0);
    for (const PartEncoder& part : parts_) {
      payload_bytes_.back() += static_cast<double>(part.payload.size());
    }
    times.decode.push_back(seconds_of(now, repeats_, [&] {
      run_each(pool, parts_, [&](const PartEncoder& part, ThreadPool* threads) {
        decode(part.encoded.codec, part.payload, part.in(out), threads);
      });
    }));
    times.decode_add.push_back(seconds_of(now, repeats_, [&] {
      run_each(pool, parts_, [&](const PartEncoder& part, ThreadPool* threads) {
        decode_add(part.encoded.codec, part.payload, kDecodeAddWeight, part.in(out), threads);
      });
    }));
  }

  [[nodiscard]] CodecBenchRow row_of(const Times& times) const {
    const double copy = median(times.copy);
    const double floor = median(times.floor);
    const double encode = median(times.encode);
    CodecBenchRow row;
    row.codec = text_;
    row.elems = elems_;
    row.part_values = part_values_;
    row.warm_up_encodes = warm_up_encodes_;
    row.memcpy_gb_per_s = gb_per_s(elems_, repeats_, copy);
    row.encode_ratio = encode / copy;
    row.decode_ratio = median(times.decode) / copy;
    row.decode_add_ratio = median(times.decode_add) / copy;
    row.floor_ratio = floor / copy;
    row.encode_over_floor = encode / floor;
    row.bits_per_value = bits_per_value(payload_bytes_, elems_);
    if (!times.encode_alone.empty()) row.encode_scaling = median(times.encode_alone) / encode;
    return row;
  }

  std::string text_;
  std::size_t part_values_;
  Arrays& arrays_;
  std::size_t elems_;
  std::size_t repeats_;
  std::vector<PartEncoder> parts_;
  std::vector<double> payload_bytes_;
  std::size_t warm_up_encodes_ = 0;
  std::size_t copy_turn_ = 0;
  std::size_t floor_turn_ = 0;
  std::size_t encode_turn_ = 0;
  std::uint64_t step_ = 0;
};

CodecBenchRow measure_peer(Peer& peer, Arrays& arrays, std::size_t rounds) {
  const std::size_t elems = arrays.inputs.elems();
  const std::size_t repeats = repeats_for(elems);
  std::size_t copy_turn = 0;
  std::size_t encode_turn = 0;
  Bytes payload;
  Times times;
  std::vector<double> payload_bytes;
  // The first round maps the memory and is not counted.
  for (std::size_t i = 0; i <= rounds; ++i) {
    if (i == 1) times = {};
    times.copy.push_back(time_of_copy(processor_seconds, arrays, repeats, copy_turn));
    times.encode.push_back(seconds_of(processor_seconds, repeats, [&] {
      peer.encode(arrays.inputs.next(encode_turn), payload);
    }));
    times.decode.push_back(
        seconds_of(processor_seconds, repeats, [&] { peer.decode(payload, arrays.out); }));
    if (i > 0) payload_bytes.push_back(static_cast<double>(payload.size()));
  }
  CodecBenchRow row;
  row.codec = peer.name();
  row.target.push_back('-');
  row.elems = elems;
  row.rounds = rounds;
  const double copy = median(times.copy);
  row.memcpy_gb_per_s = gb_per_s(elems, repeats, copy);
  row.encode_ratio = median(times.encode) / copy;
  row.decode_ratio = median(times.decode) / copy;
  row.bits_per_value = bits_per_value(payload_bytes, elems);
  std::size_t first = 0;
  const auto input = arrays.inputs.next(first);
  peer.encode(input, payload);
  peer.decode(payload, arrays.out);
  const Errors errors = errors_of(input, arrays.out);
  row.max_error = errors.max;
  row.relative_error = errors.relative;
  return row;
}

// A pool for each number of threads above one, and what it gains at computing.
struct Threads {
  std::unique_ptr<ThreadPool> pool;
  std::optional<double> scaling;
};

std::map<std::size_t, Threads> make_threads(const CodecBenchConfig& config) {
  std::map<std::size_t, Threads> all;
  for (const CodecBenchVariant& variant : config.variants) {
    Threads& threads = all[variant.threads];
    if (variant.threads < 2 || threads.pool) continue;
    threads.pool = std::make_unique<ThreadPool>(variant.threads);
    threads.scaling = compute_scaling(*threads.pool, config.rounds);
  }
  return all;
}

}  // namespace

std::vector<CodecBenchRow> bench_codecs(const CodecBenchConfig& config,
                                        std::span<const float> values) {
  const auto threads = make_threads(config);
  Arrays arrays(values, config.part_values);
  std::vector<CodecBenchRow> rows;
  for (const std::string& codec : config.codecs) {
    CodecMeasurement measurement(codec, arrays, config.part_values);
    measurement.warm_up(config.warm_up_encodes, threads.rbegin()->second.pool.get());
    for (const CodecBenchVariant& variant : config.variants) {
      const Threads& used = threads.at(variant.threads);
      rows.push_back(measurement.measure(variant, used.pool.get(), config.rounds));
      rows.back().compute_scaling = used.scaling;
    }
  }
  return rows;
}

std::vector<CodecBenchRow> bench_peers(std::size_t rounds, std::span<const float> values) {
  Arrays arrays(values, Job::kWholeTensors);
  std::vector<CodecBenchRow> rows;
  for (const auto& peer : make_peers()) rows.push_back(measure_peer(*peer, arrays, rounds));
  return rows;
}

}  // namespace tersewire::bench
