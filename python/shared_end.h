// One end of a network for several jobs at once: each has a lane of its own, which is a transport.
// spec/relay-format.md, "Several jobs in one network", says how their messages are told apart.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tersewire/transport.h"

namespace tersewire::python {

// Every function may be called from any thread.
class SharedEnd {
 public:
  // Takes what comes to `network` in a thread of its own, from the first open() on.
  explicit SharedEnd(std::unique_ptr<Transport> network) : network_(std::move(network)) {}
  // Waits as the network's own end does.
  ~SharedEnd();
  SharedEnd(const SharedEnd&) = delete;
  SharedEnd& operator=(const SharedEnd&) = delete;

  // The lane of the next number, which keeps `end` alive: ranks open theirs in the same order, and
  // each must have a lane before anything is sent over it. Destroying it tells the other ranks that
  // this one has left it; abort() ends the jobs of all lanes. `longest`: no message in it has more
  // bytes, until its expect_at_most() says otherwise.
  static std::unique_ptr<Transport> open(const std::shared_ptr<SharedEnd>& end,
                                         std::size_t longest);

 private:
  friend class Lane;

  // What has come for a lane, by sender where it says so.
  struct Inbox {
    std::deque<Incoming> messages;
    std::vector<std::size_t> held_bytes;
    std::vector<bool> left;
    std::size_t longest = 0;
    std::condition_variable changed;
  };

  void run();
  void take(const Incoming& message);
  // With the mutex held.
  void deliver(Inbox& inbox, Incoming message);
  void expect(Inbox& inbox, std::size_t longest);

  const std::unique_ptr<Transport> network_;
  mutable std::mutex mutex_;
  std::condition_variable room_;  // in an inbox
  std::map<std::uint32_t, Inbox> lanes_;
  std::uint32_t next_ = 0;
  std::size_t longest_ = 0;  // of all lanes so far
  std::exception_ptr failure_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace tersewire::python
