// A socket that is closed when it goes, and how the ends of a network find each other.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "tersewire/transport.h"

namespace tersewire {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  [[nodiscard]] int get() const { return descriptor_; }
  [[nodiscard]] bool is_open() const { return descriptor_ >= 0; }
  void close();

 private:
  int descriptor_ = -1;
};

// A listening socket at a port of the system's choice, and "ADDRESS PORT". Throws kUnavailable.
std::pair<Socket, std::string> listen_at(const std::string& host);

// The connections to all other ranks, by rank, none to this one: it connects to those below, which
// answer, and those above connect to it. Whoever does not say `token` is turned away. They do not
// block. Throws kUnavailable, kDeadlineExceeded, kFailedPrecondition and kResourceExhausted.
std::vector<Socket> meet(const Socket& listener, int rank,
                         const std::vector<std::string>& addresses, const std::string& token,
                         std::chrono::milliseconds limit);

}  // namespace tersewire
