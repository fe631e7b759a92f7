// tersewire certs: a job's authority, and the certificates of its hub and nodes.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "apps/cli/commands.h"
#include "apps/cli/failures.h"
#include "apps/cli/output.h"
#include "apps/files/input_stream.h"
#include "apps/files/new_file.h"
#include "apps/files/on_disk.h"
#include "apps/files/read_file.h"
#include "tersewire/job_certificates.h"

namespace tersewire::apps {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCertsExamples = R"(Examples:
  tersewire certs init clinic          once: the authority of job clinic, in the directory clinic/
  tersewire certs join hub | tersewire certs sign clinic --hub | tersewire certs join hub --signed -
  tersewire certs join node3 | ssh HOST tersewire certs sign clinic --rank 3 \
      | tersewire certs join node3 --signed -
  tersewire certs token clinic --rank 3 > token          for the node alone; it then needs no --rank:
  tersewire certs join node3 --token token | ssh HOST tersewire certs sign clinic \
      | tersewire certs join node3 --signed -
  tersewire certs revoke clinic --rank 3 | ssh HUB tersewire certs join hub --signed -
A key is made where it is used and never leaves that machine: only a request and the certificate
that answers it are sent, as text, by ssh or any other channel that proves who asks, or by any
channel at all if the node signs with a token ('certs token').
Certificates are short-lived; the same command renews them, even while a job runs.)";

constexpr const char* kAuthorityKey = "authority-key.pem";
constexpr const char* kAuthority = "authority.pem";
constexpr const char* kKey = "key.pem";
constexpr const char* kCertificate = "certificate.pem";
constexpr const char* kRevoked = "revoked";
constexpr const char* kToken = "token";
constexpr const char* kBegin = "-----BEGIN CERTIFICATE-----";
constexpr std::uint64_t kMostHours = kLongestValidity.count();

struct CertsFlags {
  std::string job;
  std::string directory;
  std::string answer;
  std::string token;
  std::optional<std::uint32_t> rank;
  std::string name;
  bool hub = false;
  std::uint64_t hours = 24;
};

std::string in(const std::string& directory, const char* name) {
  return (fs::path(directory) / name).string();
}

// A few hundred bytes, and a list of revocations 1 MiB at most: anybody may send a request.
std::string read_small_text(const std::string& path) {
  constexpr std::size_t kMost = std::size_t{1} << 20;
  InputStream stream(path);
  const ByteView text = stream.peek(kMost + 1);
  if (text.size() > kMost) {
    throw Error(ErrorCode::kDataLoss,
                fmt::format("{}: it is longer than 1 MiB, so 'tersewire certs' did not make it; "
                            "pass on what that prints",
                            shown(path)));
  }
  return {reinterpret_cast<const char*>(text.data()), text.size()};
}

std::string key_in(const std::string& path) {
  std::string key = read_small_text(path);
  with_file(path, [&] { check_key(key); });
  return key;
}

void write(const std::string& path, const std::string& text) {
  write_new_file(path, std::as_bytes(std::span(text)));
}

// Nobody else reads what is written from here on.
void make_private_directory(const std::string& directory) {
  ::umask(S_IRWXG | S_IRWXO);
  std::error_code error;
  make_directories(directory, error);
  if (error) fail_file(directory, "written", error.value());
}

void init(const CertsFlags& flags) {
  const std::string directory = flags.directory.empty() ? flags.job : flags.directory;
  const KeyAndCertificate authority =
      as_usage([&] { return make_authority(flags.job, std::chrono::hours(flags.hours)); });
  make_private_directory(directory);
  std::error_code error;
  if (fs::exists(in(directory, kAuthorityKey), error)) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("{} holds an authority already, which nodes may trust; name another "
                            "--to",
                            directory));
  }
  // The key last: where it is, an authority is whole.
  write(in(directory, kAuthority), authority.certificate);
  write(in(directory, kAuthorityKey), authority.key);
  print(
      fmt::format("The authority of job {} is in {}, for {}; whoever can read {} there can pose as "
                  "any node\n",
                  flags.job, directory,
                  flags.hours < 48 ? fmt::format("{} h", flags.hours)
                                   : fmt::format("{} days", flags.hours / 24),
                  kAuthorityKey));
}

// The same key again where there is one: its certificate is replaced in one go.
std::string request_of(const std::string& directory) {
  const std::string path = in(directory, kKey);
  if (const auto kept = read_file_if_exists(path)) {
    return with_file(path, [&] { return make_request(string_of(*kept)); });
  }
  const KeyAndRequest made = make_request();
  write(path, made.key);
  return made.request;
}

// A token stays in the directory: it signs the requests of later certificates, too.
void request(const CertsFlags& flags) {
  make_private_directory(flags.directory);
  const std::string path = in(flags.directory, kToken);
  const std::string token = flags.token.empty() ? std::string() : read_small_text(flags.token);
  if (!token.empty()) {
    with_file(flags.token, [&] { return sign_request("", token); });
    write(path, token);
  }
  const std::string asked = request_of(flags.directory);
  const auto kept = read_file_if_exists(path);
  print(kept ? with_file(path, [&] { return sign_request(asked, string_of(*kept)); }) : asked);
}

void take_answer(const CertsFlags& flags) {
  const std::string answer = read_small_text(flags.answer);
  if (const auto trusted = read_file_if_exists(in(flags.directory, kAuthority))) {
    if (with_file(flags.answer, [&] { return is_revocation(answer, string_of(*trusted)); })) {
      const std::string path = in(flags.directory, kRevoked);
      const auto kept = read_file_if_exists(path);
      if (kept && !with_file(path, [&] {
            return keeps_revoked(answer, string_of(*kept), string_of(*trusted));
          })) {
        throw Error(ErrorCode::kFailedPrecondition,
                    fmt::format("{} lacks some revocations of {}; pass on the newest list",
                                shown(flags.answer), path));
      }
      write(path, answer);
      return note(fmt::format("{} has the revocation list\n", flags.directory));
    }
  }
  const std::size_t own = answer.find(kBegin);
  const std::size_t next = own == std::string::npos ? own : answer.find(kBegin, own + 1);
  if (next == std::string::npos) {
    throw Error(
        ErrorCode::kDataLoss,
        fmt::format("{}: it is not what 'tersewire certs sign' prints; pass that on unchanged",
                    shown(flags.answer)));
  }
  const std::string certificate = answer.substr(own, next - own);
  const std::string authority = answer.substr(next);
  make_private_directory(flags.directory);
  const std::string key_path = in(flags.directory, kKey);
  if (!std::filesystem::exists(key_path)) {
    throw Error(
        ErrorCode::kNotFound,
        fmt::format("{} has no key yet; make it with 'tersewire certs join {}', and have what "
                    "that prints signed",
                    flags.directory, flags.directory));
  }
  const std::string key = key_in(key_path);
  const Identity identity =
      with_file(flags.answer, [&] { return check_certificate(certificate, key, authority); });
  const std::string path = in(flags.directory, kAuthority);
  const auto trusted = read_file_if_exists(path);
  if (trusted && string_of(*trusted) != authority) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("{} is of another authority than {}; ask why, or join in another "
                            "directory",
                            shown(flags.answer), path));
  }
  if (const auto token = read_file_if_exists(in(flags.directory, kToken))) {
    with_file(flags.answer, [&] { check_authority(string_of(*token), authority); });
  }
  write(path, authority);
  write(in(flags.directory, kCertificate), certificate);
  const Validity valid = validity_of(certificate);
  note(fmt::format("{} is {} of job {}, from {:%F %T} to {:%F %T} UTC\n", flags.directory,
                   identity.is_hub() ? "the hub"
                   : identity.rank   ? fmt::format("rank {}", *identity.rank)
                                     : fmt::format("member '{}'", identity.name),
                   identity.job, fmt::gmtime(valid.from), fmt::gmtime(valid.until)));
}

struct Authority {
  KeyAndCertificate files;
  std::string job;
};

Authority authority_in(const std::string& directory) {
  Authority authority{.files = {.key = key_in(in(directory, kAuthorityKey)),
                                .certificate = read_small_text(in(directory, kAuthority))},
                      .job = {}};
  authority.job = with_file(in(directory, kAuthority),
                            [&] { return job_of_authority(authority.files.certificate); });
  return authority;
}

// How many of the options that name somebody are given.
int named(const CertsFlags& flags) {
  return (flags.hub ? 1 : 0) + (flags.rank ? 1 : 0) + (flags.name.empty() ? 0 : 1);
}

void check_named_once(const CertsFlags& flags) {
  if (named(flags) > 1) throw WrongUsage("--rank, --name and --hub exclude each other; give one");
}

void token(const CertsFlags& flags) {
  check_named_once(flags);
  if (named(flags) == 0) {
    throw WrongUsage("say whose token it will be: --rank R, --name NAME, or --hub");
  }
  const auto [authority, job] = authority_in(flags.directory);
  const Identity identity{.job = job, .rank = flags.rank, .name = flags.name};
  print(as_usage([&] { return make_token(authority, identity, std::chrono::hours(flags.hours)); }));
}

void sign(const CertsFlags& flags) {
  const std::string asked = read_small_text(std::string(kStandardStream));
  const bool by_token = is_signed_request(asked);
  check_named_once(flags);
  if (by_token && named(flags) > 0) {
    throw WrongUsage(
        "the request is signed with a token, which says whose certificate it will be; omit "
        "--rank, --name and --hub");
  }
  if (named(flags) == 0 && !by_token) {
    throw WrongUsage(
        "say whose certificate it will be, --rank R, --name NAME, or --hub, or let the node sign "
        "its request with a token ('tersewire certs token')");
  }
  const auto [authority, job] = authority_in(flags.directory);
  const std::chrono::hours valid(flags.hours);
  const Identity identity{.job = job, .rank = flags.rank, .name = flags.name};
  const auto revoked = read_file_if_exists(in(flags.directory, kRevoked));
  const std::string certificate = as_usage([&] {
    return by_token ? certify_by_token(authority, revoked ? string_of(*revoked) : "", asked, valid)
                    : certify(authority, asked, identity, valid);
  });
  print(certificate + authority.certificate);
}

void revoke(const CertsFlags& flags) {
  if (flags.rank.has_value() != flags.name.empty()) {
    throw WrongUsage("say whose certificates to revoke: --rank R, or --name NAME");
  }
  const auto [authority, job] = authority_in(flags.directory);
  const std::string path = in(flags.directory, kRevoked);
  const auto kept = read_file_if_exists(path);
  const Identity identity{.job = job, .rank = flags.rank, .name = flags.name};
  const std::string list = as_usage([&] {
    std::string first = make_revocation(authority, "", identity);
    if (!kept) return first;
    return with_file(path, [&] { return make_revocation(authority, string_of(*kept), identity); });
  });
  write(path, list);
  print(list);
}

CLI::App* add(CLI::App& certs, const char* name, const char* what) {
  CLI::App* command = certs.add_subcommand(name, what);
  command->footer(kCertsExamples);
  return command;
}

// Whom it is for: --rank, --name or --hub.
void add_whom(CLI::App& command, CertsFlags& flags) {
  command.add_option("DIR", flags.directory, "Directory that 'certs init' made")->required();
  command.add_option("--rank", flags.rank, "The only rank that may use it")
      ->check(CLI::Range(std::uint32_t{0}, std::uint32_t{2047}));
  command.add_option("--name", flags.name,
                     "The only name that may use it, of a job whose workers come and go");
  command.add_flag("--hub", flags.hub, "For the hub");
}

void add_hours(CLI::App& command, CertsFlags& flags) {
  command.add_option("--hours", flags.hours, "How long it is valid")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{1}, kMostHours));
}

}  // namespace

void add_certs_command(CLI::App& app) {
  CLI::App* certs = app.add_subcommand(
      "certs", "Make and revoke the certificates of a job over the transport grpc");
  certs->require_subcommand(1);
  certs->footer(kCertsExamples);

  auto of_init = std::make_shared<CertsFlags>();
  of_init->hours = kMostHours;
  CLI::App* command = add(*certs, "init", "Make the authority of a job, on one machine");
  command->add_option("JOB", of_init->job, "Its name: a to z, digits and hyphens")->required();
  command->add_option("--to", of_init->directory, "Directory for it (default: JOB)");
  add_hours(*command, *of_init);
  command->callback([of_init] { init(*of_init); });

  auto of_join = std::make_shared<CertsFlags>();
  command = add(*certs, "join", "Make this node's key, and print a request to certify it");
  command->add_option("DIR", of_join->directory, "Directory for what this node, or the hub, needs")
      ->required();
  command->add_option(
      "--signed", of_join->answer,
      "Take the certificate that 'certs sign' made from the request from this file (- for stdin)");
  command->add_option(
      "--token", of_join->token,
      "Sign the request, and later ones, with the token in this file (- for stdin)");
  command->callback(
      [of_join] { of_join->answer.empty() ? request(*of_join) : take_answer(*of_join); });

  auto of_token = std::make_shared<CertsFlags>();
  command = add(*certs, "token", "Make a token with which a node signs its requests");
  add_whom(*command, *of_token);
  add_hours(*command, *of_token);
  command->callback([of_token] { token(*of_token); });

  auto of_sign = std::make_shared<CertsFlags>();
  command = add(*certs, "sign", "Certify the request on stdin, for the authority in DIR");
  add_whom(*command, *of_sign);
  add_hours(*command, *of_sign);
  command->callback([of_sign] { sign(*of_sign); });

  auto of_revoke = std::make_shared<CertsFlags>();
  command = add(*certs, "revoke",
                "Revoke all certificates made until now, and print the list for the hub");
  command->add_option("DIR", of_revoke->directory, "Directory that 'certs init' made")->required();
  command->add_option("--rank", of_revoke->rank, "For this rank")
      ->check(CLI::Range(std::uint32_t{0}, std::uint32_t{2047}));
  command->add_option("--name", of_revoke->name, "For this name");
  command->callback([of_revoke] { revoke(*of_revoke); });
}

}  // namespace tersewire::apps
