// Modelled links between the nodes of one process: when messages would arrive. It knows no clock
// and no thread: whoever calls it says what time it is, never an earlier one than before.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "link_faults.h"
#include "tersewire/transport.h"

namespace tersewire {

// A node has one link to a switch. What it sends occupies its uplink, what it is sent its downlink,
// each for as long as the frames take; a message goes through both at once. An uplink takes turns
// between those it sends to, as their TCP connections would; a downlink takes what comes in the
// order in which it left its sender. The switch holds whatever waits for a downlink. Delay, jitter
// and what follows from loss come behind that, and do not change the order of a sender's messages
// to a receiver.
class Links {
 public:
  using Time = std::chrono::steady_clock::time_point;

  struct Delivery {
    int to = 0;
    Incoming message;
  };

  Links(int nodes, const ModelledLinks& links);

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

  // What a node has sent another so far.
  struct Stream {
    std::uint64_t messages = 0;
    Time last_arrival;
  };

  [[nodiscard]] Time arrival_of(const Incoming& message, int to, Time carried);
  void transmit_until(Time now);
  void transmit_turn(Uplink& uplink);
  [[nodiscard]] const Uplink* next_uplink() const;

  double nanoseconds_per_byte_;
  std::uint64_t turn_bytes_;
  std::vector<Uplink> uplinks_;
  std::vector<Time> downlink_free_;
  LinkFaults faults_;
  std::map<std::pair<int, int>, Stream> streams_;  // by sender and receiver, where there are faults
  std::multimap<Time, Delivery> arriving_;
};

// Ethernet frames, of 1448 bytes of the message in 1514; and what tc counts for them.
std::uint64_t frames_of(std::uint64_t message_bytes) noexcept;
std::uint64_t bytes_on_wire(std::uint64_t message_bytes) noexcept;

}  // namespace tersewire
