// Links of a limited rate between the nodes of one process: when messages would arrive. It knows no
// clock and no thread: whoever calls it says what time it is, never an earlier one than before.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "tersewire/transport.h"

namespace tersewire {

// A node has one link to a switch. What it sends occupies its uplink, what it is sent its downlink,
// each for as long as the frames take; a message goes through both at once. An uplink takes turns
// between those it sends to, as their TCP connections would; a downlink takes what comes in the
// order in which it left its sender. The switch holds whatever waits for a downlink.
class Links {
 public:
  using Time = std::chrono::steady_clock::time_point;

  struct Delivery {
    int to = 0;
    Incoming message;
  };

  // `bits_per_second` >= kMinRate, both ways of each link.
  Links(int nodes, double bits_per_second);
  static constexpr double kMinRate = 1000;

  void send(int to, Incoming message, Time now);

  // Messages that have arrived by now, in that order, stamped with when they did.
  std::vector<Delivery> advance(Time now);

  // When advance() is to be called again; Time::max() where nothing is on its way.
  [[nodiscard]] Time next_event() const;

 private:
  struct Outgoing {
    Incoming message;
    std::uint64_t wire_bytes_left = 0;
  };
  struct Connection {
    int to = 0;
    std::deque<Outgoing> messages;  // at least one
  };
  struct Uplink {
    Time free;
    std::deque<Connection> connections;  // the first one's turn is next
  };

  void transmit_until(Time now);
  void transmit_turn(Uplink& uplink);
  [[nodiscard]] const Uplink* next_uplink() const;

  double nanoseconds_per_byte_;
  std::uint64_t turn_bytes_;
  std::vector<Uplink> uplinks_;
  std::vector<Time> downlink_free_;
  std::multimap<Time, Delivery> arriving_;
};

// What tc counts for a message: 1448 bytes of it in an Ethernet frame of 1514.
std::uint64_t bytes_on_wire(std::uint64_t message_bytes) noexcept;

}  // namespace tersewire
