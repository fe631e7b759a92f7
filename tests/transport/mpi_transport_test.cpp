// The mpi transport, in as many processes as mpirun starts: the cases of every transport.
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>

#include "mpi_test_main.h"
#include "transport_cases.h"

namespace tersewire {
namespace {

Rank* me = nullptr;

class MpiCases : public testing::TestWithParam<TransportCase> {};

TEST_P(MpiCases, OverProcesses) { GetParam().run(*me); }

INSTANTIATE_TEST_SUITE_P(Transport, MpiCases, testing::ValuesIn(kTransportCases), case_name);

TEST(MpiTransport, IsJoinedOnce) {
  try {
    join_mpi_network({1s});
    ADD_FAILURE() << "joined twice";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  }
}

SharedBytes message_of(std::int64_t number) {
  Bytes bytes(sizeof(number));
  std::memcpy(bytes.data(), &number, sizeof(number));
  return std::make_shared<const Bytes>(std::move(bytes));
}

bool is_stopped(std::int64_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t name_end = text.rfind(')');
  return name_end != std::string::npos && text.substr(name_end, 3) == ") T";
}

// Rank 1 is stopped while rank 0 sends to it, small messages, which MPI would keep.
TEST(MpiTransport, SaysWhatWaitsForAPeer) {
  if (me->ranks() < 2) return;
  constexpr std::size_t kBytes = 1000;
  constexpr std::size_t kMessages = 5000;
  if (me->number() == 1) {
    me->send(0, message_of(getpid()));
    while (me->end().peer(0).waiting > 0) std::this_thread::sleep_for(1ms);
    std::raise(SIGSTOP);
    for (std::size_t i = 0; i < kMessages; ++i) EXPECT_EQ(me->from(0)->size(), kBytes);
    me->send(0, message_of(0));
  }
  if (me->number() != 0) return;
  std::int64_t process = 0;
  std::memcpy(&process, me->from(1)->data(), sizeof(process));
  while (!is_stopped(process)) std::this_thread::sleep_for(1ms);
  const auto message = std::make_shared<const Bytes>(kBytes);
  for (std::size_t i = 0; i < kMessages; ++i) me->send(1, message);
  std::this_thread::sleep_for(500ms);  // for the communication thread to send what it will
  // All but what goes without being confirmed, and what is given to MPI behind that.
  EXPECT_GT(me->end().peer(1).waiting, kMessages * kBytes - 4 * 65536);
  kill(static_cast<pid_t>(process), SIGCONT);
  me->from(1);
  // MPI may tell of the last ones after their answer has come.
  for (int i = 0; i < 10000 && me->end().peer(1).waiting > 0; ++i) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(me->end().peer(1).waiting, 0U);
}

int run_tests(std::unique_ptr<Transport> end) {
  Rank rank(*end);
  me = &rank;
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace tersewire

int main(int argc, char** argv) {
  return tersewire::mpi_test_main(argc, argv, tersewire::run_tests);
}
