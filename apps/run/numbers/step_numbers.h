// What is measured of every step: one table, which metrics.jsonl, TensorBoard and Prometheus read.
#pragma once

#include <cstdint>
#include <span>

#include "apps/run/numbers/observed_kinds.h"
#include "trainer/loop/train.h"

namespace tersewire::apps {

enum class NumberKind : std::uint8_t {
  kOfStep,  // of the last step alone
  kTotal,   // grows from the start
  kRatio    // of two that grow; 0 where nothing has
};

// A null name: not shown there.
struct StepNumber {
  const char* key;  // in metrics.jsonl; kTotal and kRatio count from the start there
  const char* tag;  // TensorBoard's, where every number is that of one step
  // Prometheus' name without its prefix tersewire_; numbers of one name lie side by side and differ
  // in their direction.
  const char* metric;
  const char* direction;  // null: the name has no label
  const char* help;       // what it is and its unit, for people
  NumberKind kind;
  bool whole;  // a whole number
  // Of a report, or of what lies between two of them.
  double (*read)(const trainer::StepReport&);
};

std::span<const StepNumber> step_numbers();

// What the steps from `before` to `now` came to: totals are those within.
trainer::StepReport between(const trainer::StepReport& before, const trainer::StepReport& now);

// What is observed of a kind of tensors.
struct KindNumber {
  const char* tag;     // TensorBoard's, before the kind
  const char* metric;  // Prometheus', as above; its label is the kind
  const char* help;
  double ObservedKind::*member;
};

std::span<const KindNumber> kind_numbers();

}  // namespace tersewire::apps
