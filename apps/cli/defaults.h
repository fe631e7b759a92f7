// A user's own defaults for options: from the environment (TERSEWIRE_THREADS=4) and from one file.
//
// The command line overrides a recipe, a recipe the environment, that the file, and the file what
// is built in. A run that goes on has its settings already.
// The file is what TERSEWIRE_CONFIG names (empty: none), else tersewire/config.json in
// $XDG_CONFIG_HOME or ~/.config: an object with the same keys, long options without dashes.
#pragma once

#include <array>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tersewire::apps {

// What says a codec for a part of the traffic, where --codec is for all: who gives one settles
// these.
inline constexpr std::array kPartialCodecOptions{"--push-codec", "--pull-codec", "--policy"};

// Gives the command's options the user's defaults, where nothing has said anything of them or of
// one that excludes them. Call it once the command line has been parsed, and a recipe applied.
// Returns what ends a sentence that refuses the command: which of what it computes they said, and
// where. Throws WrongUsage, naming the variable or the file and its key, for what no option takes,
// and a codec or transport that there is not.
std::string apply_defaults(CLI::App& command);

// Whether the user wants nothing said but what failed. Throws as apply_defaults().
bool quiet_by_default();

// From now on there are none, for this process and those that it starts: what they do is to be said
// by their command lines alone.
void forget_defaults();

struct EffectiveDefault {
  std::string command;
  std::string option;
  std::string value;
  std::string source;  // a variable, a file, or "built in"
};

// All that a user may set, by command. Throws as apply_defaults().
std::vector<EffectiveDefault> effective_defaults(CLI::App& app);

}  // namespace tersewire::apps
