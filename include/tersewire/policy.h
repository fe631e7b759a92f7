// Policies: which tensor of a job gets which codec.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tersewire/codec.h"
#include "tersewire/tensor.h"

namespace tersewire {

// Chooses a codec for each tensor of a job.
//
// A policy is a list of rules, "CONDITION:CODEC; CONDITION:CODEC; ..."; the first match wins, and a
// tensor without a match gets `fallback`. Conditions:
//   *            every tensor
//   size<N  size<=N  size>N  size>=N  size=N    by number of elements
//   rank<N ...   by number of dimensions
//   kind=K       conv, dense, recurrent, norm, bias, embedding, other
//   name=GLOB    by name; * stands for any characters, ? for one
//   first  last  the first or the last layer: the tensors whose name up to the last '.' is the same
//                as that of the first or last tensor
// Ready-made texts by name:
//   auto             light if `fallback` is 3lc with mode=blocks, else small
//   small            size<256:fp32
//   light            size<256:int8:ef=on: a quarter of fp32, and nothing is lost
//   3lc-paper        kind=norm:fp32: tensors of norm layers uncompressed (3LC, section 4.2)
//   terngrad-paper   last:fp32: the last layer uncompressed (TernGrad)
//   adacomp-paper    kind=conv:adacomp:bin=50,lead=1; *:adacomp:bin=500,lead=1: bins by kind of
//                    layer (AdaComp)
//
// Exact tensors (TensorInfo::exact) get fp32, and no condition sees them.
//
// In jobs with `local_updates` (Job::local_updates), codecs keep a residual where small changes
// would be lost, and have no lead if local_updates > 1, unless their texts set one.
//
// Returns one codec per tensor; tensors with the same text share one object. Throws
// kInvalidArgument for a rule that cannot be parsed, and for one whose condition no tensor meets
// (except rules of ready-made texts), naming the rule.
std::vector<std::shared_ptr<const Codec>> choose_codecs(std::string_view policy,
                                                        std::string_view fallback,
                                                        std::span<const TensorInfo> tensors,
                                                        int local_updates = 0);

// What makes up for steps of Adam that encoded gradients make smaller, if these tensors have these
// codecs, one each: Codec::adaptive_rate_gain() of the one that most values have.
double adaptive_rate_gain(std::span<const TensorInfo> tensors,
                          std::span<const std::shared_ptr<const Codec>> codecs);

}  // namespace tersewire
