#include "apps/predict/probe.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "apps/bench/codec_bench.h"
#include "tersewire/error.h"
#include "tersewire/predict.h"
#include "tersewire/simd.h"

namespace tersewire::apps {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRoundTrips = 21;
constexpr double kLongEnough = 0.2;  // seconds
constexpr std::size_t kFirstBytes = std::size_t{1} << 16;
constexpr std::size_t kMostBytes = std::size_t{1} << 26;
constexpr double kLinkBytesAMessageByte = 1514.0 / 1448.0;

// Enough for rounds whose medians repeat to some per cent.
constexpr std::size_t kValues = std::size_t{1} << 20;
constexpr std::size_t kRounds = 5;
constexpr std::size_t kWarmUp = 20;

// A message's first byte. Only kSend has more that counts: how many bytes, as eight.
enum class Word : std::uint8_t { kAnswer = 1, kTake, kSend, kTaken, kDone };

SharedBytes said(Word word, std::size_t bytes = 1) {
  auto message = std::make_shared<Bytes>(bytes);
  message->front() = static_cast<std::byte>(word);
  return message;
}

[[noreturn]] void fail_stranger(int from) {
  throw Error(
      ErrorCode::kDataLoss,
      "rank " + std::to_string(from) +
          " sent something that is no part of a probe; start the same program on every node");
}

SharedBytes wait_for(Transport& transport, const WaitLimits& limits, int from, Word word) {
  const Incoming message = receive_within(transport, limits, "the answer to a probe");
  if (message.from != from || message.bytes->empty() ||
      message.bytes->front() != static_cast<std::byte>(word)) {
    fail_stranger(message.from);
  }
  return message.bytes;
}

class Prober {
 public:
  Prober(Transport& transport, const WaitLimits& limits, int peer)
      : transport_(transport), limits_(limits), peer_(peer) {}

  ProbedPeer run() {
    std::vector<double> trips;
    for (int i = 0; i < kRoundTrips; ++i)
      trips.push_back(seconds(said(Word::kAnswer), Word::kTaken));
    std::ranges::nth_element(trips, trips.begin() + kRoundTrips / 2);
    trip_ = trips[kRoundTrips / 2];
    ProbedPeer probed{.rank = peer_, .latency_seconds = trip_ / 2};
    probed.bits_per_second_to =
        rate([&](std::size_t bytes) { return seconds(said(Word::kTake, bytes), Word::kTaken); });
    probed.bits_per_second_from = rate([&](std::size_t bytes) {
      auto request = std::make_shared<Bytes>(1 + sizeof(std::uint64_t));
      request->front() = static_cast<std::byte>(Word::kSend);
      const std::uint64_t count = bytes;
      std::memcpy(request->data() + 1, &count, sizeof(count));
      return seconds(request, Word::kTake);
    });
    transport_.send(peer_, said(Word::kDone));
    return probed;
  }

 private:
  double seconds(const SharedBytes& message, Word answer) {
    const auto began = Clock::now();
    transport_.send(peer_, message);
    wait_for(transport_, limits_, peer_, answer);
    return std::chrono::duration<double>(Clock::now() - began).count();
  }

  // By longer and longer messages, until one takes long enough.
  template <typename Time>
  double rate(const Time& time) {
    for (std::size_t bytes = kFirstBytes;; bytes *= 4) {
      const double took = time(bytes);
      if (took < kLongEnough && bytes < kMostBytes) continue;
      const double carrying = std::max(took - trip_, took / 2);
      return 8 * static_cast<double>(bytes) * kLinkBytesAMessageByte / carrying;
    }
  }

  Transport& transport_;
  const WaitLimits& limits_;
  int peer_;
  double trip_ = 0;
};

void answer(Transport& transport, const WaitLimits& limits) {
  for (;;) {
    const Incoming message = receive_within(transport, limits, "a probe");
    if (message.from != 0 || message.bytes->empty()) fail_stranger(message.from);
    switch (static_cast<Word>(message.bytes->front())) {
      case Word::kAnswer:
      case Word::kTake:
        transport.send(0, said(Word::kTaken));
        break;
      case Word::kSend: {
        std::uint64_t count = 0;
        if (message.bytes->size() != 1 + sizeof(count)) fail_stranger(0);
        std::memcpy(&count, message.bytes->data() + 1, sizeof(count));
        if (count < 1 || count > kMostBytes) fail_stranger(0);
        transport.send(0, said(Word::kTake, count));
        break;
      }
      case Word::kDone:
        return;
      default:
        fail_stranger(0);
    }
  }
}

}  // namespace

std::vector<ProbedPeer> probe_network(Transport& transport, const WaitLimits& limits) {
  if (transport.size() < 2) {
    throw Error(
        ErrorCode::kFailedPrecondition,
        "a probe found no other node; start it on two at least, as in 'mpirun -n 2 tersewire "
        "probe --transport mpi'");
  }
  std::vector<ProbedPeer> peers;
  if (transport.rank() != 0) {
    answer(transport, limits);
    return peers;
  }
  for (int peer = 1; peer < transport.size(); ++peer) {
    peers.push_back(Prober(transport, limits, peer).run());
  }
  return peers;
}

std::vector<ProbedCodec> probe_codecs() {
  bench::CodecBenchConfig config{.codecs = {},
                                 .variants = {{.target = simd_targets().front(), .threads = 1}},
                                 .rounds = kRounds,
                                 .warm_up_encodes = kWarmUp};
  for (const MeasuredCodec& measured : measured_codecs())
    config.codecs.emplace_back(measured.codec);
  std::vector<ProbedCodec> probed;
  for (const bench::CodecBenchRow& row :
       bench::bench_codecs(config, bench::heavy_tailed_values(kValues))) {
    const double memcpy_seconds = sizeof(float) / (row.memcpy_gb_per_s * 1e9);
    probed.push_back({.codec = row.codec,
                      .encode_seconds_per_value = row.encode_ratio * memcpy_seconds,
                      .decode_seconds_per_value =
                          row.decode_add_ratio.value_or(row.decode_ratio) * memcpy_seconds});
  }
  return probed;
}

}  // namespace tersewire::apps
