// How late delay, jitter and lost frames make a message. Numbers are drawn by seed, sender,
// receiver and the message's number among theirs: the same message meets the same fate in every
// run.
#pragma once

#include <chrono>
#include <cstdint>

#include "tersewire/transport.h"

namespace tersewire {

// A frame passes two links, as lab/wire delays each: by `delay`, give or take up to `jitter`, every
// length alike likely; in order, so that the last of a message waits for those before it. On each
// link a share `loss` of frames is lost. TCP delivers in order, so that a lost frame holds its
// stream until it has been sent again, and each loss counts by itself:
//  - It is known as lost by three duplicate acknowledgements, and is there again a round trip later
//    (RFC 5681, 3.2). The window is halved then, with which Reno carries sqrt(3 / 2q) frames a
//    round trip in the mean, at a loss of q (Mathis et al., 1997): one loss in sqrt(2 / 3q) round
//    trips. What that exceeds the time of 1/q frames at the link's rate is how long a loss holds,
//    and a round trip at the least.
//  - Behind one of a message's last three frames there is nothing to acknowledge: it is sent again
//    when its timer expires, a round trip and 200 ms after it was sent (RFC 6298, 2, with the least
//    that Linux allows for variation in place of the second of 2.4).
// A round trip is of four delays. Any thread.
class LinkFaults {
 public:
  explicit LinkFaults(const ModelledLinks& links);

  [[nodiscard]] bool any() const { return links_.delay_seconds > 0 || has_chance(); }

  struct Message {
    int from = 0;
    int to = 0;
    std::uint64_t number = 0;  // of those from one to the other
    std::uint64_t frames = 1;
  };
  struct Lateness {
    std::chrono::nanoseconds delay{0};  // of the message by itself
    std::chrono::nanoseconds held{0};   // of it and all behind it
  };
  // Cost: three draws a frame, where jitter or loss is not 0.
  [[nodiscard]] Lateness of(const Message& message) const;

 private:
  [[nodiscard]] bool has_chance() const { return links_.jitter_seconds > 0 || links_.loss > 0; }

  ModelledLinks links_;
  double frame_seconds_;
  double loss_on_two_links_;
  double held_seconds_ = 0;       // by a loss that acknowledgements tell of
  double last_held_seconds_ = 0;  // by one that the timer tells of
};

}  // namespace tersewire
