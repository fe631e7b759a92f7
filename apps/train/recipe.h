// Recipes: settings of a command under one name, in a small file of lines KEY = VALUE. A key is a
// long option of the command, without dashes. Lines that begin with # or ; are comments.
//
// Those of recipes/ are built into the program; the first line of each says what it is.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tersewire::apps {

struct Recipe {
  std::string name;  // of one that is built in, or the path of a user's own
  std::string text;
};

// Those that are built in, by name.
const std::vector<Recipe>& built_in_recipes();

// Their names, each with its first line.
std::string recipe_list();

// A user's own where `name` holds a slash or ends in .ini, else one that is built in. Throws
// WrongUsage, naming the nearest, for an unknown one, and an Error for a file that cannot be
// read, is larger than 64 KiB or is no text.
Recipe find_recipe(const std::string& name);

// The keys that a recipe for the command may have, or the options that it may not.
std::vector<std::string> setting_names(const CLI::App& command, bool may_have = true);

// Gives the command's options the recipe's values, where the command line says nothing of them:
// neither the option itself nor one that excludes it. `settled` are further options that the
// command line leaves no room for. Call it once the command line has been parsed. Throws
// WrongUsage, naming recipe, line and key, for a line that is no KEY = VALUE, a key that the
// command does not have (naming the nearest that it has), one that is there twice or excludes
// another, and a value that the option refuses.
void apply_recipe(const Recipe& recipe, CLI::App& command,
                  const std::set<const CLI::Option*>& settled);

}  // namespace tersewire::apps
