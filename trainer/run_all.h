// The nodes of one process, each in a thread.
#pragma once

#include <functional>
#include <vector>

#include "tersewire/transport.h"

namespace tersewire::trainer {

// Runs every task in a thread of its own and waits for all; one that throws ends the job for the
// others. Throws the first exception that says what went wrong: those of nodes that were merely
// told to stop come after.
void run_all(const std::vector<std::function<void()>>& tasks, Transport& network);

}  // namespace tersewire::trainer
