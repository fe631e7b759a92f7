// The commands of apps/predict/, and the option that they share with those that run jobs.
#pragma once

#include <optional>

namespace CLI {
class App;
}

namespace tersewire::apps {

void add_predict_command(CLI::App& app);
void add_probe_command(CLI::App& app);

// --servers N|colocated, as Job takes it.
void add_servers_option(CLI::App& command, std::optional<int>& servers);

}  // namespace tersewire::apps
