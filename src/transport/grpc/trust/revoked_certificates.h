// The list of revoked certificates in the hub's directory, which may change while it runs. No gRPC
// here.
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <utility>

#include "certificates.h"

namespace tersewire {

// Not for several threads at once.
class RevokedCertificates {
 public:
  // Of no directory it is empty, and stays so. Throws kDataLoss for a list that is not the
  // authority's, and kNotFound for what cannot be read.
  explicit RevokedCertificates(const std::string& directory);

  // Reads the file again if it has changed. Whether there is anything new: more names, or trouble.
  // A list that lacks what was revoked before, or is not the authority's, does not count.
  bool look();
  // Why the last list does not count; empty where it does.
  [[nodiscard]] const std::string& trouble() const { return trouble_; }

  // Why this certificate does not count; nothing where it does.
  [[nodiscard]] std::optional<std::string> objection(const std::string& certificate) const;

 private:
  // Of the file; none where there is none.
  using Mark = std::pair<std::uint64_t, std::int64_t>;
  [[nodiscard]] std::optional<Mark> mark() const;
  void read();

  std::string file_;
  std::string authority_;
  std::optional<Mark> read_;
  Revocations all_;
  std::string trouble_;
};

}  // namespace tersewire
