// The tcp transport as a carrier of bytes, for bench/byte_carriers.py.
//
// usage: byte_carrier BYTES ROUNDS
//
// Two processes on loopback send each other a message of so many bytes in turns. Prints the median
// of microseconds a round trip, and those of processor time that both took in all.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tersewire/tersewire.h"

namespace {

using Clock = std::chrono::steady_clock;

double microseconds(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

double processor_us(int who) {
  rusage used{};
  getrusage(who, &used);
  return 1e6 * static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

void receive(tersewire::Transport& end) { static_cast<void>(receive_within(end, {}, "a message")); }

void run(tersewire::Transport& end, std::size_t bytes, int rounds, std::vector<double>& times) {
  const auto message = std::make_shared<const tersewire::Bytes>(bytes, std::byte{1});
  for (int round = 0; round < rounds; ++round) {
    const auto began = Clock::now();
    if (end.rank() == 1) receive(end);
    end.send(1 - end.rank(), message);
    if (end.rank() == 0) receive(end);
    times.push_back(microseconds(Clock::now() - began));
  }
}

}  // namespace

int main(int, char** arguments) {
  const std::size_t bytes = std::strtoull(arguments[1], nullptr, 10);
  const int rounds = std::stoi(arguments[2]);
  const std::string token(16, 't');
  tersewire::TcpMeeting first("127.0.0.1");
  tersewire::TcpMeeting second("127.0.0.1");
  const std::vector<std::string> addresses{first.address(), second.address()};
  std::vector<double> times;
  const pid_t other = fork();
  {
    const auto end =
        other == 0 ? second.join(1, addresses, token) : first.join(0, addresses, token);
    run(*end, bytes, rounds, times);
  }
  if (other == 0) return 0;
  waitpid(other, nullptr, 0);
  std::ranges::nth_element(times, times.begin() + rounds / 2);
  std::printf("%.1f %.1f\n", times[static_cast<std::size_t>(rounds) / 2],
              (processor_us(RUSAGE_SELF) + processor_us(RUSAGE_CHILDREN)) / rounds);
}
