// A TCP proxy on loopback that cuts what goes through it, where a network would, at any byte, or
// keeps it to itself.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace tersewire {

class CuttingProxy {
 public:
  // Hands on to this port of loopback.
  explicit CuttingProxy(int port) : CuttingProxy(INADDR_LOOPBACK, port) {}
  // Hands on to an address (in host order); with port 0 to the proxy's own port there.
  CuttingProxy(std::uint32_t host, int port) : host_(host), port_(port) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    if (listener_ < 0 || ::bind(listener_, generic, size) != 0 || ::listen(listener_, 64) != 0 ||
        ::getsockname(listener_, generic, &size) != 0) {
      throw std::runtime_error("no proxy on loopback");
    }
    own_port_ = ntohs(address.sin_port);
    if (port_ == 0) port_ = own_port_;
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~CuttingProxy() {
    stop_ = true;
    acceptor_.join();
    cut();
    for (std::thread& thread : threads_) thread.join();
    ::close(listener_);
  }
  CuttingProxy(const CuttingProxy&) = delete;
  CuttingProxy& operator=(const CuttingProxy&) = delete;

  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(own_port_); }

  // The next connection is cut after so many bytes, both ways together; 0: not.
  void cut_next_after(std::uint64_t bytes) { next_cut_ = bytes; }
  // All connections, now.
  void cut() {
    const std::lock_guard lock(mutex_);
    for (const auto& connection : connections_) end(*connection);
  }
  // While it is on, nobody is let through.
  void refuse(bool on) { refusing_ = on; }
  // While it is on, nothing is handed on, and nobody hears of it.
  void hold(bool on) { holding_ = on; }
  // Hands on no more than so many bytes a second of each connection, both ways together.
  void slow_down(int bytes_a_second) { most_bytes_ = bytes_a_second / kBlocksASecond; }
  [[nodiscard]] int port() const { return own_port_; }
  [[nodiscard]] int connections() const { return count_; }
  // Bytes handed on, both ways.
  [[nodiscard]] std::uint64_t carried() const { return carried_; }

 private:
  static constexpr int kBlocksASecond = 20;

  struct Connection {
    ~Connection() {
      for (const int socket : ends) ::close(socket);
    }
    int ends[2];
    std::atomic<std::int64_t> left;
  };

  static void end(Connection& connection) {
    for (const int socket : connection.ends) ::shutdown(socket, SHUT_RDWR);
  }

  void accept_all() {
    while (!stop_) {
      pollfd waiting{.fd = listener_, .events = POLLIN, .revents = 0};
      if (::poll(&waiting, 1, 20) <= 0) continue;
      const int from = ::accept(listener_, nullptr, nullptr);
      if (from < 0) continue;
      const int to = ::socket(AF_INET, SOCK_STREAM, 0);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(host_);
      address.sin_port = htons(static_cast<std::uint16_t>(port_));
      if (refusing_ || ::connect(to, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
        ::close(from);
        ::close(to);
        continue;
      }
      ++count_;
      const std::uint64_t after = next_cut_.exchange(0);
      auto connection = std::make_shared<Connection>();
      connection->ends[0] = from;
      connection->ends[1] = to;
      connection->left = after == 0 ? INT64_MAX : static_cast<std::int64_t>(after);
      const std::lock_guard lock(mutex_);
      connections_.push_back(connection);
      threads_.emplace_back([this, connection] { carry(*connection); });
    }
  }

  // Whole blocks, but the last: that ends where the connection is cut.
  void carry(Connection& connection) {
    std::vector<char> block(std::size_t{1} << 16);
    for (bool open = true; open;) {
      const auto slow = static_cast<std::size_t>(most_bytes_);
      if (slow > 0 && !stop_) ::poll(nullptr, 0, 1000 / kBlocksASecond);
      if (holding_ && !stop_) {
        ::poll(nullptr, 0, 10);
        continue;
      }
      std::array<pollfd, 2> waiting{
          pollfd{.fd = connection.ends[0], .events = POLLIN, .revents = 0},
          pollfd{.fd = connection.ends[1], .events = POLLIN, .revents = 0}};
      ::poll(waiting.data(), waiting.size(), 1000);
      for (std::size_t i = 0; i < 2 && open; ++i) {
        if (waiting.at(i).revents == 0) continue;
        const ssize_t got =
            ::recv(connection.ends[i], block.data(), slow > 0 ? slow : block.size(), 0);
        const std::int64_t let = std::min<std::int64_t>(got, connection.left);
        if (got <= 0) open = false;
        for (std::int64_t sent = 0; open && sent < let;) {
          const ssize_t done = ::send(connection.ends[1 - i], block.data() + sent,
                                      static_cast<std::size_t>(let - sent), MSG_NOSIGNAL);
          if (done <= 0) open = false;
          sent += done;
        }
        carried_ += static_cast<std::uint64_t>(std::max<std::int64_t>(let, 0));
        connection.left -= let;
        if (connection.left == 0) open = false;
      }
    }
    end(connection);
  }

  std::uint32_t host_;
  int port_;
  int own_port_ = 0;
  int listener_ = -1;
  std::atomic<bool> stop_{false};
  std::atomic<bool> refusing_{false};
  std::atomic<bool> holding_{false};
  std::atomic<int> most_bytes_{0};
  std::atomic<std::uint64_t> next_cut_{0};
  std::atomic<int> count_{0};
  std::atomic<std::uint64_t> carried_{0};
  std::mutex mutex_;
  std::vector<std::shared_ptr<Connection>> connections_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace tersewire
