// The embedded text: talk that a small grammar makes up, so that a first LSTM needs no download.
//
// It has what a character model can learn, the nearer things first: words, lines that begin with
// who speaks, verbs that agree with a subject several words back, speakers who take turns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tersewire::trainer {

// Characters of the embedded data set.
inline constexpr std::size_t kEmbeddedTextBytes = 200000;

// The first `bytes` characters of the text that `seed` names: the same on every machine. Letters,
// spaces, line ends, and . , : ? alone. Any thread. Cost: a few milliseconds.
std::string generate_text(std::uint64_t seed, std::size_t bytes);

}  // namespace tersewire::trainer
