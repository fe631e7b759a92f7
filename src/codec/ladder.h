// Codecs that take turns in one encoder (Job::ladder).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tersewire/codec.h"

namespace tersewire {

// A codec for each tensor whose encoders take, for what belongs to a step, that of the rung which
// `rung` says. What a residual holds goes on to the next codec's; one that keeps none is given it
// beside the first input that it encodes, so that it loses no more of it than of that.
//   rungs   of each rung the codec of every tensor, the same number in all; at least one rung
// Tensors that have the same codecs share one object. Its id() is that of the first rung.
std::vector<std::shared_ptr<const Codec>> make_ladder(
    const std::vector<std::vector<std::shared_ptr<const Codec>>>& rungs,
    const std::function<std::size_t(std::uint64_t step)>& rung);

}  // namespace tersewire
