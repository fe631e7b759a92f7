// A job's certificates for the transport grpc: an authority of its own, which certifies the keys of
// its hub and nodes. In PEM; keys are P-256. Every function throws kUnimplemented in builds without
// gRPC. Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace tersewire {

// Who a certificate is for.
struct Identity {
  std::string job;
  std::optional<std::uint32_t> rank;
  std::string name = {};  // of a member that comes and goes; one with neither is the hub

  [[nodiscard]] bool is_hub() const { return !rank && name.empty(); }
};

struct KeyAndCertificate {
  std::string key;
  std::string certificate;
};

// An authority of its own for a job. Throws kInvalidArgument for a job's name that is not of 1 to
// 40 letters a to z, digits and hyphens.
KeyAndCertificate make_authority(const std::string& job, std::chrono::hours valid);

// The job that an authority is of. Throws kDataLoss for what make_authority() has not made.
std::string job_of_authority(const std::string& certificate);

// A node's key, which is the node's own, and a request to certify it.
struct KeyAndRequest {
  std::string key;
  std::string request;
};
KeyAndRequest make_request();
// The request for a key that there is. Throws kDataLoss for what is none.
std::string make_request(const std::string& key);

inline constexpr std::chrono::seconds kBeginsAgo = std::chrono::minutes(5);
// A certificate for the key of a request, whatever else that says. `begins_ago` allows for clocks
// that differ. Throws kDataLoss for what is no request, signed by its own key, and
// kInvalidArgument for a name that no member may have.
std::string certify(const KeyAndCertificate& authority, const std::string& request,
                    const Identity& identity, std::chrono::seconds valid,
                    std::chrono::seconds begins_ago = kBeginsAgo);

// A list, as text and signed, of whose certificates that were made until now do not count any more:
// that of `list`, which is this authority's or empty, and this identity. One who is certified a
// second later or more may come again. Throws kInvalidArgument for the hub and for a name that no
// member may have, kDataLoss for a list of another authority.
std::string make_revocation(const KeyAndCertificate& authority, const std::string& list,
                            const Identity& identity);
// Whether this is such a list. Throws kDataLoss where one is not of this authority.
bool is_revocation(const std::string& text, const std::string& authority);

// Whose certificate this is. Throws kDataLoss where it is not for this key, or not of this
// authority.
Identity check_certificate(const std::string& certificate, const std::string& key,
                           const std::string& authority);

}  // namespace tersewire
