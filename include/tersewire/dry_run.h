// What codecs would make of a job's gradients, found out beside a training that uses none of them.
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

// The codecs of a list, by their texts: "3lc,adacomp:bin=500,lead=1,int8" names three. What has a =
// and no codec before it belongs to the codec before. Whether they exist is not checked.
std::vector<std::string> codec_list(std::string_view text);

// One codec on one tensor.
struct DryRunRow {
  std::size_t tensor = 0;  // as in the job
  std::string codec;       // as it was given
  std::uint64_t looks = 0;
  double bits = 0;  // a value, mean over the looks
  // Of what was to be sent, the residual included, the part that was not: the root of the squares
  // of the one over that of the other, over all looks.
  double error = 0;
  // The residual after the last look, in gradients: its root mean square over the gradient's.
  double residual = 0;
  // A value, by one thread: the fastest look. Encoding with the residual.
  double encode_seconds = 0;
  double decode_seconds = 0;
};

// All that a dry run has found so far.
struct DryRunFindings {
  std::vector<TensorInfo> tensors;
  std::vector<DryRunRow> rows;  // as DryRun::rows() and totals()
  std::vector<DryRunRow> totals;
  double share = 0;  // of the time
};

// As text, for people: a table of the codecs, and one of the tensors with each. Any thread.
std::string dry_run_table(const DryRunFindings& findings);

// Sends each tensor of one worker's gradients through each codec in turn, with a residual of its
// own, as often as a share of the time allows. Nothing that the job has is touched. One thread at a
// time. Memory: for each codec with a residual as much as the model, and three copies of the
// largest tensor.
class DryRun {
 public:
  // Of the time since it was made, looks take no more than this share once each tensor was looked
  // at; before that one tensor a step.
  static constexpr double kMostShare = 0.03;

  // `policy`: what the job would be given beside each codec (policy.h). Throws like
  // choose_codecs().
  DryRun(std::vector<TensorInfo> tensors, std::vector<std::string> codecs, std::string_view policy,
         std::uint64_t seed);
  ~DryRun();
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;

  // Whether look() would look at this tensor in this step: for who has to copy its gradient first.
  // False for a number that is no tensor's.
  [[nodiscard]] bool is_due(std::size_t tensor, std::uint64_t step) const;

  // For every tensor's gradient in every step, from 1: looks at it where its turn has come. One
  // that is not finite is not counted. Throws kInvalidArgument for another number of values. Cost:
  // none, or an encode and a decode with every codec.
  void look(std::size_t tensor, std::uint64_t step, std::span<const float> gradient);

  [[nodiscard]] const std::vector<TensorInfo>& tensors() const;
  // Of each tensor in turn the codecs, in the order in which they were given; without looks all is
  // 0.
  [[nodiscard]] std::vector<DryRunRow> rows() const;
  // Of all tensors together, weighted by their values: a row a codec, with the least of the looks.
  [[nodiscard]] std::vector<DryRunRow> totals() const;
  // Of the time since it was made, what it took.
  [[nodiscard]] double share() const;
  [[nodiscard]] DryRunFindings findings() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tersewire
