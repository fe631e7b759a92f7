// What was said of a job, by option: kept with its checkpoints, and said again where it goes on.
#pragma once

#include <map>
#include <set>
#include <string>

namespace CLI {
class App;
}  // namespace CLI

namespace tersewire::apps {

// Values as texts, by long option without its dashes.
using Settings = std::map<std::string, std::string>;

// All of a command's, given or by default, except options that are not configurable.
Settings settings_of(const CLI::App& command);

// Gives the command's options these settings, except those in `changeable` that the command line
// gives. Call it once the command line has been parsed. Throws WrongUsage where the command line
// says something else, and kFailedPrecondition for a setting that the command does not have.
void apply_settings(const Settings& settings, CLI::App& command,
                    const std::set<std::string>& changeable);

}  // namespace tersewire::apps
