#include "tersewire/probe.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <limits>
#include <random>

#include "tersewire/codec.h"
#include "tersewire/error.h"
#include "tersewire/measure.h"
#include "tersewire/predict.h"
#include "tersewire/thread_pool.h"

namespace tersewire {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRoundTrips = 21;
constexpr double kLongEnough = 0.2;  // seconds
constexpr std::size_t kFirstBytes = std::size_t{1} << 16;
constexpr double kLinkBytesAMessageByte = 1514.0 / 1448.0;

// Enough for rounds whose medians repeat to some per cent.
constexpr std::size_t kValues = std::size_t{1} << 20;
constexpr std::uint64_t kRounds = 5;
constexpr std::uint64_t kWarmUp = 20;  // until payloads have stopped growing
constexpr std::size_t kInputs = 3;     // in rotation

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
          " sent something that does not belong to a probe; start the same program on every node");
}

void wait_for(Transport& transport, const WaitLimits& limits, int from, Word word) {
  const Incoming message = receive_within(transport, limits, "the answer to a probe");
  if (message.from != from || message.bytes->empty() ||
      message.bytes->front() != static_cast<std::byte>(word)) {
    fail_stranger(message.from);
  }
}

class Prober {
 public:
  Prober(Transport& transport, const WaitLimits& limits, int peer)
      : transport_(transport), limits_(limits), peer_(peer) {}

  ProbedPeer run() {
    std::vector<double> trips;
    for (int i = 0; i < kRoundTrips; ++i)
      trips.push_back(seconds(said(Word::kAnswer), Word::kTaken));
    trip_ = median(std::move(trips));
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
      if (took - trip_ < kLongEnough && bytes < kLongestProbeMessage) continue;
      const double carrying = std::max(took - trip_, took / 2);
      return 8 * static_cast<double>(bytes) * kLinkBytesAMessageByte / carrying;
    }
  }

  Transport& transport_;
  const WaitLimits& limits_;
  int peer_;
  double trip_ = 0;
};

// As gradients have them, most near zero and few large: cubes of normal ones times 1e-3.
std::vector<float> made_up_values(std::uint64_t seed) {
  std::mt19937_64 numbers(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(kValues);
  for (float& value : values) {
    const float one = normal(numbers);
    value = 1e-3F * one * one * one;
  }
  return values;
}

ProbedCodec time_codec(std::string_view text,
                       const std::array<std::vector<float>, kInputs>& inputs) {
  const auto encoder = make_codec(text)->make_encoder(kValues, {});
  std::vector<float> sums(kValues);
  std::vector<double> encoding;
  std::vector<double> decoding;
  Bytes payload;
  for (std::uint64_t step = 1; step <= kWarmUp + kRounds; ++step) {
    payload.clear();
    const double began = processor_seconds();
    const Encoded made = encoder->encode(inputs[step % kInputs], step, payload);
    const double encode_seconds = processor_seconds() - began;
    if (step <= kWarmUp) continue;
    encoding.push_back(encode_seconds);
    const double encoded = processor_seconds();
    decode_add(made.codec, payload, 1, sums);
    decoding.push_back(processor_seconds() - encoded);
  }
  return {.codec = std::string(text),
          .encode_seconds_per_value = median(std::move(encoding)) / kValues,
          .decode_seconds_per_value = median(std::move(decoding)) / kValues};
}

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
        if (count < 1 || count > kLongestProbeMessage) fail_stranger(0);
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
    throw Error(ErrorCode::kFailedPrecondition,
                "a probe found no other node; start it on at least two, as in 'mpirun -n 2 "
                "tersewire probe --transport mpi'");
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
  std::array<std::vector<float>, kInputs> inputs;
  for (std::size_t i = 0; i < kInputs; ++i) inputs[i] = made_up_values(i);
  std::vector<ProbedCodec> probed;
  for (const MeasuredCodec& measured : measured_codecs()) {
    probed.push_back(time_codec(measured.codec, inputs));
  }
  return probed;
}

Probe probe(Transport& transport, const WaitLimits& limits) {
  Probe found;
  found.peers = probe_network(transport, limits);
  if (transport.rank() != 0) return found;
  found.codecs = probe_codecs();
  found.cores = allowed_cores();
  return found;
}

double Probe::rate() const {
  double least = std::numeric_limits<double>::infinity();
  for (const ProbedPeer& peer : peers) {
    least = std::min({least, peer.bits_per_second_to, peer.bits_per_second_from});
  }
  return least;
}

double Probe::latency() const {
  double most = 0;
  for (const ProbedPeer& peer : peers) most = std::max(most, peer.latency_seconds);
  return most;
}

}  // namespace tersewire
