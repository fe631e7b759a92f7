// Who is named in a job's certificate (job_certificates.h), by OpenSSL. No gRPC here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tersewire/job_certificates.h"

namespace tersewire {

// A node's is the URI tersewire://JOB/RANK or tersewire://JOB/NAME among its alternative names; the
// hub's is tersewire://JOB/hub, and the DNS name hub.JOB.tersewire.invalid, which no resolver
// knows, because gRPC's clients look for one.
std::string uri_of(const Identity& identity);
std::string hub_dns_name(const std::string& job);
// Of such a URI; nothing where it is none.
std::optional<Identity> parse_uri(const std::string& uri);

// Who a certificate in PEM is for. Throws kDataLoss, `file` in the sentence, for what is none of
// ours.
Identity identity_of(const std::string& pem, const std::string& file);

}  // namespace tersewire
