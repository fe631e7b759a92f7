#include "trainer/members/totals.h"

#include <algorithm>

#include "tersewire/error.h"

namespace tersewire::trainer {
namespace {

constexpr double kMaxNumber = 9007199254740992;  // 2^53

// Calls `use` with every number of both, in the order of checkpoints.
template <typename One, typename Other, typename Use>
void for_each_counter(One& one, Other& other, Use&& use) {
  use(one.pushed_bytes, other.pushed_bytes);
  use(one.pulled_bytes, other.pulled_bytes);
  use(one.pushed_values, other.pushed_values);
  use(one.pulled_values, other.pulled_values);
  use(one.not_finite_tensors, other.not_finite_tensors);
  use(one.unused_pushes, other.unused_pushes);
  use(one.encode_seconds, other.encode_seconds);
  use(one.decode_seconds, other.decode_seconds);
  use(one.wait_seconds, other.wait_seconds);
  use(one.exchange_seconds, other.exchange_seconds);
}

template <typename One, typename Other, typename Use>
void for_each_number(One& one, Other& other, Use&& use) {
  use(one.since, other.since);
  use(one.steps, other.steps);
  use(one.seconds, other.seconds);
  use(one.cpu_seconds, other.cpu_seconds);
  for_each_counter(one.counters, other.counters, use);
}

}  // namespace

void add(Counters& sum, const Counters& one) {
  for_each_counter(sum, one, [](auto& to, const auto& from) { to += from; });
}

void subtract(Counters& difference, const Counters& one) {
  for_each_counter(difference, one, [](auto& from, const auto& what) { from -= what; });
}

void Totals::take_over(const Totals& other) {
  steps += other.steps;
  cpu_seconds += other.cpu_seconds;
  add(counters, other.counters);
}

std::deque<double> numbers_of(const Totals& totals) {
  std::deque<double> numbers;
  for_each_number(totals, totals, [&](const auto& number, const auto& /*the same*/) {
    numbers.push_back(static_cast<double>(number));
  });
  return numbers;
}

Totals totals_in(const std::deque<double>& numbers) {
  Totals totals;
  const bool possible = numbers.size() == numbers_of(totals).size() &&
                        std::ranges::all_of(numbers, [](double number) {
                          return number >= 0 && number <= kMaxNumber;
                        });
  if (!possible) {
    throw Error(ErrorCode::kDataLoss,
                "the checkpoint's record of traffic is damaged; use another copy of it");
  }
  auto next = numbers.begin();
  for_each_number(totals, totals, [&]<typename Number>(Number& number, const Number& /*the same*/) {
    number = static_cast<Number>(*next++);
  });
  return totals;
}

}  // namespace tersewire::trainer
