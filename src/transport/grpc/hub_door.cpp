#include "hub_door.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "errors.h"
#include "host_and_port.h"

namespace tersewire {
namespace {

constexpr int kLookEveryMs = 250;
// Where there are no descriptors left, or the taker has too much to do.
constexpr int kPauseMs = 20;
// In the kernel, so that who writes notices a slow link.
constexpr int kMostUnsentBytes = 1 << 17;

struct Name {
  std::string host;
  std::string port;
};

[[noreturn]] void fail_to_listen(const std::string& address, const char* reason) {
  fail(ErrorCode::kUnavailable,
       "this process cannot listen at '{}': {}; check whether another one does, and whether the "
       "address is this machine's, or name another HOST:PORT",
       address, reason);
}

int listen_at(const std::string& address) {
  const HostAndPort name = host_and_port(address);
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int failed =
          ::getaddrinfo(name.host.c_str(), std::to_string(name.port).c_str(), &wanted, &found)) {
    fail_to_listen(address, ::gai_strerror(failed));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, &::freeaddrinfo);
  int error = 0;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    const int socket =
        ::socket(one->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, one->ai_protocol);
    error = errno;
    if (socket < 0) continue;
    const int on = 1;
    const int off = 0;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (one->ai_family == AF_INET6) {
      ::setsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    }
    if (::bind(socket, one->ai_addr, one->ai_addrlen) == 0 &&
        ::listen(socket, static_cast<int>(kMostStrangers)) == 0) {
      return socket;
    }
    error = errno;
    ::close(socket);
  }
  fail_to_listen(address, std::strerror(error));
}

// Host and port as gRPC names peers, without its escapes.
Name name_of(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    ::inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
    return {fmt::format("ipv4:{}", text.data()), std::to_string(ntohs(v4.sin_port))};
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  const std::string port = std::to_string(ntohs(v6.sin6_port));
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    ::inet_ntop(AF_INET, v6.sin6_addr.s6_addr + 12, text.data(), text.size());
    return {fmt::format("ipv4:{}", text.data()), port};
  }
  ::inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
  return {fmt::format("ipv6:[{}]", text.data()), port};
}

// 0 where the descriptor is closed.
ino_t inode_of(int descriptor) {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 ? status.st_ino : 0;
}

std::string unescaped(std::string peer) {
  for (const auto& [escape, character] : {std::pair("%5B", "["), std::pair("%5D", "]")}) {
    const std::size_t at = peer.find(escape);
    if (at != std::string::npos) peer.replace(at, 3, character);
  }
  return peer;
}

}  // namespace

HubDoor::HubDoor(const std::string& address) : socket_(listen_at(address)) {
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (::pipe2(wake_, O_CLOEXEC) != 0 ||
      ::getsockname(socket_, reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    const int error = errno;
    ::close(socket_);
    fail_to_listen(address, std::strerror(error));
  }
  const Name name = name_of(bound);
  address_ = address.substr(0, address.rfind(':') + 1) + name.port;
  number_ = name.host.substr(name.host.find(':') + 1) + ":" + name.port;
}

HubDoor::~HubDoor() {
  close();
  ::close(wake_[0]);
  ::close(wake_[1]);
  ::close(socket_);
}

void HubDoor::open(std::function<void(int)> take) {
  take_ = std::move(take);
  thread_ = std::thread([this] { run(); });
}

void HubDoor::close() {
  if (!thread_.joinable()) return;
  while (::write(wake_[1], "", 1) < 0 && errno == EINTR) continue;
  thread_.join();
  const std::lock_guard lock(mutex_);
  for (const Stranger& stranger : strangers_) ::close(stranger.descriptor);
  strangers_.clear();
}

void HubDoor::let_in(const std::string& peer) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(strangers_, unescaped(peer), &Stranger::peer);
  if (found == strangers_.end()) return;
  ::close(found->descriptor);
  strangers_.erase(found);
}

void HubDoor::run() {
  std::array<pollfd, 2> waiting{pollfd{.fd = socket_, .events = POLLIN, .revents = 0},
                                pollfd{.fd = wake_[0], .events = POLLIN, .revents = 0}};
  auto next_look = std::chrono::steady_clock::now();
  for (;;) {
    ::poll(waiting.data(), waiting.size(), kLookEveryMs);
    if (waiting[1].revents != 0) return;
    accept_one();
    const auto now = std::chrono::steady_clock::now();
    if (now < next_look) continue;
    next_look = now + std::chrono::milliseconds(kLookEveryMs);
    forget_closed();
  }
}

void HubDoor::accept_one() {
  if (is_full()) {
    ::poll(nullptr, 0, kPauseMs);
    return;
  }
  sockaddr_storage from{};
  socklen_t size = sizeof(from);
  const int descriptor =
      ::accept4(socket_, reinterpret_cast<sockaddr*>(&from), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (descriptor < 0) {
    // What is left is not accepted, and waits where it costs nothing here.
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      const std::lock_guard lock(mutex_);
      put_one_out();
      ::poll(nullptr, 0, kPauseMs);
    }
    return;
  }
  const int on = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kMostUnsentBytes,
               sizeof(kMostUnsentBytes));
  const Name name = name_of(from);
  {
    const std::lock_guard lock(mutex_);
    while (strangers_.size() >= kMostStrangers) put_one_out();
    const int other = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (other < 0) {
      ::close(descriptor);
      return put_one_out();
    }
    strangers_.push_back({.descriptor = other,
                          .host = name.host,
                          .peer = name.host + ":" + name.port,
                          .taken = {.descriptor = descriptor, .inode = inode_of(descriptor)}});
  }
  take_(descriptor);
}

bool HubDoor::is_full() {
  const std::lock_guard lock(mutex_);
  if (gone_.size() < kMostStrangers) return false;
  std::erase_if(gone_, [](const Taken& one) { return inode_of(one.descriptor) != one.inode; });
  return gone_.size() >= kMostStrangers;
}

// Who has hung up, or was hung up on.
void HubDoor::forget_closed() {
  const std::lock_guard lock(mutex_);
  std::vector<pollfd> all;
  for (const Stranger& stranger : strangers_) {
    all.push_back({.fd = stranger.descriptor, .events = 0, .revents = 0});
  }
  if (all.empty() || ::poll(all.data(), all.size(), 0) <= 0) return;
  for (std::size_t i = all.size(); i-- > 0;) {
    if (all[i].revents != 0) remove(i);
  }
}

void HubDoor::remove(std::size_t stranger) {
  const auto at = strangers_.begin() + static_cast<std::ptrdiff_t>(stranger);
  gone_.push_back(at->taken);
  ::close(at->descriptor);
  strangers_.erase(at);
}

// Any of those, so that nobody is sure to be the next, whoever comes how often.
void HubDoor::put_one_out() {
  if (strangers_.empty()) return;
  std::map<std::string, std::size_t> count;
  for (const Stranger& stranger : strangers_) ++count[stranger.host];
  const auto most =
      std::ranges::max_element(count, {}, [](const auto& host) { return host.second; });
  std::size_t which = random_() % most->second;
  const auto found = std::ranges::find_if(strangers_, [&](const Stranger& stranger) {
    return stranger.host == most->first && which-- == 0;
  });
  ::shutdown(found->descriptor, SHUT_RDWR);
  remove(static_cast<std::size_t>(found - strangers_.begin()));
  ++put_out_;
}

}  // namespace tersewire
