// How codecs would compress a job's gradients, measured alongside a training that uses none of
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tersewire/tensor.h"

namespace tersewire {

// The codecs of a list, by their texts: "3lc,adacomp:bin=500,lead=1,int8" names three. An item with
// a = and no codec of its own belongs to the codec before it. Whether the codecs exist is not
// checked.
std::vector<std::string> codec_list(std::string_view text);

// One codec on one tensor.
struct DryRunRow {
  std::size_t tensor = 0;  // as in the job
  std::string codec;       // as given
  // The codec that was tried: `codec`, or the full text of what the policy has for this tensor.
  // Empty in totals.
  std::string used = {};
  std::uint64_t looks = 0;
  double bits = 0;  // per value, mean over the looks
  // The unsent part of the data to be sent, residual included: the root of the sum of squares of
  // the one over that of the other, over all looks.
  double error = 0;
  // The residual after the last look, in gradients: its root mean square over the gradient's.
  double residual = 0;
  // Per value, by one thread: the fastest look. Encoding includes the residual.
  double encode_seconds = 0;
  double decode_seconds = 0;
};

// A dry run's findings so far.
struct DryRunFindings {
  std::vector<TensorInfo> tensors;
  std::vector<DryRunRow> rows;  // as DryRun::rows() and totals()
  std::vector<DryRunRow> totals;
  double share = 0;  // of the time
};

// As text, for people: a table of the codecs, and one of the tensors with each. Any thread.
std::string dry_run_table(const DryRunFindings& findings);

// Sends each tensor of one worker's gradients through each codec in turn, with its own residual, as
// often as a share of the time allows. Does not touch the job's data. One thread at a time. Memory:
// as much as the model for each codec with a residual, and three copies of the largest tensor.
class DryRun {
 public:
  // Looks take no more than this share of the time since it was made, once each tensor was looked
  // at; before that one tensor per step.
  static constexpr double kMostShare = 0.03;

  // `policy`: the job's policy to go with each codec (policy.h). Throws like choose_codecs().
  DryRun(std::vector<TensorInfo> tensors, std::vector<std::string> codecs, std::string_view policy,
         std::uint64_t seed);
  ~DryRun();
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;

  // Whether look() would look at this tensor in this step: for callers that must copy its gradient
  // first. False for a number that is not a tensor's.
  [[nodiscard]] bool is_due(std::size_t tensor, std::uint64_t step) const;

  // For every tensor's gradient in every step, from 1: looks at it if its turn has come. A gradient
  // that is not finite is not counted. Throws kInvalidArgument for another number of values. Cost:
  // none, or an encode and a decode with every codec.
  void look(std::size_t tensor, std::uint64_t step, std::span<const float> gradient);

  [[nodiscard]] const std::vector<TensorInfo>& tensors() const;
  // For each tensor in turn the codecs, in the order given; without looks all is 0.
  [[nodiscard]] std::vector<DryRunRow> rows() const;
  // Over all tensors, weighted by their number of values: a row per codec, with the least of the
  // looks.
  [[nodiscard]] std::vector<DryRunRow> totals() const;
  // The share that it took of the time since it was made.
  [[nodiscard]] double share() const;
  [[nodiscard]] DryRunFindings findings() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tersewire
