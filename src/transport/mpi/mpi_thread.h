// The communication thread of the mpi transport: the one that initialises MPI and makes every call
// of it, so that MPI need not know of the others (MPI_THREAD_FUNNELED).
//
// A message travels as one MPI message, or as several where it is large, under tags that say what
// they are. MPI keeps the order of what one rank sends to another.
#pragma once

#include <mpi.h>

#include <chrono>
#include <deque>
#include <future>
#include <memory>
#include <vector>

#include "mpi_mailbox.h"
#include "tersewire/bytes.h"

namespace tersewire {

class MpiThread {
 public:
  // `limits`: of leaving where nothing has failed.
  MpiThread(std::shared_ptr<Mailbox> mailbox, const WaitLimits& limits)
      : mailbox_(std::move(mailbox)), limits_(limits) {}

  // The thread's whole life: enters MPI, tells `place` where it is (or what it throws), carries
  // messages until it is told to leave. Returns whether MPI has let go of everything; where it has
  // not, this object must be kept until the process ends.
  [[nodiscard]] bool run(std::promise<MpiPlace>& place) noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  // A message above a piece's size is announced by its size (u64, this machine's byte order); parts
  // follow, and the last one is tagged as an end like a message that needs no parts. Of a rank that
  // is alive, or has left, there is nothing more to say.
  enum class Tag : int { kEnd = 1, kPart = 2, kSize = 3, kAbort = 4, kAlive = 5, kLeft = 6 };

  // Bytes on their way out: a message or a part of one.
  struct Piece {
    SharedBytes bytes;  // kept alive until MPI is done with it
    std::size_t offset;
    std::size_t size;
    Tag tag;
    int to;
  };
  struct Destination {
    std::deque<Piece> waiting;
    int underway = 0;
    std::size_t unconfirmed = 0;  // bytes that MPI may still hold, though it calls them sent
    Clock::time_point sent_at{};  // the last
  };
  // Bytes on their way in.
  struct Arriving {
    std::shared_ptr<Bytes> bytes;
    Tag tag;
    bool complete = false;
  };
  struct Source {
    std::deque<Arriving> arriving;  // in the order of sending
    // A message that was announced, and how much of it has been given to receives.
    std::shared_ptr<Bytes> announced;
    std::size_t begun = 0;
  };
  struct Receive {
    int from;
    Arriving* arriving;
  };

  void enter();
  void carry();
  void leave();

  Orders next_orders();
  void obey(Orders orders);
  void queue(const Outgoing& message);
  void tell_abort(const std::string& reason);

  void progress();
  void tell(int to, Tag tag);
  void give_sign_of_life();
  void start_sends();
  [[nodiscard]] bool confirmed(const Piece& piece);
  void start(Piece piece);
  void finish_sends();
  void start_receives();
  void start_receive(MPI_Message& matched, const MPI_Status& status);
  void take_sign(MPI_Message& matched, int from, Tag tag, int size);
  void take_size(MPI_Message& matched, int from, std::size_t size);
  std::byte* room_for(std::size_t size, Tag tag, int from);
  [[noreturn]] static void refuse(int from, const std::string& what);
  void finish_receives();
  void hear_abort(const Bytes& reason);
  void hand_over(int from);
  void finish(std::vector<MPI_Request>& requests, const char* what);

  void check(int code, const char* what) const;
  [[nodiscard]] bool sends_left() const;
  void moved() { moved_at_ = Clock::now(); }

  std::shared_ptr<Mailbox> mailbox_;
  WaitLimits limits_;
  MpiPlace place_{};
  bool may_finalize_ = false;

  std::vector<Destination> destinations_;  // by rank
  std::vector<Source> sources_;
  // Request i is that of piece i, and of receive i.
  std::vector<MPI_Request> send_requests_;
  std::vector<Piece> sends_;
  std::vector<MPI_Request> receive_requests_;
  std::vector<Receive> receives_;
  std::vector<int> finished_;  // indices into one of them
  std::vector<MPI_Status> statuses_;

  Clock::time_point moved_at_{};   // when something was last sent or received
  Clock::time_point turned_at_{};  // when progress() was last made
  Clock::duration sign_interval_{};
};

}  // namespace tersewire
