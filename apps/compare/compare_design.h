// The lists that `tersewire compare` takes: designs, step counts and rates. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/cli/settings.h"

namespace tersewire::apps {

// One way to train the same job: [OPTION=VALUE ...] [CODEC], as in `3lc:s=1.75`, `local-steps=2` or
// `exchange=ring codec=inceptionn:bound=2^-10 policy=`. Quotes, ' or ", keep spaces and semicolons
// of a value together.
struct Design {
  std::string name;   // as it was written, with single spaces
  Settings settings;  // of train; "codec" is always among them, fp32 unless said
};

// Designs, separated by semicolons. Throws WrongUsage for a list without any, a design that is
// there twice, an option that train does not have or that all designs share, and open quotes.
std::vector<Design> designs_argument(const std::string& text);

// KEY=VALUE for every design. Throws WrongUsage as above, and for codecs, which designs choose.
Settings shared_settings_argument(const std::vector<std::string>& texts);

// What `tersewire train` takes on its command line for these.
std::vector<std::string> train_arguments(const Settings& settings);

struct StepCount {
  std::string name;  // as it was written
  std::uint64_t steps = 0;
};

// Each a number of steps, or a part of `full_steps`, as 25%: rounded, at least 1. Throws WrongUsage
// for what is neither, parts that are not above 0 and at most 100 %, and two that are the same.
std::vector<StepCount> steps_argument(const std::vector<std::string>& texts,
                                      std::uint64_t full_steps);

struct Rate {
  std::string name;  // as it was written
  double bits_per_second = 0;
};

// Throws WrongUsage for what is no rate, and two that are the same.
std::vector<Rate> rates_argument(const std::vector<std::string>& texts);

}  // namespace tersewire::apps
