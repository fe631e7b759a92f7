// Who is named in a job's certificate (job_certificates.h), by OpenSSL. No gRPC here.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "tersewire/job_certificates.h"

using X509 = struct x509_st;  // OpenSSL's

namespace tersewire {

// A node's is the URI tersewire://JOB/RANK or tersewire://JOB/NAME among its alternative names, and
// the hub's tersewire://JOB/hub. Each has a DNS name as well, RANK.JOB.tersewire.invalid and so on,
// which no resolver knows, because gRPC's clients look for one where somebody listens.
inline constexpr std::string_view kScheme = "tersewire://";
std::string uri_of(const Identity& identity);
std::string dns_name_of(const Identity& identity);
// Of such a URI; nothing where it is none.
std::optional<Identity> parse_uri(const std::string& uri);

// Until when certificates do not count, in seconds since 1970, by uri_of() whom they are for.
using Revocations = std::map<std::string, std::int64_t>;
// Of a list that make_revocation() has made. Throws kDataLoss for what this authority has not
// signed.
Revocations parse_revocations(const std::string& list, const std::string& authority);
// Whether `list` revokes all that `before` does.
bool keeps_all(const Revocations& list, const Revocations& before);
// The same of one that a peer has shown.
Validity validity_of(X509* certificate);
// The half of a sentence that compares a certificate's end or beginning with this machine's clock.
std::string expiry_text(const Validity& valid);
std::string begin_text(const Validity& valid);

// What a file of a job's directory holds. Throws kNotFound for what cannot be read.
std::string read_text(const std::string& path);

// What to do about an authority that has expired.
inline constexpr std::string_view kNewAuthority =
    "make a new authority with 'tersewire certs init'";
// Throws kFailedPrecondition, `file` in the sentence, for what is not valid yet, and for what has
// expired, then with the advice.
void check_valid_now(const std::string& pem, const std::string& file, std::string_view advice);

// Throws kInvalidArgument for more than kLongestValidity.
void check_validity(std::chrono::hours valid);

// Who a certificate in PEM is for. Throws kDataLoss, `file` in the sentence, for what is none of
// ours.
Identity identity_of(const std::string& pem, const std::string& file);

}  // namespace tersewire
