// Numbers on the command line mean what they look like.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace tersewire::apps {

// Makes every option of the program and its commands that takes a number refuse what another number
// might be read from: 010 (as octal), -1 where there is no sign, what overflows, an infinity.
void take_plain_numbers(CLI::App& app);

// What is wrong with a whole number; empty where nothing is.
std::string wrong_with_whole_number(const std::string& text, bool may_be_negative);

}  // namespace tersewire::apps
