// What ends a long job before its time.
#pragma once

#include <atomic>
#include <string>

namespace tersewire::apps {

// Set where the job is to end after the steps under way: by the first SIGINT, SIGTERM or SIGHUP
// after end_on_signals(), or by whoever cannot go on.
extern std::atomic<bool> interrupted;

// The first of these signals; 0 where none came.
int interrupting_signal();
// The same for a sentence: SIGTERM; "the notice" where there was a file in a signal's place.
std::string interruption();

// A later signal ends the program, but not one that comes at once: some senders signal a process
// and then its group. One that whoever started the program wants ignored stays ignored.
void end_on_signals();

}  // namespace tersewire::apps
