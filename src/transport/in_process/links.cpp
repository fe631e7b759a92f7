#include "links.h"

#include <algorithm>
#include <cmath>

#include "errors.h"

namespace tersewire {
namespace {

constexpr std::uint64_t kFramePayloadBytes = 1448;
constexpr std::uint64_t kFrameHeaderBytes = 66;
// As much as a kernel hands on at once; at high rates 2 ms, for few events.
constexpr std::uint64_t kMinTurnBytes = 65536;
constexpr double kTurnSeconds = 2e-3;

}  // namespace

std::uint64_t frames_of(std::uint64_t message_bytes) noexcept {
  return std::max<std::uint64_t>((message_bytes + kFramePayloadBytes - 1) / kFramePayloadBytes, 1);
}

std::uint64_t bytes_on_wire(std::uint64_t message_bytes) noexcept {
  return message_bytes + frames_of(message_bytes) * kFrameHeaderBytes;
}

Links::Links(int nodes, const ModelledLinks& links)
    : nanoseconds_per_byte_(links.bits_per_second > 0 ? 8e9 / links.bits_per_second : 0),
      turn_bytes_(std::max(kMinTurnBytes,
                           static_cast<std::uint64_t>(links.bits_per_second / 8 * kTurnSeconds))),
      uplinks_(static_cast<std::size_t>(nodes)),
      downlink_free_(static_cast<std::size_t>(nodes)),
      faults_(links) {}

void Links::send(int to, Incoming message, Time now) {
  transmit_until(now);
  Uplink& uplink = uplinks_[static_cast<std::size_t>(message.from)];
  auto& connections = uplink.connections;
  if (connections.empty()) uplink.free = std::max(uplink.free, now);
  auto connection = std::find_if(connections.begin(), connections.end(),
                                 [&](const Connection& each) { return each.to == to; });
  if (connection == connections.end()) {
    connection = connections.insert(connections.end(), {.to = to, .messages = {}});
  }
  const std::uint64_t wire_bytes = bytes_on_wire(message.bytes->size());
  connection->messages.push_back({std::move(message), wire_bytes});
}

std::vector<Links::Delivery> Links::advance(Time now) {
  transmit_until(now);
  std::vector<Delivery> whole;
  const auto later = arriving_.upper_bound(now);
  for (auto each = arriving_.begin(); each != later; ++each) {
    whole.push_back(std::move(each->second));
  }
  arriving_.erase(arriving_.begin(), later);
  return whole;
}

Links::Time Links::next_event() const {
  const Uplink* uplink = next_uplink();
  const Time turn = uplink != nullptr ? uplink->free : Time::max();
  return arriving_.empty() ? turn : std::min(turn, arriving_.begin()->first);
}

const Links::Uplink* Links::next_uplink() const {
  const Uplink* next = nullptr;
  for (const Uplink& uplink : uplinks_) {
    if (uplink.connections.empty()) continue;
    if (next == nullptr || uplink.free < next->free) next = &uplink;
  }
  return next;
}

// In the order of time, so that downlinks are occupied in the order of what reaches them.
void Links::transmit_until(Time now) {
  for (const Uplink* next = next_uplink(); next != nullptr && next->free <= now;
       next = next_uplink()) {
    transmit_turn(uplinks_[static_cast<std::size_t>(next - uplinks_.data())]);
  }
}

void Links::transmit_turn(Uplink& uplink) {
  Connection connection = std::move(uplink.connections.front());
  uplink.connections.pop_front();
  Outgoing& first = connection.messages.front();
  const std::uint64_t bytes = std::min(first.wire_bytes_left, turn_bytes_);
  const std::chrono::nanoseconds duration(
      std::llround(std::ceil(nanoseconds_per_byte_ * static_cast<double>(bytes))));
  Time& downlink_free = downlink_free_[static_cast<std::size_t>(connection.to)];
  downlink_free = std::max(uplink.free, downlink_free) + duration;
  uplink.free += duration;
  first.wire_bytes_left -= bytes;
  if (first.wire_bytes_left == 0) {
    const Time arrived = arrival_of(first.message, connection.to, downlink_free);
    first.message.arrived = arrived;
    arriving_.emplace(arrived, Delivery{connection.to, std::move(first.message)});
    connection.messages.pop_front();
  }
  if (!connection.messages.empty()) uplink.connections.push_back(std::move(connection));
}

// Of a message whose last byte both links have carried by then.
Links::Time Links::arrival_of(const Incoming& message, int to, Time carried) {
  if (!faults_.any()) return carried;
  Stream& stream = streams_[{message.from, to}];
  const LinkFaults::Lateness late = faults_.of({.from = message.from,
                                                .to = to,
                                                .number = stream.messages++,
                                                .frames = frames_of(message.bytes->size())});
  stream.last_arrival = std::max(carried + late.delay, stream.last_arrival) + late.held;
  return stream.last_arrival;
}

}  // namespace tersewire
