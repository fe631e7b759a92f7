// Tokens with which nodes sign their requests for certificates (job_certificates.h), by OpenSSL.
//
// A token is JOB/WHO:MADE:UNTIL:AUTHORITY:SECRET: whom it is for, as in the node's URI; when it was
// made and until when it is valid, in seconds since 1970; the SHA-256 of the authority's
// certificate; and HMAC-SHA256 of what is before SECRET, keyed with the authority's key. A signed
// request ends with "token JOB/WHO:MADE:UNTIL:AUTHORITY MAC": HMAC-SHA256 of all before MAC, keyed
// with SECRET.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>
#include <charconv>
#include <ctime>
#include <optional>
#include <string_view>
#include <utility>

#include "certificates.h"
#include "errors.h"
#include "member_record.h"

namespace tersewire {
namespace {

constexpr std::string_view kPurpose = "tersewire token 1\n";
constexpr std::string_view kLine = "\ntoken ";
constexpr std::size_t kHashChars = 64;
constexpr std::size_t kMostTextBytes = 1 << 16;

using Hash = std::array<unsigned char, 32>;

std::string hex(const Hash& hash) { return fmt::format("{:02x}", fmt::join(hash, "")); }

std::string hmac(std::string_view key, std::string_view text) {
  Hash hash{};
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), hash.data(),
           nullptr) == nullptr) {
    fail(ErrorCode::kInternal, "OpenSSL failed to compute an HMAC; report it");
  }
  return hex(hash);
}

std::string fingerprint(std::string_view text) {
  Hash hash{};
  if (EVP_Digest(text.data(), text.size(), hash.data(), nullptr, EVP_sha256(), nullptr) != 1) {
    fail(ErrorCode::kInternal, "OpenSSL failed to compute a SHA-256; report it");
  }
  return hex(hash);
}

// What is known of a token without its secret.
struct Claim {
  Identity identity;
  std::int64_t made = 0;
  std::int64_t until = 0;
  std::string authority;
};

// JOB/WHO.
std::string whose(const Claim& claim) { return uri_of(claim.identity).substr(kScheme.size()); }

std::string text_of(const Claim& claim) {
  return fmt::format("{}:{}:{}:{}", whose(claim), claim.made, claim.until, claim.authority);
}

std::optional<Claim> parse_claim(const std::string& text) {
  std::array<std::string_view, 4> fields;
  std::string_view rest = text;
  for (std::string_view& field : fields) {
    const std::size_t colon = rest.find(':');
    field = rest.substr(0, colon);
    rest = colon == std::string_view::npos ? std::string_view() : rest.substr(colon + 1);
  }
  Claim claim;
  const auto identity = parse_uri(std::string(kScheme).append(fields[0]));
  if (!identity) return std::nullopt;
  claim.identity = *identity;
  std::from_chars(fields[1].data(), fields[1].data() + fields[1].size(), claim.made);
  std::from_chars(fields[2].data(), fields[2].data() + fields[2].size(), claim.until);
  claim.authority = fields[3];
  return text == text_of(claim) ? std::optional(claim) : std::nullopt;
}

std::string secret_of(const Claim& claim, const KeyAndCertificate& authority) {
  return hmac(authority.key, std::string(kPurpose) + text_of(claim));
}

struct Token {
  Claim claim;
  std::string secret;
};

Token parse_token(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  const std::size_t colon = text.rfind(':');
  if (text.size() <= kMostTextBytes && colon != std::string::npos) {
    if (const auto claim = parse_claim(text.substr(0, colon))) {
      std::string secret = text.substr(colon + 1);
      if (secret.size() == kHashChars && claim->authority.size() == kHashChars) {
        return {*claim, std::move(secret)};
      }
    }
  }
  fail(ErrorCode::kDataLoss,
       "this is not a token; pass on the whole line that 'tersewire certs token' prints");
}

}  // namespace

std::string make_token(const KeyAndCertificate& authority, const Identity& identity,
                       std::chrono::seconds valid) {
  check_validity(std::chrono::ceil<std::chrono::hours>(valid));
  if (!identity.name.empty()) check_member_name(identity.name);
  const std::int64_t now = std::time(nullptr);
  const Claim claim{identity, now, now + valid.count(), fingerprint(authority.certificate)};
  return fmt::format("{}:{}\n", text_of(claim), secret_of(claim, authority));
}

std::string sign_request(const std::string& request, const std::string& token) {
  const auto [claim, secret] = parse_token(token);
  const std::string text = fmt::format("{}{}{} ", request, kLine.substr(1), text_of(claim));
  return fmt::format("{}{}\n", text, hmac(secret, text));
}

bool is_signed_request(const std::string& request) {
  return request.find(kLine) != std::string::npos;
}

std::string certify_by_token(const KeyAndCertificate& authority, const std::string& revoked,
                             const std::string& request, std::chrono::seconds valid) {
  const auto refuse = [] {
    fail(ErrorCode::kDataLoss,
         "none of this authority's tokens signed the request; pass on all that 'tersewire certs "
         "join --token' prints on the node, and make its token with 'tersewire certs token' here");
  };
  const std::size_t line = request.rfind(kLine);
  const std::size_t space = request.rfind(' ');
  if (request.size() > kMostTextBytes || !request.ends_with('\n') || line == std::string::npos ||
      space < line + kLine.size()) {
    refuse();
  }
  const std::size_t first = line + kLine.size();
  const auto claim = parse_claim(request.substr(first, space - first));
  const std::string mac = request.substr(space + 1, request.size() - space - 2);
  if (!claim || mac.size() != kHashChars ||
      claim->authority != fingerprint(authority.certificate) ||
      claim->identity.job != job_of_authority(authority.certificate)) {
    refuse();
  }
  const std::string right =
      hmac(secret_of(*claim, authority), std::string_view(request).substr(0, space + 1));
  if (CRYPTO_memcmp(mac.data(), right.data(), kHashChars) != 0) refuse();

  if (std::time(nullptr) > claim->until) {
    fail(ErrorCode::kFailedPrecondition,
         "the token of {} has expired; make another one with 'tersewire certs token'",
         whose(*claim));
  }
  if (!revoked.empty()) {
    const Revocations all = parse_revocations(revoked, authority.certificate);
    const auto its = all.find(uri_of(claim->identity));
    // A list names the begin of the last certificate that does not count, a while before it was
    // made.
    if (its != all.end() && claim->made - kBeginsAgo.count() <= its->second) {
      fail(ErrorCode::kFailedPrecondition,
           "the token of {} was made before its certificates were revoked; if it may come back, "
           "make another one with 'tersewire certs token'",
           whose(*claim));
    }
  }
  return certify(authority, request.substr(0, line + 1), claim->identity, valid);
}

void check_authority(const std::string& token, const std::string& authority) {
  if (parse_token(token).claim.authority == fingerprint(authority)) return;
  fail(ErrorCode::kDataLoss,
       "it is of another authority than the one that made this node's token; ask who answered, and "
       "have the request signed by the token's authority");
}

}  // namespace tersewire
