// Arbitrary text as what asks a job's authority for a certificate, as a token, as a certificate,
// and as a name in one: it is refused, or what comes of it names whom the authority named.
#include <string>

#include "certificates.h"
#include "fuzz_support.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tersewire;
  using namespace tersewire::fuzz;
  using namespace std::chrono_literals;
  static const KeyAndCertificate authority = make_authority("job", 24h);
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::string certificate;
  if (succeeds([&] { certificate = certify(authority, text, {"job", 3}, 1h); })) {
    const Identity identity = identity_of(certificate, "file");
    require(identity.job == "job" && identity.rank == 3, "the authority says who it is");
  }
  // The authority has made no token.
  require(!succeeds([&] { certify_by_token(authority, "", text, 1h); }), "nobody has a token");
  std::string asked;
  if (succeeds([&] { asked = sign_request("", text); })) {
    require(is_signed_request("\n" + asked), "a token signs");
    require(!succeeds([&] { certify_by_token(authority, "", asked, 1h); }), "nobody has a token");
  }
  succeeds([&] { identity_of(text, "file"); });
  if (const auto identity = parse_uri(text)) {
    require(uri_of(*identity) == text, "an identity has one name");
  }
  return 0;
}
