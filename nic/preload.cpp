// libtersewire-nic.so: stands before the C library's functions that make connections and send, and
// tells the card which bytes of a stream are floats. It counts a stream's bytes from its connection
// on; of a connection whose bytes it cannot count (sendfile, splice, a duplicated descriptor) it
// says nothing, and that is always right. A write is announced before it is made, as its packets
// may leave at once, and what was not taken of it is withdrawn.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

#include "nic/sent_floats.h"
#include "tersewire/nic.h"

namespace tersewire::nic {
namespace {

constexpr int kMaxDescriptors = 65536;
constexpr std::uint32_t kNoticeMagic = 0x434E5754;
constexpr std::string_view kNoticeSocket = "tersewire-nic";

// A connection by its descriptor. Whoever writes to a stream from several threads at once has
// ordered them, or its bytes would be mixed.
struct Stream {
  std::atomic<bool> counted = false;
  std::uint64_t sent = 0;
  iovec message{};  // of Gloo: the payload under way
};

// A notice as the card reads it (card.h).
struct Notice {
  std::uint32_t magic = kNoticeMagic;
  std::uint32_t local_address = 0;
  std::uint32_t remote_address = 0;
  std::uint16_t local_port = 0;
  std::uint16_t remote_port = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};
static_assert(sizeof(Notice) == 32);

FloatRegions& regions() {
  static FloatRegions& all = *new FloatRegions;  // programs send while they end, too
  return all;
}
Stream* stream_of(int descriptor) {
  static auto& all = *new std::array<Stream, kMaxDescriptors>;
  return descriptor >= 0 && descriptor < kMaxDescriptors
             ? &all[static_cast<std::size_t>(descriptor)]
             : nullptr;
}

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

// The function that this one stands before.
#define TERSEWIRE_NEXT(name) static auto* const real = next<decltype(::name)>(#name)

void begin_stream(int descriptor, bool counted) {
  if (Stream* stream = stream_of(descriptor)) {
    stream->sent = 0;
    stream->message = {};
    stream->counted = counted;
  }
}

bool has_address(int descriptor, Notice& notice) {
  int type = 0;
  socklen_t type_bytes = sizeof(type);
  if (::getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &type_bytes) != 0) return false;
  if (type != SOCK_STREAM) return false;  // UDP's ports may be those of another's connection
  sockaddr_in local{};
  sockaddr_in remote{};
  socklen_t bytes = sizeof(local);
  if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&local), &bytes) != 0) return false;
  bytes = sizeof(remote);
  if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&remote), &bytes) != 0) return false;
  if (local.sin_family != AF_INET || remote.sin_family != AF_INET) return false;
  notice.local_address = ntohl(local.sin_addr.s_addr);
  notice.remote_address = ntohl(remote.sin_addr.s_addr);
  notice.local_port = ntohs(local.sin_port);
  notice.remote_port = ntohs(remote.sin_port);
  return true;
}

// False where there is no card, or it is too busy: then nothing was said. Each notice has a socket
// of its own: a program may close descriptors that it does not know, and the number of one that was
// kept would be another connection's next.
bool tell(const Notice& notice) {
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  TERSEWIRE_NEXT(sendto);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, kNoticeSocket.data(), kNoticeSocket.size());
  const auto bytes =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + kNoticeSocket.size());
  const bool is_said = real(socket, &notice, sizeof(notice), MSG_NOSIGNAL,
                            reinterpret_cast<const sockaddr*>(&address), bytes) == sizeof(notice);
  const int error = errno;
  ::close(socket);
  errno = error;
  return is_said;
}

// Withdraws what is behind `sent`; a card that does not listen for long must not keep it for true.
void withdraw(Notice notice, std::uint64_t sent) {
  notice.begin = notice.end = sent;
  for (int tries = 0; !tell(notice) && errno != ECONNREFUSED && tries < 1000; ++tries) {
    ::usleep(1000);
  }
}

// The payload of Gloo's that a write is of, where the environment says that all are floats: Gloo's
// messages do not say what they hold. One that was not taken whole goes on in the next write.
iovec gloo_message(const Stream& stream, std::span<const iovec> pieces) {
  static const bool is_on = [] {
    const char* set = std::getenv("TERSEWIRE_NIC_GLOO");
    return set != nullptr && std::string_view(set) == "fp32";
  }();
  if (!is_on) return {};
  const iovec begun = gloo_payload(pieces);
  if (begun.iov_len > 0 || pieces.size() != 1) return begun;
  const auto* from = static_cast<const char*>(pieces[0].iov_base);
  const auto* of = static_cast<const char*>(stream.message.iov_base);
  const bool goes_on = from >= of && from + pieces[0].iov_len == of + stream.message.iov_len;
  return goes_on ? stream.message : iovec{};
}

// Sends by `call`, and says before which of the pieces are floats.
template <typename Call>
ssize_t announced(int descriptor, std::span<const iovec> pieces, const Call& call) {
  Stream* stream = stream_of(descriptor);
  if (stream == nullptr || !stream->counted) return call();
  const int before = errno;
  Notice notice;
  std::uint64_t said = 0;
  stream->message = gloo_message(*stream, pieces);
  for (const SentFloats& floats : regions().find(pieces, stream->sent, stream->message)) {
    if (said == 0 && !has_address(descriptor, notice)) break;
    notice.begin = floats.begin;
    notice.end = floats.end;
    if (tell(notice)) said = floats.end;
  }
  errno = before;
  const ssize_t sent = call();
  const int after = errno;
  if (sent > 0) stream->sent += static_cast<std::uint64_t>(sent);
  if (said > stream->sent) withdraw(notice, stream->sent);
  errno = after;
  return sent;
}

// Both lead into one stream.
int duplicated(int descriptor, int made) {
  begin_stream(descriptor, false);
  begin_stream(made, false);
  return made;
}

// The argument, where a command has one, is no longer than a pointer.
int controlled(decltype(::fcntl)* call, int descriptor, int command, void* argument) {
  const int result = call(descriptor, command, argument);
  const bool is_duplicate = command == F_DUPFD || command == F_DUPFD_CLOEXEC;
  return is_duplicate ? duplicated(descriptor, result) : result;
}

}  // namespace
}  // namespace tersewire::nic

using tersewire::nic::announced;
using tersewire::nic::begin_stream;
using tersewire::nic::controlled;
using tersewire::nic::duplicated;
using tersewire::nic::next;
using tersewire::nic::regions;

extern "C" {

void tersewire_nic_floats(const void* begin, size_t bytes) { regions().add(begin, bytes); }
void tersewire_nic_forget(const void* begin) { regions().remove(begin); }

int connect(int descriptor, const sockaddr* address, socklen_t bytes) {
  TERSEWIRE_NEXT(connect);
  // Called again to ask how the first call went, too: nothing can have been sent by then.
  begin_stream(descriptor, address != nullptr && address->sa_family == AF_INET);
  return real(descriptor, address, bytes);
}

int accept(int descriptor, sockaddr* address, socklen_t* bytes) {
  TERSEWIRE_NEXT(accept);
  const int accepted = real(descriptor, address, bytes);
  begin_stream(accepted, true);
  return accepted;
}

int accept4(int descriptor, sockaddr* address, socklen_t* bytes, int flags) {
  TERSEWIRE_NEXT(accept4);
  const int accepted = real(descriptor, address, bytes, flags);
  begin_stream(accepted, true);
  return accepted;
}

int close(int descriptor) {
  TERSEWIRE_NEXT(close);
  begin_stream(descriptor, false);
  return real(descriptor);
}

ssize_t write(int descriptor, const void* data, size_t bytes) {
  TERSEWIRE_NEXT(write);
  const iovec piece{const_cast<void*>(data), bytes};
  return announced(descriptor, {&piece, 1}, [&] { return real(descriptor, data, bytes); });
}

ssize_t writev(int descriptor, const iovec* pieces, int count) {
  TERSEWIRE_NEXT(writev);
  return announced(descriptor, {pieces, count > 0 ? static_cast<std::size_t>(count) : 0},
                   [&] { return real(descriptor, pieces, count); });
}

ssize_t send(int descriptor, const void* data, size_t bytes, int flags) {
  TERSEWIRE_NEXT(send);
  const iovec piece{const_cast<void*>(data), bytes};
  return announced(descriptor, {&piece, 1}, [&] { return real(descriptor, data, bytes, flags); });
}

ssize_t sendto(int descriptor, const void* data, size_t bytes, int flags, const sockaddr* address,
               socklen_t address_bytes) {
  TERSEWIRE_NEXT(sendto);
  const iovec piece{const_cast<void*>(data), bytes};
  return announced(descriptor, {&piece, 1},
                   [&] { return real(descriptor, data, bytes, flags, address, address_bytes); });
}

ssize_t sendmsg(int descriptor, const msghdr* message, int flags) {
  TERSEWIRE_NEXT(sendmsg);
  return announced(descriptor, {message->msg_iov, message->msg_iovlen},
                   [&] { return real(descriptor, message, flags); });
}

// --- What sends bytes that are not counted

ssize_t sendfile(int descriptor, int file, off_t* offset, size_t bytes) {
  TERSEWIRE_NEXT(sendfile);
  begin_stream(descriptor, false);
  return real(descriptor, file, offset, bytes);
}

ssize_t sendfile64(int descriptor, int file, off64_t* offset, size_t bytes) {
  TERSEWIRE_NEXT(sendfile64);
  begin_stream(descriptor, false);
  return real(descriptor, file, offset, bytes);
}

ssize_t splice(int from, off64_t* from_offset, int to, off64_t* to_offset, size_t bytes,
               unsigned flags) {
  TERSEWIRE_NEXT(splice);
  begin_stream(to, false);
  return real(from, from_offset, to, to_offset, bytes, flags);
}

int sendmmsg(int descriptor, mmsghdr* messages, unsigned count, int flags) {
  TERSEWIRE_NEXT(sendmmsg);
  begin_stream(descriptor, false);
  return real(descriptor, messages, count, flags);
}

int dup(int descriptor) {
  TERSEWIRE_NEXT(dup);
  return duplicated(descriptor, real(descriptor));
}

int dup2(int descriptor, int other) {
  TERSEWIRE_NEXT(dup2);
  return duplicated(descriptor, real(descriptor, other));
}

int dup3(int descriptor, int other, int flags) {
  TERSEWIRE_NEXT(dup3);
  return duplicated(descriptor, real(descriptor, other, flags));
}

int fcntl(int descriptor, int command, ...) {
  TERSEWIRE_NEXT(fcntl);
  va_list arguments;
  va_start(arguments, command);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  return controlled(real, descriptor, command, argument);
}

int fcntl64(int descriptor, int command, ...) {
  TERSEWIRE_NEXT(fcntl64);
  va_list arguments;
  va_start(arguments, command);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  return controlled(real, descriptor, command, argument);
}

}  // extern "C"
