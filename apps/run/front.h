// The front of bits against accuracy: what people choose a codec by.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace tersewire::apps {

// What a design sends and what it reaches.
struct BitsAndAccuracy {
  double bits = 0;  // of a value, pushed and pulled
  double accuracy = 0;
};

// For each design, whether no other reaches its accuracy or more with fewer bits, nor more accuracy
// with as many. One that lacks a number is not on the front.
inline std::vector<bool> front_of(std::span<const BitsAndAccuracy> designs) {
  const auto beats = [](const BitsAndAccuracy& a, const BitsAndAccuracy& b) {
    return a.bits <= b.bits && a.accuracy >= b.accuracy &&
           (a.bits < b.bits || a.accuracy > b.accuracy);
  };
  std::vector<bool> front;
  for (const BitsAndAccuracy& design : designs) {
    bool is_on_it = std::isfinite(design.bits) && std::isfinite(design.accuracy);
    for (const BitsAndAccuracy& other : designs) is_on_it = is_on_it && !beats(other, design);
    front.push_back(is_on_it);
  }
  return front;
}

}  // namespace tersewire::apps
