#include "tcp_socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <list>
#include <memory>
#include <optional>

#include "errors.h"
#include "tcp_hello.h"

namespace tersewire {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr int kBacklog = 4096;
constexpr std::string_view kWhatToCheck =
    "check whether its process runs and has called join(), and give every rank the same token and "
    "addresses";

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

Addresses resolve(const std::string& host, const char* port, bool own) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  if (own) hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(host.c_str(), port, &hints, &found);
  if (failed != 0) {
    fail(ErrorCode::kUnavailable, "host '{}' has no address: {}; name one that every node knows",
         host, ::gai_strerror(failed));
  }
  return {found, ::freeaddrinfo};
}

std::string name_of(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (::getsockname(socket.get(), generic, &size) != 0 ||
      ::getnameinfo(generic, size, host.data(), host.size(), port.data(), port.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    fail(ErrorCode::kUnavailable, "a socket has no address: {}", std::strerror(errno));
  }
  return fmt::format("{} {}", host.data(), port.data());
}

void set_up(const Socket& socket) {
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  ::fcntl(socket.get(), F_SETFL, ::fcntl(socket.get(), F_GETFL) | O_NONBLOCK);
}

milliseconds left_until(Clock::time_point end) {
  return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(end - Clock::now()));
}

int wait_ms(Clock::time_point end) {
  return static_cast<int>(std::min(left_until(end), milliseconds(1000)).count());
}

[[noreturn]] void fail_to_reach(int rank, const std::string& address, int error) {
  fail(ErrorCode::kUnavailable,
       "rank {} cannot be reached at '{}': {}; check whether it is running, and name an address "
       "that every node reaches",
       rank, address, std::strerror(error));
}

// False where it is gone: a fresh connection has room for so little.
bool say(const Socket& socket, const std::string& text) {
  return ::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(text.size());
}

Socket connect_to(int rank, const std::string& address, const std::string& hello,
                  Clock::time_point end) {
  const std::size_t space = address.rfind(' ');
  if (space == std::string::npos) fail_to_reach(rank, address, EINVAL);
  const Addresses found = resolve(address.substr(0, space), address.c_str() + space + 1, false);
  Socket socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) fail_to_reach(rank, address, errno);
  set_up(socket);
  if (::connect(socket.get(), found->ai_addr, found->ai_addrlen) != 0 && errno != EINPROGRESS) {
    fail_to_reach(rank, address, errno);
  }
  pollfd waiting{.fd = socket.get(), .events = POLLOUT, .revents = 0};
  while (::poll(&waiting, 1, wait_ms(end)) <= 0) {
    if (left_until(end).count() == 0) fail_to_reach(rank, address, ETIMEDOUT);
  }
  int error = 0;
  socklen_t size = sizeof(error);
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) fail_to_reach(rank, address, error);
  if (!say(socket, hello)) fail_to_reach(rank, address, errno);
  return socket;
}

// The other end of a connection, which has not said all of what it is to say first.
struct Stranger {
  Socket socket;
  std::string said;
};

// False where nothing more comes of it.
bool listen_to(Stranger& stranger, std::size_t most) {
  std::array<char, 512> bytes;
  const std::size_t room = std::min(bytes.size(), most - stranger.said.size());
  const ssize_t got = ::recv(stranger.socket.get(), bytes.data(), room, 0);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  stranger.said.append(bytes.data(), static_cast<std::size_t>(got));
  return got > 0;
}

// Whoever called in earnest is there and says no more until it is answered.
bool awaits_an_answer(const Socket& socket) {
  char byte = 0;
  return ::recv(socket.get(), &byte, 1, MSG_PEEK) < 0 && errno == EAGAIN;
}

// Both ends throw the same.
void check_alike(const TcpHello& call, const TcpHello& answer) {
  if (call.ranks != answer.ranks) {
    fail(ErrorCode::kFailedPrecondition,
         "rank {} joins a network of {} ranks and rank {} one of {}; pass every rank the same "
         "addresses",
         call.from, call.ranks, answer.from, answer.ranks);
  }
  if (call.to != answer.from) {
    fail(ErrorCode::kFailedPrecondition,
         "rank {} has rank {}'s address for rank {}'s; pass every rank the same addresses in the "
         "same order",
         call.from, answer.from, call.to);
  }
}

pollfd readable(const Socket& socket) {
  return {.fd = socket.get(), .events = POLLIN, .revents = 0};
}

// How one rank gets its connections. All below are called before one of them must answer, and those
// above are answered meanwhile, so ranks may join in any order.
class Gathering {
 public:
  Gathering(const Socket& listener, int rank, const std::vector<std::string>& addresses,
            const std::string& token, Clock::time_point end)
      : listener_(listener),
        rank_(rank),
        ranks_(static_cast<int>(addresses.size())),
        token_(token),
        end_(end),
        missing_(ranks_ - 1),
        sockets_(addresses.size()) {
    for (int below = 0; below < rank; ++below) {
      const std::string hello = packed(own_hello(below)) + token;
      called_.push_back(
          {connect_to(below, addresses[static_cast<std::size_t>(below)], hello, end), {}});
    }
  }

  std::vector<Socket> all() {
    while (missing_ > 0) {
      listen();
      if (missing_ > 0 && left_until(end_).count() == 0) fail_for_missing();
    }
    return std::move(sockets_);
  }

 private:
  [[nodiscard]] TcpHello own_hello(int to) const {
    return {.from = rank_, .to = to, .ranks = ranks_};
  }
  void listen();
  void hear_answer(int below);
  bool hear_caller(Stranger& caller);
  void admit(Stranger& caller);
  void take_in();
  void keep(int rank, Socket socket) {
    sockets_[static_cast<std::size_t>(rank)] = std::move(socket);
    --missing_;
  }
  void note_token(const Stranger& caller) {
    other_token_ = other_token_ || caller.said.starts_with(kTcpGreeting);
  }
  [[noreturn]] void fail_for_missing();

  const Socket& listener_;
  int rank_;
  int ranks_;
  const std::string& token_;
  Clock::time_point end_;
  int missing_;
  std::vector<Socket> sockets_;   // by rank
  std::vector<Stranger> called_;  // by rank, those below; without a socket once they have answered
  std::list<Stranger> callers_;
  bool other_token_ = false;  // someone spoke as a rank does, and did not know the token
};

void Gathering::listen() {
  std::vector<pollfd> waiting{readable(listener_)};
  for (const Stranger& other : called_) waiting.push_back(readable(other.socket));
  for (const Stranger& other : callers_) waiting.push_back(readable(other.socket));
  ::poll(waiting.data(), waiting.size(), wait_ms(end_));
  auto found = waiting.begin() + 1;
  for (int below = 0; below < rank_; ++below) {
    if ((found++)->revents != 0) hear_answer(below);
  }
  callers_.remove_if(
      [&](Stranger& caller) { return (found++)->revents != 0 && !hear_caller(caller); });
  if (waiting.front().revents != 0 && missing_ > 0) take_in();
}

void Gathering::hear_answer(int below) {
  Stranger& other = called_[static_cast<std::size_t>(below)];
  const bool stays = listen_to(other, kTcpHelloBytes);
  if (other.said.size() < kTcpHelloBytes && stays) return;
  const std::optional<TcpHello> answer = parsed_hello(other.said);
  if (!answer || answer->to != rank_) {
    fail(ErrorCode::kUnavailable, "rank {} has {} rank {}; {}", below,
         other.said.empty() ? "closed its connection without an answer to"
                            : "an address at which something else answers",
         rank_, kWhatToCheck);
  }
  check_alike(own_hello(below), *answer);
  keep(below, std::move(other.socket));
}

// Whether it is still to be heard.
bool Gathering::hear_caller(Stranger& caller) {
  const std::size_t whole = kTcpHelloBytes + token_.size();
  const bool stays = listen_to(caller, whole);
  if (caller.said.size() == whole) {
    admit(caller);
    return false;
  }
  if (!stays) note_token(caller);
  return stays;
}

// Only who knows the token is answered, and only such a one can end this rank's join().
void Gathering::admit(Stranger& caller) {
  if (caller.said.substr(kTcpHelloBytes) != token_) return note_token(caller);
  const std::optional<TcpHello> call = parsed_hello(caller.said.substr(0, kTcpHelloBytes));
  if (!call || !awaits_an_answer(caller.socket)) return;
  const TcpHello answer = own_hello(call->from);
  const bool alike = call->ranks == ranks_ && call->to == rank_;
  const bool is_due = call->from > rank_ && call->from < ranks_ &&
                      !sockets_[static_cast<std::size_t>(call->from)].is_open();
  if (alike && !is_due) return;
  if (!say(caller.socket, packed(answer))) return;
  check_alike(*call, answer);
  keep(call->from, std::move(caller.socket));
}

void Gathering::take_in() {
  Socket fresh(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fresh.is_open() && (errno == EMFILE || errno == ENFILE)) {
    fail(ErrorCode::kResourceExhausted,
         "rank {} has no file descriptor left for the others: {}; raise the limit (ulimit -n)",
         rank_, std::strerror(errno));
  }
  if (!fresh.is_open()) return;
  set_up(fresh);
  callers_.push_back({std::move(fresh), {}});
}

void Gathering::fail_for_missing() {
  int rank = 0;
  while (rank == rank_ || sockets_[static_cast<std::size_t>(rank)].is_open()) ++rank;
  if (rank < rank_) {
    fail(ErrorCode::kDeadlineExceeded, "rank {} has not answered rank {}; {}", rank, rank_,
         kWhatToCheck);
  }
  for (const Stranger& caller : callers_) note_token(caller);
  if (other_token_) {
    fail(ErrorCode::kDeadlineExceeded,
         "rank {} has not connected to rank {}, and someone who did had another token; pass every "
         "rank the same",
         rank, rank_);
  }
  fail(ErrorCode::kDeadlineExceeded, "rank {} has not connected to rank {}; {}", rank, rank_,
       kWhatToCheck);
}

}  // namespace

void Socket::close() {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

std::pair<Socket, std::string> listen_at(const std::string& host) {
  const Addresses found = resolve(host, nullptr, true);
  Socket socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.is_open() || ::bind(socket.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      ::listen(socket.get(), kBacklog) != 0) {
    fail(ErrorCode::kUnavailable,
         "this process cannot listen at '{}': {}; name an address of this machine", host,
         std::strerror(errno));
  }
  std::string address = name_of(socket);
  return {std::move(socket), std::move(address)};
}

std::vector<Socket> meet(const Socket& listener, int rank,
                         const std::vector<std::string>& addresses, const std::string& token,
                         milliseconds limit) {
  return Gathering(listener, rank, addresses, token, Clock::now() + limit).all();
}

}  // namespace tersewire
