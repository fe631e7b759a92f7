// A job's certificates, by OpenSSL: who is named in one, and how they are made. No gRPC here.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace tersewire {

// Who a certificate is for. A node's is the URI tersewire://JOB/RANK among its alternative names;
// the hub's is that of rank kHub, and the DNS name hub.JOB.tersewire.invalid, which no resolver
// knows, because gRPC's clients look for one.
struct Identity {
  std::string job;
  std::optional<std::uint32_t> rank;  // none: the hub
};

std::string uri_of(const Identity& identity);
std::string hub_dns_name(const std::string& job);
// Of such a URI; nothing where it is none.
std::optional<Identity> parse_uri(const std::string& uri);

// Who a certificate in PEM is for. Throws kDataLoss, `file` in the sentence, for what is none of
// ours.
Identity identity_of(const std::string& pem, const std::string& file);

// A P-256 key and what it signed, in PEM.
struct KeyAndCertificate {
  std::string key;
  std::string certificate;
};

// An authority of its own for a job. Throws kInvalidArgument for a job's name that is not of 1 to
// 40 letters a to z, digits and hyphens.
KeyAndCertificate make_authority(const std::string& job, std::chrono::hours valid);
// A node's key, and a request to certify it, in PEM. The key is the node's own.
struct KeyAndRequest {
  std::string key;
  std::string request;
};
KeyAndRequest make_request();
// A certificate for the key of a request, whatever else that says. `begins_ago` allows for clocks
// that differ. Throws kDataLoss for what is no request, signed by its own key.
std::string certify(const KeyAndCertificate& authority, const std::string& request,
                    const Identity& identity, std::chrono::seconds valid,
                    std::chrono::seconds begins_ago = std::chrono::minutes(5));

}  // namespace tersewire
