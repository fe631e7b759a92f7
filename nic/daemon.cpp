#include "nic/daemon.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <libnetfilter_queue/libnetfilter_queue.h>
#include <linux/netfilter.h>
#include <linux/netlink.h>
#include <net/if.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <vector>

#include "tersewire/error.h"

namespace tersewire::nic {
namespace {

constexpr std::uint16_t kLeavingQueue = 0x28;
constexpr std::uint16_t kArrivingQueue = 0x2C;
constexpr std::uint32_t kQueuePackets = 8192;
constexpr unsigned kSocketBytes = 16 << 20;
constexpr std::size_t kMessageBytes = 0x10000 + 4096;  // a packet, and what netlink says of it
// Notices that are read before one packet: no flood of them keeps packets waiting.
constexpr int kNoticesAtOnce = 64;

// By iptables, as not every kernel that has NFQUEUE lets nft's own rules reach it. The chains that
// are jumped to last stand behind what marks packets.
constexpr const char* kRules = R"(*mangle
:TERSEWIRE-NIC-OUT - [0:0]
:TERSEWIRE-NIC-IN - [0:0]
-A TERSEWIRE-NIC-OUT -o INTERFACE -p tcp -m tos --tos 0x28/0xfc -j NFQUEUE --queue-num 40 --queue-bypass
-A TERSEWIRE-NIC-IN -i INTERFACE -m tos --tos 0x2c/0xfc -j NFQUEUE --queue-num 44 --queue-bypass
-A POSTROUTING -j TERSEWIRE-NIC-OUT
-A INPUT -j TERSEWIRE-NIC-IN
COMMIT
)";
constexpr const char* kNoRules = R"(*mangle
-D POSTROUTING -j TERSEWIRE-NIC-OUT
-D INPUT -j TERSEWIRE-NIC-IN
-F TERSEWIRE-NIC-OUT
-F TERSEWIRE-NIC-IN
-X TERSEWIRE-NIC-OUT
-X TERSEWIRE-NIC-IN
COMMIT
)";

[[noreturn]] void refuse(const std::string& what, const std::string& why) {
  throw Error(ErrorCode::kFailedPrecondition,
              "the network card " + what + ": " + why +
                  "; it needs root, a kernel with nfnetlink_queue, and no other card in this "
                  "network namespace");
}
[[noreturn]] void refuse(const std::string& what, int error) { refuse(what, std::strerror(error)); }

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return number_; }
  void close() {
    ::close(number_);
    number_ = -1;
  }

 private:
  int number_;
};

// Whether iptables-restore takes the rules. What it says of those that are not there is nobody's
// business.
bool set_rules(const std::string& rules, bool is_quiet) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) refuse("cannot start iptables-restore", errno);
  Descriptor read_end(ends[0]);
  Descriptor write_end(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, read_end.get(), STDIN_FILENO);
  if (is_quiet) {
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  }
  std::array<std::string, 3> words{"iptables-restore", "--noflush", "--wait"};
  std::array<char*, 4> arguments{words[0].data(), words[1].data(), words[2].data(), nullptr};
  std::array<char*, 1> environment{nullptr};
  pid_t child = 0;
  int error = ENOENT;
  for (const char* program : {"/usr/sbin/iptables-restore", "/sbin/iptables-restore"}) {
    error = ::posix_spawn(&child, program, &actions, nullptr, arguments.data(), environment.data());
    if (error == 0) break;
  }
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) refuse("cannot start iptables-restore (Debian's package is iptables)", error);
  // Shorter than what a pipe holds.
  const ssize_t written = ::write(write_end.get(), rules.data(), rules.size());
  write_end.close();
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return written == static_cast<ssize_t>(rules.size()) && status == 0;
}

class Rules {
 public:
  explicit Rules(const std::string& interface) {
    set_rules(kNoRules, true);  // those of a card that was killed
    std::string rules = kRules;
    constexpr std::string_view kPlace = "INTERFACE";
    for (std::size_t at = 0; (at = rules.find(kPlace, at)) != std::string::npos;) {
      rules.replace(at, kPlace.size(), interface);
    }
    if (!set_rules(rules, false)) refuse("cannot set its rules", "iptables-restore failed");
  }
  // Should they stay, they bypass a card that is not there.
  ~Rules() {
    try {
      set_rules(kNoRules, true);
    } catch (const Error&) {
    }
  }
  Rules(const Rules&) = delete;
  Rules& operator=(const Rules&) = delete;
};

int open_notice_socket() {
  const int number = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (number < 0) refuse("cannot open a socket for notices", errno);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path + 1, kNoticeSocket);
  const auto bytes =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + std::strlen(kNoticeSocket));
  if (::bind(number, reinterpret_cast<const sockaddr*>(&address), bytes) != 0) {
    const int error = errno;
    ::close(number);
    refuse("cannot take notices", error);
  }
  return number;
}

class Daemon {
 public:
  explicit Daemon(const std::string& codec)
      : card_(codec), notices_(open_notice_socket()), library_(::nfq_open(), ::nfq_close) {
    if (!library_) refuse("cannot reach netfilter", errno);
    leaving_ = open_queue(kLeavingQueue);
    arriving_ = open_queue(kArrivingQueue);
    ::nfnl_rcvbufsiz(::nfq_nfnlh(library_.get()), kSocketBytes);
    // Packets for which there is no room have gone their way: no reason to stop.
    const int on = 1;
    ::setsockopt(::nfq_fd(library_.get()), SOL_NETLINK, NETLINK_NO_ENOBUFS, &on, sizeof(on));
  }

  CardCounters run(int stop) {
    std::vector<char> message(kMessageBytes);
    std::array<pollfd, 3> waited{pollfd{::nfq_fd(library_.get()), POLLIN, 0},
                                 pollfd{notices_.get(), POLLIN, 0}, pollfd{stop, POLLIN, 0}};
    while (true) {
      if (::poll(waited.data(), waited.size(), -1) < 0 && errno != EINTR) {
        refuse("cannot wait for packets", errno);
      }
      if (waited[2].revents != 0) return card_.counters();
      take_notices();
      if (waited[0].revents == 0) continue;
      const ssize_t bytes = ::recv(waited[0].fd, message.data(), message.size(), MSG_DONTWAIT);
      if (bytes > 0) ::nfq_handle_packet(library_.get(), message.data(), static_cast<int>(bytes));
    }
  }

 private:
  nfq_q_handle* open_queue(std::uint16_t number) {
    nfq_q_handle* queue = ::nfq_create_queue(library_.get(), number, on_packet, this);
    if (queue == nullptr || ::nfq_set_mode(queue, NFQNL_COPY_PACKET, 0xFFFF) < 0 ||
        ::nfq_set_queue_maxlen(queue, kQueuePackets) < 0 ||
        ::nfq_set_queue_flags(queue, NFQA_CFG_F_FAIL_OPEN, NFQA_CFG_F_FAIL_OPEN) < 0) {
      refuse("cannot bind a queue", errno);
    }
    return queue;
  }

  void take_notices() {
    std::array<std::byte, kNoticeBytes + 1> bytes;
    for (int i = 0; i < kNoticesAtOnce; ++i) {
      const ssize_t got = ::recv(notices_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (got < 0) return;
      const ByteView notice = ByteView(bytes).first(static_cast<std::size_t>(got));
      if (const auto parsed = parse_notice(notice)) card_.take(*parsed);
    }
  }

  static int on_packet(nfq_q_handle* queue, nfgenmsg* /*message*/, nfq_data* data, void* self) {
    return static_cast<Daemon*>(self)->handle(queue, data);
  }

  int handle(nfq_q_handle* queue, nfq_data* data) {
    const nfqnl_msg_packet_hdr* head = ::nfq_get_msg_packet_hdr(data);
    if (head == nullptr) return 0;
    const std::uint32_t id = ntohl(head->packet_id);
    unsigned char* bytes = nullptr;
    const int length = ::nfq_get_payload(data, &bytes);
    if (length < 0) return ::nfq_set_verdict(queue, id, NF_ACCEPT, 0, nullptr);
    const ByteView packet(reinterpret_cast<const std::byte*>(bytes),
                          static_cast<std::size_t>(length));
    const Card::Instant now = std::chrono::steady_clock::now();
    // A packet cannot be here before the notice of what is in it was sent.
    take_notices();
    switch (queue == leaving_ ? card_.leaving(packet, now, out_)
                              : card_.arriving(packet, now, out_)) {
      case Verdict::kAccept:
        break;
      case Verdict::kReplace:
        return ::nfq_set_verdict(queue, id, NF_ACCEPT, static_cast<std::uint32_t>(out_.size()),
                                 reinterpret_cast<const unsigned char*>(out_.data()));
      case Verdict::kDrop:
        return ::nfq_set_verdict(queue, id, NF_DROP, 0, nullptr);
    }
    return ::nfq_set_verdict(queue, id, NF_ACCEPT, 0, nullptr);
  }

  Card card_;
  Descriptor notices_;
  std::unique_ptr<nfq_handle, int (*)(nfq_handle*)> library_;
  nfq_q_handle* leaving_ = nullptr;
  nfq_q_handle* arriving_ = nullptr;
  Bytes out_;
};

// Connection tracking sees compressed packets before the card has restored them.
void warn_of_connection_tracking() {
  std::ifstream setting("/proc/sys/net/netfilter/nf_conntrack_checksum");
  if (setting.get() != '1') return;
  std::fputs(
      "tersewire nic: firewalls that track connections take compressed packets for invalid; if one "
      "is here, run `sysctl net.netfilter.nf_conntrack_checksum=0 "
      "net.netfilter.nf_conntrack_tcp_be_liberal=1`\n",
      stderr);
}

}  // namespace

CardCounters run_daemon(const DaemonConfig& config, int stop, const std::function<void()>& ready) {
  if (::if_nametoindex(config.interface.c_str()) == 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "there is no interface '" + config.interface + "'; `ip link` lists them");
  }
  Daemon daemon(config.codec);
  const Rules rules(config.interface);
  ready();
  warn_of_connection_tracking();
  return daemon.run(stop);
}

}  // namespace tersewire::nic
