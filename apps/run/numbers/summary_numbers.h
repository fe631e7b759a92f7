// What is measured of a whole run: one table, which summary.json, comparisons and reports read.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <span>

namespace tersewire::apps {

// Of a run, or means of several; a NaN where one is not finite, or not there.
struct SummaryNumbers {
  double test_accuracy = 0;  // 0 to 1
  double test_loss = 0;
  double compression_ratio = 0;
  double push_bits_per_value = 0;
  double pull_bits_per_value = 0;
  double step_seconds = 0;
  double compute_seconds = 0;     // processor time of a worker, a step
  double codec_seconds = 0;       // the same
  double wait_seconds = 0;        // of a worker, a step
  double busiest_node_bytes = 0;  // a step
};

struct SummaryNumber {
  const char* key;  // in summary.json, and in a comparison's results.json
  double SummaryNumbers::*member;
};

inline constexpr std::array kSummaryNumbers{
    SummaryNumber{"test_accuracy", &SummaryNumbers::test_accuracy},
    SummaryNumber{"test_loss", &SummaryNumbers::test_loss},
    SummaryNumber{"compression_ratio", &SummaryNumbers::compression_ratio},
    SummaryNumber{"push_bits_per_value", &SummaryNumbers::push_bits_per_value},
    SummaryNumber{"pull_bits_per_value", &SummaryNumbers::pull_bits_per_value},
    SummaryNumber{"step_seconds", &SummaryNumbers::step_seconds},
    SummaryNumber{"compute_seconds", &SummaryNumbers::compute_seconds},
    SummaryNumber{"codec_seconds", &SummaryNumbers::codec_seconds},
    SummaryNumber{"wait_seconds", &SummaryNumbers::wait_seconds},
    SummaryNumber{"busiest_node_bytes", &SummaryNumbers::busiest_node_bytes}};

// Whether, by summary.json, the loss at the end was no finite number or had grown tenfold over its
// best: what the run learned is worth nothing.
bool diverged(const nlohmann::json& summary);

// NaNs where there are none.
SummaryNumbers mean(std::span<const SummaryNumbers> runs);

// Seconds a step would take if the busiest node's link had `bits_per_second`, and the bytes of a
// step that cross it did so after the computation: no overlap.
double modelled_step_seconds(const SummaryNumbers& numbers, double bits_per_second);

}  // namespace tersewire::apps
