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

void add_config_command(CLI::App& app);
void add_train_command(CLI::App& app);
void add_compare_command(CLI::App& app);

}  // namespace tersewire::apps
