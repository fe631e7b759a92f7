#include "apps/cli/interrupt.h"

#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>

namespace tersewire::apps {

std::atomic<bool> interrupted{false};

namespace {

std::atomic<std::int64_t> interrupted_at{0};  // seconds
std::atomic<int> interrupted_by{0};

void on_signal(int signal) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  int none = 0;
  if (interrupted_by.compare_exchange_strong(none, signal)) {
    interrupted_at = now.tv_sec;
    interrupted = true;
  } else if (now.tv_sec > interrupted_at + 1) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

}  // namespace

int interrupting_signal() { return interrupted_by; }

std::string interruption() {
  const int signal = interrupting_signal();
  return signal > 0 ? std::string("SIG") + sigabbrev_np(signal) : "the notice";
}

void end_on_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler == SIG_IGN) continue;
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigaction(signal, &action, nullptr);
  }
}

}  // namespace tersewire::apps
