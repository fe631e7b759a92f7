// A job's certificates for the transport grpc: each job has its own authority, which certifies the
// keys of its hub and nodes. In PEM; keys are P-256. Every function throws kUnimplemented in builds
// without gRPC. Any thread.
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
  std::string name = {};  // of a member that comes and goes; with neither, it is the hub

  [[nodiscard]] bool is_hub() const { return !rank && name.empty(); }
};

struct KeyAndCertificate {
  std::string key;
  std::string certificate;
};

// Authorities, certificates and tokens are made for no longer: kInvalidArgument otherwise.
inline constexpr std::chrono::hours kLongestValidity = std::chrono::days(366);

// A job's own authority. Throws kInvalidArgument for a job's name that is not 1 to 40 letters a to
// z, digits and hyphens.
KeyAndCertificate make_authority(const std::string& job, std::chrono::hours valid);

// The job that an authority is for. Throws kDataLoss for anything not from make_authority().
std::string job_of_authority(const std::string& certificate);

// A node's private key and a request to certify it.
struct KeyAndRequest {
  std::string key;
  std::string request;
};
KeyAndRequest make_request();
// The request for an existing key. Throws kDataLoss if it is not a key.
std::string make_request(const std::string& key);
// Throws kDataLoss if it is not a key.
void check_key(const std::string& key);

inline constexpr std::chrono::seconds kBeginsAgo = std::chrono::minutes(5);
// A certificate for the key of a request, ignoring the request's other contents. `begins_ago`
// allows for clocks that differ. Throws kDataLoss for anything but a request signed by its own key,
// kInvalidArgument for a name that members may not have, and kFailedPrecondition once the authority
// has expired.
std::string certify(const KeyAndCertificate& authority, const std::string& request,
                    const Identity& identity, std::chrono::seconds valid,
                    std::chrono::seconds begins_ago = kBeginsAgo);

// The times between which a certificate is valid. Throws kDataLoss for what is none.
struct Validity {
  std::chrono::system_clock::time_point from;
  std::chrono::system_clock::time_point until;
};
Validity validity_of(const std::string& certificate);

// A token for one identity, valid from now on: a line of text that only this node may see. The node
// signs its request with it, so request and answer may be sent in any way. Throws kInvalidArgument
// for a name that members may not have.
std::string make_token(const KeyAndCertificate& authority, const Identity& identity,
                       std::chrono::seconds valid);
// The request and a line that proves that its sender has the token, which cannot be learned from
// it. Throws kDataLoss for what is no token.
std::string sign_request(const std::string& request, const std::string& token);
// Whether such a line is there, right or wrong.
bool is_signed_request(const std::string& request);
// A certificate for the identity of the token that signed the request; `revoked` is the list of
// revocations, or empty. The same request again gets another certificate for the same key. Throws
// kDataLoss for a request that none of this authority's tokens signed, kFailedPrecondition for a
// token that has expired, or of an identity that was revoked since.
std::string certify_by_token(const KeyAndCertificate& authority, const std::string& revoked,
                             const std::string& request, std::chrono::seconds valid);
// Throws kDataLoss unless the token is of this authority: an answer to a request that it signed is
// from another one.
void check_authority(const std::string& token, const std::string& authority);

// A signed text list of identities whose certificates made until now are no longer valid: those in
// `list`, which is this authority's or empty, and this identity. An identity that is certified a
// second later or more may return. Throws kInvalidArgument for the hub and for a name that members
// may not have, kDataLoss for a list of another authority.
std::string make_revocation(const KeyAndCertificate& authority, const std::string& list,
                            const Identity& identity);
// Whether this is such a list. Throws kDataLoss if it is one but not of this authority.
bool is_revocation(const std::string& text, const std::string& authority);
// Whether one such list revokes all that another does. Throws kDataLoss if one is not of this
// authority.
bool keeps_revoked(const std::string& list, const std::string& before,
                   const std::string& authority);

// The identity that this certificate is for. Throws kDataLoss if it is not for this key, or not of
// this authority.
Identity check_certificate(const std::string& certificate, const std::string& key,
                           const std::string& authority);

}  // namespace tersewire
