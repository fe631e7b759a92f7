// The tcp transport: a connection to every other rank, and one thread that reads from all of them,
// finishes what send() could not write at once, and says that this node is alive.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <tuple>

#include "ends.h"
#include "errors.h"
#include "tcp_socket.h"
#include "tcp_stream.h"

namespace tersewire {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// What is read from one peer before the next has its turn.
constexpr std::size_t kTurnBytes = std::size_t{4} << 20;
constexpr std::size_t kLeastTokenBytes = 16;

struct OutgoingRecord {
  TcpHead head;
  SharedBytes bytes;  // null: none
};

// A connection's socket, and what is still to be written to it. Any thread.
class Writer {
 public:
  void open(Socket socket) { socket_ = std::move(socket); }
  // Writes as much as goes without waiting; a broken connection is found by who reads from it.
  void put(OutgoingRecord record) {
    const std::lock_guard lock(mutex_);
    if (!socket_.is_open()) return;
    if (record.bytes) waiting_bytes_ += record.bytes->size();
    waiting_.push_back(std::move(record));
    if (waiting_.size() == 1) flush_locked();
  }
  void flush() {
    const std::lock_guard lock(mutex_);
    flush_locked();
  }
  [[nodiscard]] bool has_some() const {
    const std::lock_guard lock(mutex_);
    return !waiting_.empty();
  }
  [[nodiscard]] std::size_t waiting_bytes() const {
    const std::lock_guard lock(mutex_);
    return waiting_bytes_;
  }
  void close() {
    const std::lock_guard lock(mutex_);
    socket_.close();
    waiting_.clear();
    waiting_bytes_ = 0;
    written_ = 0;
  }
  // Of the socket; for the thread that closes it.
  [[nodiscard]] int descriptor() const { return socket_.get(); }
  [[nodiscard]] bool is_open() const {
    const std::lock_guard lock(mutex_);
    return socket_.is_open();
  }
  [[nodiscard]] Clock::time_point last() const {
    const std::lock_guard lock(mutex_);
    return last_;
  }

 private:
  void flush_locked();

  mutable std::mutex mutex_;
  Socket socket_;
  std::deque<OutgoingRecord> waiting_;
  std::size_t waiting_bytes_ = 0;  // of messages, those begun as a whole
  std::size_t written_ = 0;        // of the first
  Clock::time_point last_ = Clock::now();
};

void Writer::flush_locked() {
  while (!waiting_.empty()) {
    const OutgoingRecord& record = waiting_.front();
    const std::size_t bytes = record.bytes ? record.bytes->size() : 0;
    const std::size_t head = std::min(written_, kTcpHeadBytes);
    const std::size_t body = written_ - head;
    std::array<iovec, 2> parts{
        iovec{const_cast<std::byte*>(record.head.data()) + head, kTcpHeadBytes - head},
        iovec{bytes == 0 ? nullptr : const_cast<std::byte*>(record.bytes->data()) + body,
              bytes - body}};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return;
    last_ = Clock::now();
    written_ += static_cast<std::size_t>(sent);
    if (written_ < kTcpHeadBytes + bytes) continue;
    waiting_.pop_front();
    waiting_bytes_ -= bytes;
    written_ = 0;
  }
}

struct Connection {
  Writer writer;
  TcpReader reader;
  std::atomic<Clock::time_point::rep> heard{Clock::now().time_since_epoch().count()};
  std::atomic<bool> left{false};  // it has said goodbye
};

class TcpTransport final : public Transport {
 public:
  TcpTransport(int rank, std::vector<Socket> sockets, const WaitLimits& limits)
      : rank_(rank),
        limits_(bounded(limits)),
        connections_(sockets.size()),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!wake_.is_open()) {
      fail(ErrorCode::kUnavailable,
           "there is no file descriptor left: {}; raise the limit (ulimit -n)",
           std::strerror(errno));
    }
    for (std::size_t i = 0; i < sockets.size(); ++i)
      connections_[i].writer.open(std::move(sockets[i]));
    thread_ = std::thread([this] { run(); });
  }
  ~TcpTransport() override;
  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return static_cast<int>(connections_.size()); }
  void send(int to, SharedBytes bytes) override;
  std::optional<Incoming> receive(milliseconds timeout) override;
  void abort(const std::string& reason) noexcept override;
  [[nodiscard]] Peer peer(int rank) const override;
  void expect_at_most(std::size_t bytes) override { longest_ = bytes; }
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept override { return sent_; }
  [[nodiscard]] std::uint64_t bytes_received() const noexcept override { return received_; }

 private:
  void run() noexcept;
  void read_from(int rank);
  void take(int rank, TcpReader::Record record);
  void lose(int rank, const std::string& why);
  void deliver(Incoming message);
  bool end_with(const std::string& reason) noexcept;
  void say_to_all(TcpRecord kind, const SharedBytes& bytes);
  void say_why(const std::string& reason);
  void check_not_aborted() const;
  [[nodiscard]] bool all_have_gone() const;
  [[nodiscard]] bool all_is_written() const;
  void wake() const {
    const std::uint64_t one = 1;
    static_cast<void>(!::write(wake_.get(), &one, sizeof(one)));
  }
  Connection& connection(int rank) { return connections_[static_cast<std::size_t>(rank)]; }

  int rank_;
  WaitLimits limits_;
  std::vector<Connection> connections_;  // by rank; this one's own is not used
  Socket wake_;
  std::atomic<std::uint64_t> longest_{kUnknownLongest};
  std::atomic<std::uint64_t> sent_{0};
  std::atomic<std::uint64_t> received_{0};
  mutable std::mutex mutex_;
  std::condition_variable moved_;  // a message, the end of the job, or a peer that is gone
  std::deque<Incoming> inbox_;
  std::optional<std::string> aborted_;
  std::atomic<bool> leaving_{false};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

void TcpTransport::check_not_aborted() const {
  if (aborted_) throw Error(ErrorCode::kAborted, *aborted_);
}

void TcpTransport::send(int to, SharedBytes bytes) {
  {
    const std::lock_guard lock(mutex_);
    check_not_aborted();
  }
  check_sent(rank_, to, size(), bytes);
  const std::size_t length = bytes->size();
  sent_ += length;
  if (to == rank_) return deliver({.from = rank_, .bytes = std::move(bytes), .own = true});
  Connection& peer = connection(to);
  if (peer.left) {
    const std::lock_guard lock(mutex_);
    check_not_aborted();  // which it says before its goodbye
    fail_receiver_has_left(rank_, to);
  }
  peer.writer.put({tcp_head(TcpRecord::kMessage, length), std::move(bytes)});
  if (peer.writer.has_some()) wake();
}

void TcpTransport::deliver(Incoming message) {
  {
    const std::lock_guard lock(mutex_);
    inbox_.push_back(std::move(message));
  }
  moved_.notify_one();
}

std::optional<Incoming> TcpTransport::receive(milliseconds timeout) {
  std::unique_lock lock(mutex_);
  wait_at_most(moved_, lock, timeout, [&] { return !inbox_.empty() || aborted_; });
  check_not_aborted();
  std::optional<Incoming> message = take_first(inbox_);
  if (message) received_ += message->bytes->size();
  return message;
}

// Whether this was the first reason.
bool TcpTransport::end_with(const std::string& reason) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!keep_first_reason(aborted_, reason)) return false;
  }
  moved_.notify_all();
  return true;
}

void TcpTransport::say_to_all(TcpRecord kind, const SharedBytes& bytes) {
  for (int rank = 0; rank < size(); ++rank) {
    Connection& peer = connection(rank);
    if (rank == rank_ || peer.left) continue;
    peer.writer.put({tcp_head(kind, bytes ? bytes->size() : 0), bytes});
  }
  wake();
}

void TcpTransport::say_why(const std::string& reason) {
  Bytes bytes(std::min(reason.size(), kMostReasonBytes));
  std::memcpy(bytes.data(), reason.data(), bytes.size());
  say_to_all(TcpRecord::kAbort, std::make_shared<const Bytes>(std::move(bytes)));
}

void TcpTransport::abort(const std::string& reason) noexcept {
  if (!end_with(reason)) return;
  try {
    say_why(reason);
  } catch (...) {
    wake();  // the others find the connection closed
  }
}

Peer TcpTransport::peer(int rank) const {
  {
    const std::lock_guard lock(mutex_);
    check_not_aborted();
  }
  Peer peer;
  if (rank == rank_) return peer;
  const Connection& other = connections_[static_cast<std::size_t>(rank)];
  peer.heard = Clock::time_point(Clock::duration(other.heard));
  if (other.left) peer.gone = "has left the network";
  peer.waiting = other.writer.waiting_bytes();
  return peer;
}

bool TcpTransport::all_have_gone() const {
  return std::ranges::none_of(connections_,
                              [](const Connection& peer) { return peer.writer.is_open(); });
}

bool TcpTransport::all_is_written() const {
  return std::ranges::none_of(connections_,
                              [](const Connection& peer) { return peer.writer.has_some(); });
}

// The others close their ends when they have read the goodbye, and with it all that came before.
// Where the job has ended they read why first: one that has not heard it from the rank that ended
// it would take this one for the first to leave.
TcpTransport::~TcpTransport() {
  leaving_ = true;
  std::optional<std::string> failed;
  {
    const std::lock_guard lock(mutex_);
    failed = aborted_;
  }
  if (failed) say_why(*failed);
  say_to_all(TcpRecord::kGoodbye, nullptr);
  const Clock::time_point began = Clock::now();
  for (std::unique_lock lock(mutex_); !stop_;) {
    const auto waited = Clock::now() - began;
    // One that reads nothing, though it could, hangs or is stopped.
    if (waited > (failed || all_is_written() ? std::min(kLongestFarewell, limits_.deadline)
                                             : limits_.deadline)) {
      break;
    }
    moved_.wait_for(lock, kAliveEvery);
  }
  stop_ = true;
  wake();
  thread_.join();
}

void TcpTransport::run() noexcept {
  std::vector<pollfd> waiting;
  while (!stop_) {
    const Clock::time_point now = Clock::now();
    waiting.assign(1, {.fd = wake_.get(), .events = POLLIN, .revents = 0});
    for (Connection& peer : connections_) {
      if (peer.writer.is_open() && now - peer.writer.last() >= kAliveEvery &&
          !peer.writer.has_some()) {
        peer.writer.put({tcp_head(TcpRecord::kAlive, 0), nullptr});
      }
      const int events = POLLIN | (peer.writer.has_some() ? POLLOUT : 0);
      waiting.push_back(
          {.fd = peer.writer.descriptor(), .events = static_cast<short>(events), .revents = 0});
    }
    ::poll(waiting.data(), waiting.size(), static_cast<int>(kAliveEvery.count()) / 2);
    std::uint64_t woken = 0;
    static_cast<void>(!::read(wake_.get(), &woken, sizeof(woken)));
    for (int rank = 0; rank < size(); ++rank) {
      Connection& peer = connection(rank);
      const pollfd& found = waiting[static_cast<std::size_t>(rank) + 1];
      if (found.fd < 0 || found.revents == 0) continue;
      try {
        if ((found.revents & POLLOUT) != 0) peer.writer.flush();
        if ((found.revents & ~POLLOUT) != 0) read_from(rank);
      } catch (const std::exception& error) {
        lose(rank, fmt::format("what came from rank {}: {}", rank, error.what()));
      }
    }
    if (leaving_ && all_have_gone()) {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
  }
  moved_.notify_all();
}

void TcpTransport::read_from(int rank) {
  Connection& peer = connection(rank);
  for (std::size_t read = 0; read < kTurnBytes && peer.writer.is_open();) {
    const std::span<std::byte> room = peer.reader.room();
    const ssize_t got = ::recv(peer.writer.descriptor(), room.data(), room.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got <= 0) {
      return lose(
          rank,
          fmt::format("rank {} is gone: {}; find out why its process ended before rank {}'s", rank,
                      got == 0 ? "its connection was closed" : std::strerror(errno), rank_));
    }
    peer.heard = Clock::now().time_since_epoch().count();
    peer.reader.taken(static_cast<std::size_t>(got), longest_);
    while (auto record = peer.reader.next()) take(rank, std::move(*record));
    read += static_cast<std::size_t>(got);
  }
}

void TcpTransport::take(int rank, TcpReader::Record record) {
  switch (record.kind) {
    case TcpRecord::kAlive:
      return;
    case TcpRecord::kMessage:
      return deliver(
          {.from = rank, .bytes = std::make_shared<const Bytes>(std::move(record.bytes))});
    case TcpRecord::kAbort:
      end_with(
          std::string(reinterpret_cast<const char*>(record.bytes.data()), record.bytes.size()));
      return;
    case TcpRecord::kGoodbye: {
      Connection& peer = connection(rank);
      peer.left = true;
      peer.writer.close();
      return;
    }
  }
}

// The peer hears why, if it still listens.
void TcpTransport::lose(int rank, const std::string& why) {
  if (!leaving_) abort(why);
  connection(rank).writer.close();
}

}  // namespace

struct TcpMeeting::Listening {
  Socket socket;
};

TcpMeeting::TcpMeeting(const std::string& host) : listening_(std::make_unique<Listening>()) {
  std::tie(listening_->socket, address_) = listen_at(host);
}

TcpMeeting::~TcpMeeting() = default;

std::unique_ptr<Transport> TcpMeeting::join(int rank, const std::vector<std::string>& addresses,
                                            const std::string& token, const WaitLimits& limits) {
  if (rank < 0 || static_cast<std::size_t>(rank) >= addresses.size()) {
    fail(ErrorCode::kInvalidArgument, "there is no rank {} among {} addresses; pass every rank's",
         rank, addresses.size());
  }
  if (token.size() < kLeastTokenBytes) {
    fail(ErrorCode::kInvalidArgument,
         "a token of {} bytes is easy to guess; give every rank the same {} random bytes or more",
         token.size(), kLeastTokenBytes);
  }
  return std::make_unique<TcpTransport>(
      rank, meet(listening_->socket, rank, addresses, token, bounded(limits).deadline), limits);
}

}  // namespace tersewire
