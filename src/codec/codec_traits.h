// Which codecs may carry what of a training job, by their traits (tersewire/codec.h). Each codec's
// entry in the registry says its own; nothing else names codecs to decide what fits.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tersewire/codec.h"

namespace tersewire {

// What travels, by what becomes of an error in it.
enum class StateChange : std::uint8_t {
  kGradients,    // each is encoded once, or keeps its error in a residual: any codec
  kSums,         // partial sums of gradients, encoded again at every hop
  kWeights,      // whole weights, each of which must arrive nearly as it is
  kMeans,        // mean gradients that servers send, encoded a second time
  kModelDeltas,  // what servers change in the model, which workers see nothing else of
  kLocalSteps,   // model deltas of workers that go one step by themselves, and their means
  kLocalUpdates  // the same of many steps
};

// What takes the place of `carried` where workers go so many steps by themselves; 0: nothing does.
constexpr StateChange carried_after(int local_updates, StateChange carried) {
  if (local_updates < 1) return carried;
  return local_updates > 1 ? StateChange::kLocalUpdates : StateChange::kLocalSteps;
}

bool fits(const CodecTraits& traits, StateChange carried);

// The codecs that have a trait, for a sentence: "fp32, int8 or qsgd".
std::string codecs_with(bool CodecTraits::*trait);

// As make_codec(), for what is to be carried. Model deltas that would be lost for ever without a
// residual are encoded with ef=on where the text does not say ef; ef=off is refused. Those of many
// local steps have no lead where the text does not say one: each is most of the way to where its
// worker was going, and what counts more than once goes beyond that. Differences (ef=21) are for
// gradients that are pushed: what servers send is encoded with ef=on instead, and local updates
// refuse them.
std::shared_ptr<const Codec> make_codec_for(std::string_view text, StateChange carried);

}  // namespace tersewire
