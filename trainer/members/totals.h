// What a worker has done since its run began, whatever has interrupted that.
#pragma once

#include <cstdint>
#include <deque>

#include "tersewire/communicator.h"

namespace tersewire::trainer {

// The sum, and the difference, number by number.
void add(Counters& sum, const Counters& one);
void subtract(Counters& difference, const Counters& one);

struct Totals {
  std::uint64_t since = 0;  // the step after which counting began
  std::uint64_t steps = 0;  // taken by the workers counted here
  double seconds = 0;       // of the clock
  double cpu_seconds = 0;
  Counters counters = {};

  // Those of a worker whose part this one has taken over, too; the clock has run but once.
  void take_over(const Totals& other);
};

// As numbers for a checkpoint, and back. Throws kDataLoss for what no Totals are.
std::deque<double> numbers_of(const Totals& totals);
Totals totals_in(const std::deque<double>& numbers);

}  // namespace tersewire::trainer
