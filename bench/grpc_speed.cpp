// Measures the transport grpc over loopback: a hub and two ends in one process, so that every byte
// is sent twice, and received twice; with `direct` the ends speak to each other directly. For
// evidence/grpc/README.md.
//
// usage: grpc_speed [plain|tls] [direct]
#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <ctime>
#include <future>
#include <stdexcept>
#include <thread>

#include "tersewire/grpc_network.h"
#include "tests/support/grpc_certificates.h"

namespace tersewire {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

void receive(Transport& end, int messages) {
  for (int i = 0; i < messages; ++i) {
    if (!end.receive(60s)) throw std::runtime_error("nothing arrived for 60 s");
  }
}

// Keeps what waits for the peer bounded, as an application does.
void send(Transport& end, int messages, const SharedBytes& message) {
  for (int i = 0; i < messages; ++i) {
    while (end.peer(1 - end.rank()).waiting > (std::size_t{64} << 20)) {
      std::this_thread::sleep_for(100us);
    }
    end.send(1 - end.rank(), message);
  }
}

// Of all threads, so far.
double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

double seconds_of(Transport& first, Transport& second, int messages, std::size_t bytes, bool both) {
  const auto message = std::make_shared<const Bytes>(bytes);
  const auto began = Clock::now();
  std::thread receiver([&] { receive(second, messages); });
  std::thread back([&] {
    if (both) send(second, messages, message);
  });
  std::thread receiver_back([&] {
    if (both) receive(first, messages);
  });
  send(first, messages, message);
  for (std::thread* thread : {&receiver, &back, &receiver_back}) thread->join();
  return std::chrono::duration<double>(Clock::now() - began).count();
}

void measure(bool tls, bool direct) {
  TestCertificates certificates("speed");
  const auto security = [&](std::optional<std::uint32_t> rank) {
    return tls ? certificates.of(rank) : GrpcSecurity{};
  };
  const GrpcSecurity of_second = security(1);
  const GrpcHub hub("127.0.0.1:0", 2, security(std::nullopt));
  auto joining = std::async(std::launch::async,
                            [&] { return join_grpc_network(hub.address(), 1, 2, of_second); });
  auto first = join_grpc_network(hub.address(), 0, 2, security(0), {}, direct ? "127.0.0.1:0" : "");
  auto second = joining.get();
  if (direct) std::this_thread::sleep_for(2s);  // until they have found each other
  for (int round = 0; round < 3; ++round) {
    constexpr int kLarge = 64;
    constexpr double kGigabytes = kLarge * 8.0 * (1 << 20) / 1e9;
    const double before = processor_seconds();
    const double one = seconds_of(*first, *second, kLarge, std::size_t{8} << 20, false);
    const double spent = processor_seconds() - before;
    const double both = seconds_of(*first, *second, kLarge, std::size_t{8} << 20, true);
    constexpr int kSmall = 50000;
    const double small = seconds_of(*first, *second, kSmall, 1024, false);
    const auto message = std::make_shared<const Bytes>(1024);
    constexpr int kTurns = 500;
    const auto began = Clock::now();
    for (int i = 0; i < kTurns; ++i) {
      first->send(1, message);
      receive(*second, 1);
      second->send(0, message);
      receive(*first, 1);
    }
    const double turn = std::chrono::duration<double>(Clock::now() - began).count() / kTurns;
    fmt::print(
        "8 MiB: {:.2f} GB/s one way, {:.2f} s of processor a GB; {:.2f} GB/s each of both ways; "
        "1 KiB: {:.0f}/s, there and back {:.0f} us\n",
        kGigabytes / one, spent / kGigabytes, kGigabytes / both, kSmall / small, turn * 1e6);
  }
  auto leaving = std::async(std::launch::async, [&] { first.reset(); });
  second.reset();
}

}  // namespace
}  // namespace tersewire

int main(int argc, char** argv) {
  tersewire::measure(argc < 2 || std::strcmp(argv[1], "plain") != 0,
                     argc > 2 && std::strcmp(argv[2], "direct") == 0);
}
