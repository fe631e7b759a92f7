#include "apps/data/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <vector>

#include "apps/cli/failures.h"

namespace tersewire::apps {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;

// OpenSSL's digests fail for lack of memory, or where the machine's policy forbids them.
void check(int done) {
  if (done != 1) {
    throw Error(ErrorCode::kInternal,
                "OpenSSL refuses to compute a SHA-256; check its configuration");
  }
}

}  // namespace

std::string file_sha256(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"),
                                                             std::fclose);
  if (!file) fail_file(path, "read", errno);
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                   EVP_MD_CTX_free);
  check(EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr));
  std::vector<unsigned char> buffer(kReadBytes);
  while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), file.get())) {
    check(EVP_DigestUpdate(context.get(), buffer.data(), got));
  }
  if (std::ferror(file.get()) != 0) fail_file(path, "read", errno);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  check(EVP_DigestFinal_ex(context.get(), digest.data(), &size));
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

}  // namespace tersewire::apps
