// Certificates of a job, in directories that go with this object.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "certificates.h"
#include "tersewire/grpc_network.h"

namespace tersewire {

class TestCertificates {
 public:
  explicit TestCertificates(const std::string& job)
      : job_(job), authority_(make_authority(job, std::chrono::hours(24))) {}
  ~TestCertificates() { std::filesystem::remove_all(root_); }
  TestCertificates(const TestCertificates&) = delete;
  TestCertificates& operator=(const TestCertificates&) = delete;

  [[nodiscard]] const KeyAndCertificate& authority() const { return authority_; }

  // A directory with a new certificate of this authority for a rank, or the hub.
  [[nodiscard]] GrpcSecurity of(std::optional<std::uint32_t> rank,
                                std::chrono::seconds valid = std::chrono::hours(1)) {
    return of({job_, rank}, authority_.certificate, valid);
  }
  // One that trusts another authority, or begins at another time.
  [[nodiscard]] GrpcSecurity of(const Identity& identity, const std::string& trusted,
                                std::chrono::seconds valid = std::chrono::hours(1),
                                std::chrono::seconds begins_ago = std::chrono::hours(2)) {
    const auto directory = root_ / std::to_string(++made_);
    std::filesystem::create_directories(directory);
    const KeyAndRequest asked = make_request();
    write(directory / "key.pem", asked.key);
    write(directory / "certificate.pem",
          certify(authority_, asked.request, identity, valid, begins_ago));
    write(directory / "authority.pem", trusted);
    return {.certificates = directory.string(), .insecure = false};
  }
  // Another certificate for the key that is there.
  void renew(const GrpcSecurity& security, std::optional<std::uint32_t> rank,
             std::chrono::seconds begins_ago = std::chrono::hours(2)) {
    const std::filesystem::path directory = security.certificates;
    const std::string request = make_request(read_text(directory / "key.pem"));
    write(directory / "new",
          certify(authority_, request, {job_, rank}, std::chrono::hours(4), begins_ago));
    std::filesystem::rename(directory / "new", directory / "certificate.pem");
  }

 private:
  static void write(const std::filesystem::path& file, const std::string& text) {
    std::ofstream(file) << text;
  }

  std::string job_;
  KeyAndCertificate authority_;
  int made_ = 0;
  std::filesystem::path root_ = std::filesystem::temp_directory_path() /
                                ("grpc_certificates." + std::to_string(std::random_device()()));
};

}  // namespace tersewire
