#include "certificates.h"

#include <fmt/chrono.h>
#include <fmt/ranges.h>
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>
#include <fstream>
#include <memory>
#include <sstream>
#include <system_error>
#include <vector>

#include "errors.h"
#include "member_record.h"
#include "openssl_free.h"

namespace tersewire {
namespace {

constexpr std::string_view kHub = "hub";
constexpr std::size_t kMostJobChars = 40;
constexpr int kMostPemBytes = 1 << 16;
constexpr std::string_view kAuthorityName = "tersewire ";
constexpr std::string_view kRevoked = "tersewire revoked 1\n";
constexpr std::string_view kSignature = "signature ";
constexpr std::size_t kMostListBytes = std::size_t{1} << 20;

using Bio = std::unique_ptr<BIO, Free<BIO_free_all>>;
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Free<X509_free>>;
using Request = std::unique_ptr<X509_REQ, Free<X509_REQ_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, Free<X509_EXTENSION_free>>;
using Names = std::unique_ptr<GENERAL_NAMES, Free<GENERAL_NAMES_free>>;

// What OpenSSL says of its last failure.
std::string last_failure() {
  std::array<char, 256> text{};
  const unsigned long code = ERR_get_error();
  if (code == 0) return "OpenSSL gives no reason";
  ERR_error_string_n(code, text.data(), text.size());
  ERR_clear_error();
  return text.data();
}

void check(bool fine) {
  if (fine) return;
  fail(ErrorCode::kInternal, "OpenSSL failed to make a certificate: {}; report it", last_failure());
}

bool is_job(std::string_view job) {
  return !job.empty() && job.size() <= kMostJobChars && is_plain(job);
}

Bio reading(const std::string& pem) {
  return Bio(BIO_new_mem_buf(pem.data(),
                             static_cast<int>(std::min<std::size_t>(pem.size(), kMostPemBytes))));
}

// What asks for a passphrase gets none, and nobody is asked at the terminal.
int no_phrase(char* /*phrase*/, int /*size*/, int /*writes*/, void* /*unused*/) { return -1; }

std::string text_in(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return {data, static_cast<std::size_t>(size)};
}

template <typename Write>
std::string pem_of(Write&& write) {
  const Bio bio(BIO_new(BIO_s_mem()));
  check(bio && write(bio.get()) == 1);
  return text_in(bio.get());
}

std::string pem_of_key(EVP_PKEY* key) {
  return pem_of([&](BIO* bio) {
    return PEM_write_bio_PKCS8PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
  });
}

Key new_key() {
  Key key(EVP_EC_gen("P-256"));
  check(key != nullptr);
  return key;
}

void add_extension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Extension extension(X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()));
  check(extension && X509_add_ext(certificate, extension.get(), -1) == 1);
}

// Everything but extensions and signature.
Certificate new_certificate(const std::string& name, EVP_PKEY* key, std::chrono::seconds begins_ago,
                            std::chrono::seconds valid) {
  Certificate certificate(X509_new());
  check(certificate != nullptr);
  std::array<unsigned char, 16> serial{};
  check(RAND_bytes(serial.data(), static_cast<int>(serial.size())) == 1);
  serial[0] &= 0x7f;
  std::unique_ptr<BIGNUM, Free<BN_free>> number(
      BN_bin2bn(serial.data(), static_cast<int>(serial.size()), nullptr));
  X509* const it = certificate.get();
  const std::unique_ptr<X509_NAME, Free<X509_NAME_free>> subject(X509_NAME_new());
  check(X509_set_version(it, X509_VERSION_3) == 1 &&
        BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(it)) != nullptr &&
        X509_gmtime_adj(X509_getm_notBefore(it), -begins_ago.count()) != nullptr &&
        X509_gmtime_adj(X509_getm_notAfter(it), valid.count()) != nullptr &&
        X509_NAME_add_entry_by_txt(subject.get(), "CN", MBSTRING_ASC,
                                   reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1,
                                   0) == 1 &&
        X509_set_subject_name(it, subject.get()) == 1 && X509_set_pubkey(it, key) == 1);
  return certificate;
}

std::string sign(X509* certificate, EVP_PKEY* key) {
  check(X509_sign(certificate, key, EVP_sha256()) > 0);
  return pem_of([&](BIO* bio) { return PEM_write_bio_X509(bio, certificate); });
}

Key read_key(const std::string& pem) {
  Key key(PEM_read_bio_PrivateKey(reading(pem).get(), nullptr, no_phrase, nullptr));
  if (!key) {
    fail(ErrorCode::kDataLoss, "there is no private key in PEM: {}; restore it, or make a new one",
         last_failure());
  }
  return key;
}

std::string request_for(EVP_PKEY* key) {
  const Request request(X509_REQ_new());
  check(request && X509_REQ_set_version(request.get(), X509_REQ_VERSION_1) == 1 &&
        X509_REQ_set_pubkey(request.get(), key) == 1 &&
        X509_REQ_sign(request.get(), key, EVP_sha256()) > 0);
  return pem_of([&](BIO* bio) { return PEM_write_bio_X509_REQ(bio, request.get()); });
}

Certificate read_certificate(const std::string& pem, const std::string& file) {
  Certificate certificate(PEM_read_bio_X509(reading(pem).get(), nullptr, no_phrase, nullptr));
  if (!certificate) {
    fail(ErrorCode::kDataLoss, "'{}' holds no certificate in PEM: {}; make a new one", file,
         last_failure());
  }
  return certificate;
}

// Its rank, its name, or that it is the hub.
std::string who_of(const Identity& identity) {
  if (identity.rank) return std::to_string(*identity.rank);
  return identity.name.empty() ? std::string(kHub) : identity.name;
}

}  // namespace

std::string uri_of(const Identity& identity) {
  return fmt::format("{}{}/{}", kScheme, identity.job, who_of(identity));
}

std::string dns_name_of(const Identity& identity) {
  return fmt::format("{}.{}.tersewire.invalid", who_of(identity), identity.job);
}

std::optional<Identity> parse_uri(const std::string& uri) {
  const std::size_t slash = uri.rfind('/');
  if (!uri.starts_with(kScheme) || slash < kScheme.size()) return std::nullopt;
  Identity identity{.job = uri.substr(kScheme.size(), slash - kScheme.size()), .rank = {}};
  if (!is_job(identity.job)) return std::nullopt;
  const std::string who = uri.substr(slash + 1);
  if (who == kHub) return identity;
  if (is_member_name(who)) {
    identity.name = who;
    return identity;
  }
  std::uint32_t rank = 0;
  const auto [end, error] = std::from_chars(who.data(), who.data() + who.size(), rank);
  if (error != std::errc() || end != who.data() + who.size()) return std::nullopt;
  identity.rank = rank;
  return uri == uri_of(identity) ? std::optional(identity) : std::nullopt;
}

Identity identity_of(const std::string& pem, const std::string& file) {
  const Certificate certificate = read_certificate(pem, file);
  const Names names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate.get(), NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* const uri = name->d.uniformResourceIdentifier;
    const auto identity = parse_uri({reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                                     static_cast<std::size_t>(ASN1_STRING_length(uri))});
    if (identity) return *identity;
  }
  fail(ErrorCode::kDataLoss,
       "the certificate in '{}' names no node of a job; have one made by 'tersewire certs'", file);
}

Validity validity_of(X509* certificate) {
  const auto seconds = [](const ASN1_TIME* text) {
    std::tm time{};
    check(ASN1_TIME_to_tm(text, &time) == 1);
    return std::chrono::system_clock::from_time_t(::timegm(&time));
  };
  return {.from = seconds(X509_get0_notBefore(certificate)),
          .until = seconds(X509_get0_notAfter(certificate))};
}

Validity validity_of(const std::string& certificate) {
  return validity_of(read_certificate(certificate, "a certificate").get());
}

std::string expiry_text(const Validity& valid) {
  return fmt::format("it was valid until {:%F %T} UTC, and this machine's clock says {:%F %T}",
                     fmt::gmtime(valid.until), fmt::gmtime(std::chrono::system_clock::now()));
}

std::string begin_text(const Validity& valid) {
  return fmt::format("it is valid from {:%F %T} UTC on, and this machine's clock says {:%F %T}",
                     fmt::gmtime(valid.from), fmt::gmtime(std::chrono::system_clock::now()));
}

void check_valid_now(const std::string& pem, const std::string& file, std::string_view advice) {
  const Validity valid = validity_of(read_certificate(pem, file).get());
  const auto now = std::chrono::system_clock::now();
  if (now > valid.until) {
    fail(ErrorCode::kFailedPrecondition,
         "the certificate in '{}' has expired ({}); {}, or set the clock if it is wrong", file,
         expiry_text(valid), advice);
  }
  if (now >= valid.from) return;
  fail(ErrorCode::kFailedPrecondition,
       "the certificate in '{}' is not valid yet ({}); compare the clocks of this machine and the "
       "one that signed it",
       file, begin_text(valid));
}

std::string read_text(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::getline(file, text, '\0');  // all of it: text has no NUL
  if (!file.is_open() || file.bad()) {
    fail(ErrorCode::kNotFound,
         "'{}' cannot be read: {}; name a directory that 'tersewire certs join' made, and check "
         "its permissions",
         path, std::strerror(errno));
  }
  return text;
}

void check_validity(std::chrono::hours valid) {
  if (valid <= kLongestValidity) return;
  fail(ErrorCode::kInvalidArgument,
       "{} hours are more than certificates are valid for; choose {} at most", valid.count(),
       kLongestValidity.count());
}

KeyAndCertificate make_authority(const std::string& job, std::chrono::hours valid) {
  check_validity(valid);
  if (!is_job(job)) {
    fail(ErrorCode::kInvalidArgument,
         "'{}' is not a valid job name; use 1 to {} letters a to z, digits and hyphens", job,
         kMostJobChars);
  }
  const Key key = new_key();
  const Certificate certificate =
      new_certificate(std::string(kAuthorityName) + job, key.get(), std::chrono::minutes(5), valid);
  X509* const it = certificate.get();
  check(X509_set_issuer_name(it, X509_get_subject_name(it)) == 1);
  add_extension(it, it, NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
  add_extension(it, it, NID_key_usage, "critical,keyCertSign,cRLSign");
  add_extension(it, it, NID_subject_key_identifier, "hash");
  return {.key = pem_of_key(key.get()), .certificate = sign(it, key.get())};
}

KeyAndRequest make_request() {
  const Key key = new_key();
  return {.key = pem_of_key(key.get()), .request = request_for(key.get())};
}

std::string make_request(const std::string& key) { return request_for(read_key(key).get()); }

void check_key(const std::string& key) { read_key(key); }

std::string certify(const KeyAndCertificate& authority, const std::string& request,
                    const Identity& identity, std::chrono::seconds valid,
                    std::chrono::seconds begins_ago) {
  check_validity(std::chrono::ceil<std::chrono::hours>(valid));
  if (!identity.name.empty()) check_member_name(identity.name);
  const Request asked(PEM_read_bio_X509_REQ(reading(request).get(), nullptr, no_phrase, nullptr));
  EVP_PKEY* const key = asked ? X509_REQ_get0_pubkey(asked.get()) : nullptr;
  if (key == nullptr || EVP_PKEY_get_base_id(key) != EVP_PKEY_EC ||
      X509_REQ_verify(asked.get(), key) != 1) {
    fail(ErrorCode::kDataLoss,
         "this is not a certificate request signed by the key that it names: {}; pass on what "
         "'tersewire certs join' prints on the node",
         last_failure());
  }
  check_valid_now(authority.certificate, "authority.pem", kNewAuthority);
  const Certificate issuer = read_certificate(authority.certificate, "the authority");
  const Key issuer_key = read_key(authority.key);
  const Certificate certificate =
      new_certificate(identity.rank            ? fmt::format("rank {}", *identity.rank)
                      : !identity.name.empty() ? identity.name
                                               : "hub",
                      key, begins_ago, valid);
  X509* const it = certificate.get();
  check(X509_set_issuer_name(it, X509_get_subject_name(issuer.get())) == 1);
  add_extension(it, issuer.get(), NID_basic_constraints, "critical,CA:FALSE");
  add_extension(it, issuer.get(), NID_key_usage, "critical,digitalSignature");
  add_extension(it, issuer.get(), NID_ext_key_usage,
                identity.is_hub() ? "serverAuth" : "clientAuth,serverAuth");
  add_extension(it, issuer.get(), NID_subject_alt_name,
                fmt::format("URI:{},DNS:{}", uri_of(identity), dns_name_of(identity)));
  return sign(it, issuer_key.get());
}

std::string job_of_authority(const std::string& certificate) {
  const Certificate it = read_certificate(certificate, "the authority");
  std::array<char, 128> name{};
  X509_NAME_get_text_by_NID(X509_get_subject_name(it.get()), NID_commonName, name.data(),
                            static_cast<int>(name.size()));
  const std::string_view text(name.data());
  const std::string job(text.substr(std::min(kAuthorityName.size(), text.size())));
  if (X509_check_ca(it.get()) != 1 || !text.starts_with(kAuthorityName) || !is_job(job)) {
    fail(ErrorCode::kDataLoss,
         "this is not the authority of a job; name the directory that 'tersewire certs init' made");
  }
  return job;
}

std::string make_revocation(const KeyAndCertificate& authority, const std::string& list,
                            const Identity& identity) {
  if (identity.is_hub()) {
    fail(ErrorCode::kInvalidArgument,
         "a hub's certificate cannot be revoked; make a new authority for the job");
  }
  if (!identity.name.empty()) check_member_name(identity.name);
  Revocations all;
  if (!list.empty()) all = parse_revocations(list, authority.certificate);
  all[uri_of(identity)] = std::time(nullptr) - kBeginsAgo.count();
  std::string text(kRevoked);
  for (const auto& [uri, until] : all) text += fmt::format("{} {}\n", uri, until);
  const Key key = read_key(authority.key);
  const std::unique_ptr<EVP_MD_CTX, Free<EVP_MD_CTX_free>> context(EVP_MD_CTX_new());
  std::vector<unsigned char> signature(256);
  std::size_t bytes = signature.size();
  check(context &&
        EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(), nullptr, key.get()) == 1 &&
        EVP_DigestSign(context.get(), signature.data(), &bytes,
                       reinterpret_cast<const unsigned char*>(text.data()), text.size()) == 1);
  signature.resize(bytes);
  return text + fmt::format("{}{:02x}\n", kSignature, fmt::join(signature, ""));
}

bool is_revocation(const std::string& text, const std::string& authority) {
  if (!text.starts_with(kRevoked)) return false;
  parse_revocations(text, authority);
  return true;
}

Revocations parse_revocations(const std::string& list, const std::string& authority) {
  const auto refuse = [] {
    fail(ErrorCode::kDataLoss,
         "it is not a list of revoked certificates that this job's authority has signed; use all "
         "of what 'tersewire certs revoke' prints");
  };
  const std::size_t end = list.rfind(kSignature);
  if (!list.starts_with(kRevoked) || end == std::string::npos || list.size() > kMostListBytes ||
      !list.ends_with('\n')) {
    refuse();
  }
  const std::string hex =
      list.substr(end + kSignature.size(), list.size() - end - kSignature.size() - 1);
  std::vector<unsigned char> signature(hex.size() / 2);
  for (std::size_t i = 0; i < signature.size(); ++i) {
    const char* const digits = hex.data() + 2 * i;
    if (std::from_chars(digits, digits + 2, signature[i], 16).ptr != digits + 2) refuse();
  }
  const Certificate issuer = read_certificate(authority, "the authority");
  const std::unique_ptr<EVP_MD_CTX, Free<EVP_MD_CTX_free>> context(EVP_MD_CTX_new());
  const bool is_signed =
      context && hex.size() % 2 == 0 &&
      EVP_DigestVerifyInit(context.get(), nullptr, EVP_sha256(), nullptr,
                           X509_get0_pubkey(issuer.get())) == 1 &&
      EVP_DigestVerify(context.get(), signature.data(), signature.size(),
                       reinterpret_cast<const unsigned char*>(list.data()), end) == 1;
  ERR_clear_error();
  if (!is_signed) refuse();
  Revocations all;
  std::istringstream lines(list.substr(kRevoked.size(), end - kRevoked.size()));
  std::string uri;
  for (std::int64_t until = 0; lines >> uri >> until;) all[uri] = until;
  if (!lines.eof()) refuse();
  return all;
}

bool keeps_all(const Revocations& list, const Revocations& before) {
  return std::ranges::all_of(before, [&](const auto& revoked) {
    const auto kept = list.find(revoked.first);
    return kept != list.end() && kept->second >= revoked.second;
  });
}

bool keeps_revoked(const std::string& list, const std::string& before,
                   const std::string& authority) {
  return keeps_all(parse_revocations(list, authority), parse_revocations(before, authority));
}

Identity check_certificate(const std::string& certificate, const std::string& key,
                           const std::string& authority) {
  const Certificate it = read_certificate(certificate, "the answer");
  const Certificate issuer = read_certificate(authority, "the answer");
  const bool is_for_key = X509_check_private_key(it.get(), read_key(key).get()) == 1;
  const bool is_issued = X509_verify(it.get(), X509_get0_pubkey(issuer.get())) == 1;
  ERR_clear_error();
  if (!is_for_key || !is_issued) {
    fail(ErrorCode::kDataLoss, "the certificate is not {}; have this node's request signed",
         is_for_key ? "signed by the authority beside it" : "for this node's key");
  }
  return identity_of(certificate, "the answer");
}

}  // namespace tersewire
