#include "apps/data/download.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <array>
#include <exception>
#include <memory>
#include <span>

#include "apps/data/part_file.h"
#include "apps/data/sha256.h"
#include "tersewire/error.h"

namespace tersewire::apps {
namespace {

constexpr long kStallBytesPerSecond = 1000;
constexpr long kMaxRedirects = 10;

// What the callback of one transfer works on.
struct Transfer {
  const RemoteFile& remote;
  PartFile& part;
  const BytesProgress& progress;
  bool too_long = false;
  std::exception_ptr failure;
};

// Nothing may be thrown through libcurl, which is C. Another result than `count` ends the transfer.
std::size_t take(char* data, std::size_t /*always 1*/, std::size_t count, void* user) noexcept {
  Transfer& transfer = *static_cast<Transfer*>(user);
  transfer.too_long = count > transfer.remote.bytes - transfer.part.bytes();
  if (transfer.too_long) return 0;
  try {
    transfer.part.append(std::as_bytes(std::span(data, count)));
  } catch (...) {
    transfer.failure = std::current_exception();
    return 0;
  }
  transfer.progress(transfer.part.bytes());
  return count;
}

const char* advice(CURLcode code) {
  switch (code) {
    case CURLE_HTTP_RETURNED_ERROR:
    case CURLE_URL_MALFORMAT:
    case CURLE_TOO_MANY_REDIRECTS:
      return "check the address or name another mirror with --url";
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
      return "check the network or name another mirror with --url";
    case CURLE_UNSUPPORTED_PROTOCOL:
      return "name a mirror that redirects only to http or https with --url";
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return "check this machine's clock and its certificates (package ca-certificates)";
    default:
      return "run the same command again, which continues where this one ended";
  }
}

class Request {
 public:
  Request(Transfer& transfer, long stall_seconds) : transfer_(transfer) {
    static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
    if (started != CURLE_OK || !curl_) {
      throw Error(ErrorCode::kInternal, "libcurl cannot be initialized; check its installation");
    }
    set(CURLOPT_URL, transfer.remote.url.c_str());
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    set(CURLOPT_FOLLOWLOCATION, 1L);
    set(CURLOPT_MAXREDIRS, kMaxRedirects);
    set(CURLOPT_FAILONERROR, 1L);
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_USERAGENT, "tersewire");
    set(CURLOPT_CONNECTTIMEOUT, stall_seconds);
    set(CURLOPT_LOW_SPEED_LIMIT, kStallBytesPerSecond);
    set(CURLOPT_LOW_SPEED_TIME, stall_seconds);
    set(CURLOPT_RESUME_FROM_LARGE, static_cast<curl_off_t>(transfer.part.bytes()));
    set(CURLOPT_WRITEFUNCTION, &take);
    set(CURLOPT_WRITEDATA, &transfer);
    set(CURLOPT_ERRORBUFFER, reason_.data());
  }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  // Ends where the server has sent all that it will. Throws where it could not.
  void run() {
    const CURLcode code = curl_easy_perform(curl_.get());
    if (transfer_.failure) std::rethrow_exception(transfer_.failure);
    // In these cases what is there is not the file, which is found out by its size.
    if (code == CURLE_OK || code == CURLE_RANGE_ERROR || transfer_.too_long) return;
    const std::string reason = reason_[0] != '\0' ? reason_.data() : curl_easy_strerror(code);
    throw Error(ErrorCode::kUnavailable, fmt::format("{} cannot be fetched: {}; {}",
                                                     transfer_.remote.url, reason, advice(code)));
  }

 private:
  template <typename Value>
  void set(CURLoption option, Value value) {
    if (curl_easy_setopt(curl_.get(), option, value) != CURLE_OK) {
      throw Error(ErrorCode::kInternal, "this libcurl is too old; install 7.85 or a later one");
    }
  }

  Transfer& transfer_;
  std::array<char, CURL_ERROR_SIZE> reason_{};
  std::unique_ptr<CURL, void (*)(CURL*)> curl_{curl_easy_init(), curl_easy_cleanup};
};

void fetch_rest(const RemoteFile& remote, PartFile& part, const BytesProgress& progress,
                long stall_seconds) {
  if (part.bytes() >= remote.bytes) return;
  Transfer transfer{
      .remote = remote, .part = part, .progress = progress, .too_long = false, .failure = {}};
  Request(transfer, stall_seconds).run();
}

bool is_complete(const RemoteFile& remote, const PartFile& part) {
  return part.bytes() == remote.bytes && file_sha256(part.path()) == remote.sha256;
}

}  // namespace

void download(const RemoteFile& remote, const std::string& target, const BytesProgress& progress,
              long stall_seconds) {
  PartFile part(target);
  const bool resumed = part.bytes() > 0;
  fetch_rest(remote, part, progress, stall_seconds);
  bool complete = is_complete(remote, part);
  if (!complete && resumed) {
    // The server cannot resume, its file has changed, or the part was never one of this file.
    part.clear();
    fetch_rest(remote, part, progress, stall_seconds);
    complete = is_complete(remote, part);
  }
  if (!complete) {
    part.remove();
    throw Error(
        ErrorCode::kDataLoss,
        fmt::format("what {} sends is not the expected file, of {} bytes with SHA-256 {}, and {} "
                    "was removed; run the same command again or name another mirror with --url",
                    remote.url, remote.bytes, remote.sha256, part.path()));
  }
  part.publish();
}

}  // namespace tersewire::apps
