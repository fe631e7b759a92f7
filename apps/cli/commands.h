// The commands of the program. One thread.
//
// A command registers itself with add_NAME_command(); its callback does the work and throws where
// it fails (apps/cli/failures.h). main() turns exceptions into one sentence on stderr and an exit
// code.
#pragma once

namespace CLI {
class App;
}

namespace tersewire::apps {

void add_encode_command(CLI::App& app);
void add_decode_command(CLI::App& app);
void add_inspect_command(CLI::App& app);
void add_codecs_command(CLI::App& app);
void add_data_command(CLI::App& app);
void add_bench_command(CLI::App& app);
void add_bench_exchange_command(CLI::App& bench);
void add_report_command(CLI::App& app);
void add_nic_command(CLI::App& app);
void add_hub_command(CLI::App& app);
void add_status_command(CLI::App& app);
void add_certs_command(CLI::App& app);
void add_predict_command(CLI::App& app);
void add_probe_command(CLI::App& app);

// Those that need libtorch: what they do is in the program tersewire-train, and in `tersewire` a
// call of it (train_program.cpp).
void add_train_command(CLI::App& app);
void add_compare_command(CLI::App& app);
void add_config_command(CLI::App& app);  // which shows the defaults of their options
inline constexpr const char* kTrainSummary =
    "Train a network with several workers, all traffic compressed, and show what it saved";
inline constexpr const char* kCompareSummary =
    "Train the same network with several designs, and show what each saves and costs";

inline constexpr const char* kConfigSummary =
    "Show the defaults of options, and where they come from";

}  // namespace tersewire::apps
