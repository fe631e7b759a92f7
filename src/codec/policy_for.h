// Policies, for what is to be carried.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "codec_traits.h"
#include "tersewire/policy.h"

namespace tersewire {

// As choose_codecs(), with codecs that make_codec_for() makes.
std::vector<std::shared_ptr<const Codec>> choose_codecs_for(StateChange carried,
                                                            std::string_view policy,
                                                            std::string_view fallback,
                                                            std::span<const TensorInfo> tensors);

}  // namespace tersewire
