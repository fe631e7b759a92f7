#include "revoked_certificates.h"

#include <sys/stat.h>

#include "errors.h"

namespace tersewire {
RevokedCertificates::RevokedCertificates(const std::string& directory) {
  if (directory.empty()) return;
  file_ = directory + "/revoked";
  authority_ = read_text(directory + "/authority.pem");
  read_ = mark();
  if (read_) read();
}

std::optional<RevokedCertificates::Mark> RevokedCertificates::mark() const {
  struct stat found {};
  if (::stat(file_.c_str(), &found) != 0) return std::nullopt;
  constexpr std::int64_t kNanoseconds = 1'000'000'000;
  return Mark(found.st_ino, found.st_mtim.tv_sec * kNanoseconds + found.st_mtim.tv_nsec);
}

void RevokedCertificates::read() {
  const std::string list = read_text(file_);
  Revocations all = with_context([&] { return fmt::format("'{}'", file_); },
                                 [&] { return parse_revocations(list, authority_); });
  if (!keeps_all(all, all_)) {
    fail(ErrorCode::kDataLoss,
         "'{}' is older than the list before it, which stays in force; put the newest there",
         file_);
  }
  all_ = std::move(all);
}

bool RevokedCertificates::look() {
  if (file_.empty()) return false;
  const auto now = mark();
  if (!now || now == read_) return false;
  read_ = now;
  trouble_.clear();
  try {
    read();
  } catch (const Error& error) {
    trouble_ = error.what();
  }
  return true;
}

std::optional<std::string> RevokedCertificates::objection(const std::string& certificate) const {
  if (all_.empty()) return std::nullopt;
  const Identity identity = identity_of(certificate, "a peer");
  const auto revoked = all_.find(uri_of(identity));
  if (revoked == all_.end() ||
      validity_of(certificate).from > std::chrono::system_clock::from_time_t(revoked->second))
    return std::nullopt;
  return "its certificate is revoked";
}

}  // namespace tersewire
