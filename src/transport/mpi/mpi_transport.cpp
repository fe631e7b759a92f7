// The processes of an MPI job as nodes: this one's end. Messages pass through a mailbox to and from
// a thread of their own, which is the only one that calls MPI.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <future>
#include <system_error>
#include <thread>

#include "ends.h"
#include "errors.h"
#include "mpi_mailbox.h"
#include "mpi_thread.h"
#include "tersewire/transport.h"

namespace tersewire {
namespace {

using namespace std::chrono_literals;

// How long a call of MPI that nothing can end, as MPI_Finalize(), is waited for beyond the
// deadline.
constexpr auto kCallTime = 5s;

// One of these is in the environment of what a launcher starts: Open MPI's, then any that speaks
// PMIx, then those of MPICH's family. MPI_Init() without one may wait for ever.
bool started_by_launcher() {
  constexpr std::array kVariables = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
  return std::ranges::any_of(kVariables,
                             [](const char* name) { return std::getenv(name) != nullptr; });
}

class MpiTransport final : public Transport {
 public:
  MpiTransport(MpiPlace place, std::shared_ptr<Mailbox> mailbox, std::thread thread,
               std::chrono::milliseconds deadline)
      : place_(place),
        mailbox_(std::move(mailbox)),
        thread_(std::move(thread)),
        deadline_(deadline) {}
  ~MpiTransport() override;
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  [[nodiscard]] int rank() const noexcept override { return place_.rank; }
  [[nodiscard]] int size() const noexcept override { return place_.size; }
  void send(int to, SharedBytes bytes) override;
  std::optional<Incoming> receive(std::chrono::milliseconds timeout) override;
  void abort(const std::string& reason) noexcept override;
  [[nodiscard]] Peer peer(int rank) const override { return mailbox_->peer(rank); }
  void expect_at_most(std::size_t bytes) override { mailbox_->expect_at_most(bytes); }
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept override { return sent_.load(); }
  [[nodiscard]] std::uint64_t bytes_received() const noexcept override { return received_.load(); }

 private:
  MpiPlace place_;
  std::shared_ptr<Mailbox> mailbox_;
  std::thread thread_;
  std::chrono::milliseconds deadline_;
  std::atomic<std::uint64_t> sent_{0};
  std::atomic<std::uint64_t> received_{0};
};

MpiTransport::~MpiTransport() {
  mailbox_->order_to_leave();
  if (mailbox_->wait_until_left(deadline_ + kCallTime)) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void MpiTransport::send(int to, SharedBytes bytes) {
  check_sent(rank(), to, size(), bytes);
  const std::size_t size = bytes->size();
  if (to == rank()) {
    mailbox_->post_to_self({.from = to, .bytes = std::move(bytes), .own = true});
  } else {
    mailbox_->post({.to = to, .bytes = std::move(bytes)});
  }
  sent_ += size;
}

std::optional<Incoming> MpiTransport::receive(std::chrono::milliseconds timeout) {
  std::optional<Incoming> message = mailbox_->take(timeout);
  if (message) received_ += message->bytes->size();
  return message;
}

void MpiTransport::abort(const std::string& reason) noexcept {
  mailbox_->fail(ErrorCode::kAborted, reason, true);
}

// MPI may still read and write what it was given and has not let go of.
std::atomic<MpiThread*> kept_until_the_end{nullptr};

// What the communication thread runs; everything that it needs is its own or shared.
void communicate(const std::shared_ptr<Mailbox>& mailbox, std::promise<MpiPlace> place,
                 const WaitLimits& limits) {
  auto thread = std::make_unique<MpiThread>(mailbox, limits);
  if (!thread->run(place)) kept_until_the_end = thread.release();
  mailbox->left();
}

}  // namespace

std::unique_ptr<Transport> join_mpi_network(const WaitLimits& limits) {
  static std::atomic<bool> joined{false};
  check_limits(limits);
  if (!started_by_launcher()) {
    fail(ErrorCode::kFailedPrecondition,
         "transport 'mpi' joins processes that MPI's launcher starts, and it did not start this "
         "one; put 'mpirun -n NODES' before the command");
  }
  if (joined.exchange(true)) {
    fail(ErrorCode::kFailedPrecondition,
         "this process has joined its MPI network before; join it once, since MPI allows no more");
  }
  const auto mailbox = std::make_shared<Mailbox>();
  std::promise<MpiPlace> promise;
  std::future<MpiPlace> place = promise.get_future();
  std::thread thread;
  try {
    thread = std::thread(communicate, mailbox, std::move(promise), limits);
  } catch (const std::system_error& error) {
    fail(ErrorCode::kResourceExhausted,
         "the system could not start a thread for transport 'mpi': {}; raise the limit (ulimit -u)",
         error.what());
  }
  if (place.wait_for(limits.deadline) != std::future_status::ready) {
    mailbox->order_to_leave();
    thread.detach();
    fail(ErrorCode::kDeadlineExceeded,
         "MPI did not start within {} ms; check whether every rank is running",
         limits.deadline.count());
  }
  try {
    return std::make_unique<MpiTransport>(place.get(), mailbox, std::move(thread), limits.deadline);
  } catch (...) {
    mailbox->order_to_leave();
    thread.join();
    throw;
  }
}

}  // namespace tersewire
