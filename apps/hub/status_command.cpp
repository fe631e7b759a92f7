// tersewire status: how the job of a hub stands.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/cli/commands.h"
#include "apps/cli/failures.h"
#include "apps/cli/output.h"
#include "apps/cli/quantities.h"
#include "apps/hub/job_status.h"
#include "tersewire/grpc_members.h"

namespace tersewire::apps {
namespace {

constexpr const char* kStatusExamples = R"(Examples:
  tersewire status 127.0.0.1:7100
  tersewire status hub.example:7100 --certs node3 --json     any node's certificate will do)";

struct StatusFlags {
  std::string hub;
  GrpcSecurity security;
  std::uint64_t patience_seconds = 10;
  bool json = false;
};

nlohmann::json json_of(const MemberList& list, const MemberEntry& member, bool works) {
  const std::string why = waited_for(list, member);
  return {{"name", member.name},
          {"phase", text_of(member.phase)},
          {"role", member.serves ? "server" : "worker"},
          {"worker", works},
          {"leaving", member.leaving},
          {"age_seconds", optional_json(seconds_since_heard(member))},
          {"quiet_seconds", optional_json(seconds_quiet(member))},
          {"step", member.newest.step},
          {"sent_bytes", member.traffic.sent_bytes},
          {"received_bytes", member.traffic.received_bytes},
          {"sent_bytes_per_second", member.traffic.sent_rate},
          {"received_bytes_per_second", member.traffic.received_rate},
          {"waited_for", why.empty() ? nlohmann::json() : nlohmann::json(why)}};
}

nlohmann::json json_of(const MemberList& list) {
  nlohmann::json members = nlohmann::json::array();
  for (std::size_t rank = 0; rank < list.members.size(); ++rank) {
    members.push_back(json_of(list, list.members[rank], rank < list.workers));
  }
  nlohmann::json waiting = nlohmann::json::array();
  for (const MemberEntry& member : list.waiting) waiting.push_back(json_of(list, member, false));
  return {{"phase", text_of(list.phase)},
          {"generation", list.generation},
          {"began_after_step", list.base.step},
          {"workers", list.workers},
          {"servers", list.servers},
          {"members", members},
          {"waiting", waiting},
          {"lost_members", list.lost},
          {"lost_residual_norm", list.lost_norm},
          {"reason", list.reason}};
}

std::string shown_seconds(std::optional<double> seconds) {
  return seconds ? fmt::format("{:.1f} s", std::min(*seconds, 9999.0)) : "-";
}

std::string line_of(const MemberList& list, const MemberEntry& member, const std::string& rank) {
  const std::string why = waited_for(list, member);
  return fmt::format(
      "{:>4}  {:<20}  {:<8}  {:<6}  {:>8}  {:>8}  {:>8}  {:>7}  {:>9}  {:>7}  {:>9}  {}\n", rank,
      member.name, member.leaving ? "leaves" : text_of(member.phase), member.serves ? "server" : "",
      member.newest.step, shown_seconds(seconds_since_heard(member)),
      shown_seconds(seconds_quiet(member)),
      bytes_text(static_cast<double>(member.traffic.sent_bytes)),
      bytes_text(static_cast<double>(member.traffic.sent_rate)) + "/s",
      bytes_text(static_cast<double>(member.traffic.received_bytes)),
      bytes_text(static_cast<double>(member.traffic.received_rate)) + "/s",
      why.empty() ? "" : "waited for: " + why);
}

// A hub of fixed ranks, which are its members' names, does not know which of them serve.
std::string nodes_of(const MemberList& list) {
  const bool fixed = !list.members.empty() && list.members.front().name == "0";
  if (fixed) return fmt::format("{} nodes", list.workers);
  return fmt::format("{} workers{}", list.workers,
                     list.servers > 0 ? fmt::format(" and {} servers", list.servers) : "");
}

std::string table_of(const MemberList& list) {
  const bool has_begun = !list.members.empty();
  std::string text = fmt::format(
      "The job {}: {}{}\n", text_of(list.phase),
      has_begun ? fmt::format("generation {} of {}, since step {}", list.generation, nodes_of(list),
                              list.base.step)
                : fmt::format("{} here so far", list.waiting.size()),
      list.lost > 0 ? fmt::format("; {} members were lost with their residuals, of norm {:.3g}",
                                  list.lost, list.lost_norm)
                    : "");
  if (!list.reason.empty()) text += fmt::format("The last end: {}\n", one_line(list.reason));
  text +=
      fmt::format("{:>4}  {:<20}  {:<8}  {:<6}  {:>8}  {:>8}  {:>8}  {:>7}  {:>9}  {:>7}  {:>9}\n",
                  "rank", "name", "", "", "step", "heard", "message", "sent", "", "got", "");
  for (std::size_t rank = 0; rank < list.members.size(); ++rank) {
    text += line_of(list, list.members[rank], std::to_string(rank));
  }
  for (const MemberEntry& member : list.waiting) text += line_of(list, member, "-");
  return text;
}

void show_status(const StatusFlags& flags) {
  const MemberList list = as_usage([&] {
    return look_at_hub(flags.hub, flags.security, std::chrono::seconds(flags.patience_seconds));
  });
  print(flags.json ? json_text(json_of(list)) + "\n" : table_of(list));
}

}  // namespace

void add_status_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("status", "Show the state of a hub's job, and who it waits for");
  command->footer(kStatusExamples);
  auto flags = std::make_shared<StatusFlags>();
  command->add_option("HUB", flags->hub, "HOST:PORT of 'tersewire hub'")->required();
  CLI::Option* certificates = command->add_option("--certs", flags->security.certificates,
                                                  "Directory of a node's certificate of the job");
  command->add_flag("--insecure", flags->security.insecure, "Allow plaintext beyond this machine")
      ->excludes(certificates);
  command->add_option("--patience", flags->patience_seconds, "Seconds to wait for the hub")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{3600}));
  command->add_flag("--json", flags->json, "Print JSON");
  command->callback([flags] { show_status(*flags); });
}

}  // namespace tersewire::apps
