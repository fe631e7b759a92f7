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

#include "errors.h"

namespace tersewire {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr int kBacklog = 4096;
// A hello: who speaks the same, the rank as 4 bytes, the token.
constexpr std::string_view kGreeting = "tersewire tcp 1\n";

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

std::string hello(int rank, const std::string& token) {
  std::string text(kGreeting);
  for (unsigned shift = 0; shift < 32; shift += 8) {
    text += static_cast<char>(static_cast<unsigned>(rank) >> shift);
  }
  return text + token;
}

// The rank that a hello names, where it is one of this network's; -1 otherwise.
int rank_in(const std::string& text, const std::string& token) {
  unsigned rank = 0;
  for (unsigned i = 0; i < 4; ++i) {
    rank |= static_cast<unsigned>(static_cast<unsigned char>(text[kGreeting.size() + i])) << 8 * i;
  }
  return text == hello(static_cast<int>(rank), token) ? static_cast<int>(rank) : -1;
}

[[noreturn]] void fail_to_reach(int rank, const std::string& address, int error) {
  fail(ErrorCode::kUnavailable,
       "rank {} cannot be reached at '{}': {}; check whether it is running, and name an address "
       "that every node reaches",
       rank, address, std::strerror(error));
}

Socket connect_to(int rank, const std::string& address, const std::string& greeting,
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
  // A fresh connection has room for so little.
  if (::send(socket.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(greeting.size())) {
    fail_to_reach(rank, address, errno);
  }
  return socket;
}

// Someone who has connected and not said who it is.
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

void accept_all(const Socket& listener, int rank, const std::string& token, Clock::time_point end,
                std::vector<Socket>& sockets) {
  const std::size_t hello_bytes = hello(0, token).size();
  std::list<Stranger> strangers;
  auto missing = static_cast<std::ptrdiff_t>(sockets.size()) - rank - 1;
  while (missing > 0) {
    std::vector<pollfd> waiting{{.fd = listener.get(), .events = POLLIN, .revents = 0}};
    for (const Stranger& stranger : strangers) {
      waiting.push_back({.fd = stranger.socket.get(), .events = POLLIN, .revents = 0});
    }
    ::poll(waiting.data(), waiting.size(), wait_ms(end));
    if (left_until(end).count() == 0) {
      const auto none = std::find_if(sockets.begin() + rank + 1, sockets.end(),
                                     [](const Socket& socket) { return !socket.is_open(); });
      fail(ErrorCode::kDeadlineExceeded,
           "rank {} has not connected to rank {}; check whether it is running",
           none - sockets.begin(), rank);
    }
    std::size_t place = 1;
    for (auto stranger = strangers.begin(); stranger != strangers.end(); ++place) {
      const bool stays = waiting[place].revents == 0 || listen_to(*stranger, hello_bytes);
      const bool whole = stranger->said.size() == hello_bytes;
      if (whole) {
        const int from = rank_in(stranger->said, token);
        if (from > rank && from < static_cast<int>(sockets.size()) &&
            !sockets[static_cast<std::size_t>(from)].is_open()) {
          sockets[static_cast<std::size_t>(from)] = std::move(stranger->socket);
          --missing;
        }
      }
      stranger = stays && !whole ? std::next(stranger) : strangers.erase(stranger);
    }
    if (waiting.front().revents == 0 || missing == 0) continue;
    Socket fresh(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fresh.is_open() && (errno == EMFILE || errno == ENFILE)) {
      fail(ErrorCode::kResourceExhausted,
           "rank {} has no file descriptor left for the others: {}; raise the limit (ulimit -n)",
           rank, std::strerror(errno));
    }
    if (!fresh.is_open()) continue;
    set_up(fresh);
    strangers.push_back({std::move(fresh), {}});
  }
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
  const Clock::time_point end = Clock::now() + limit;
  std::vector<Socket> sockets(addresses.size());
  for (int below = 0; below < rank; ++below) {
    const auto place = static_cast<std::size_t>(below);
    sockets[place] = connect_to(below, addresses[place], hello(rank, token), end);
  }
  accept_all(listener, rank, token, end, sockets);
  return sockets;
}

}  // namespace tersewire
