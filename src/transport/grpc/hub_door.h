// A listening socket, the hub's or a node's. It takes connections in and hands them on, and keeps
// strangers, who connect and do not say who they are, from filling the process. No gRPC here.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace tersewire {

// At most so many connections that have not proven to be anybody's; for one more, another goes: one
// of the address that has most of them. Nobody is let in while the taker has yet to close as many
// that have gone, which it does late where it lacks processor time.
inline constexpr std::size_t kMostStrangers = 256;

class HubDoor {
 public:
  // Listens at "HOST:PORT". Throws kUnavailable where it cannot.
  explicit HubDoor(const std::string& address);
  ~HubDoor();
  HubDoor(const HubDoor&) = delete;
  HubDoor& operator=(const HubDoor&) = delete;

  // With the port that it has, as it was named ...
  [[nodiscard]] const std::string& address() const { return address_; }
  // ... and with the number that the name has here.
  [[nodiscard]] const std::string& number() const { return number_; }
  // The descriptor that listens.
  [[nodiscard]] int socket() const { return socket_; }
  // Hands each connection, which the taker then closes, to `take`, from a thread of its own.
  void open(std::function<void(int descriptor)> take);
  void close();
  // The connection from this peer, as gRPC names it (ipv4:192.0.2.1:40000), is no stranger's.
  void let_in(const std::string& peer);
  // Strangers that have gone for want of room.
  [[nodiscard]] std::uint64_t put_out() const { return put_out_; }

 private:
  // A connection as its taker has it.
  struct Taken {
    int descriptor;
    ino_t inode;
  };
  struct Stranger {
    int descriptor;  // another one of the same connection
    std::string host;
    std::string peer;
    Taken taken;
  };

  void run();
  void accept_one();
  bool is_full();
  void forget_closed();
  void put_one_out();
  void remove(std::size_t stranger);

  std::string address_;
  std::string number_;
  int socket_ = -1;
  int wake_[2] = {-1, -1};
  std::function<void(int)> take_;
  std::mutex mutex_;
  std::vector<Stranger> strangers_;
  std::vector<Taken> gone_;  // strangers, whom the taker has yet to close
  std::minstd_rand random_{std::random_device()()};
  std::atomic<std::uint64_t> put_out_ = 0;
  std::thread thread_;
};

}  // namespace tersewire
