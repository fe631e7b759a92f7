#include "apps/hub/job_status.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "apps/run/watch/prometheus_text.h"

namespace tersewire::apps {
namespace {

// A member that says nothing for so long is waited for: it speaks four times a second. Where no
// message has come from anyone for so long, the one whose last is the oldest is.
constexpr std::uint32_t kSilentMs = 2000;

// Who left a job that goes on: those after the servers hand over what they have, and once the
// others hold a state with it they are not needed.
bool has_left(const MemberList& list, const MemberEntry& member) {
  const auto rank = list.rank_of(member.incarnation);
  return list.established && rank && std::cmp_greater_equal(*rank, list.nodes());
}

bool is_quietest(const MemberList& list, const MemberEntry& member) {
  const auto quiet = [](const MemberEntry& one) { return one.traffic.quiet_ms; };
  if (list.phase != JobPhase::kRuns || quiet(member) == Traffic::kNever) return false;
  return quiet(member) > kSilentMs &&
         std::ranges::all_of(list.members, [&](const MemberEntry& other) {
           return &other == &member || has_left(list, other) ||
                  (quiet(other) > kSilentMs && quiet(other) < quiet(member));
         });
}

}  // namespace

const char* text_of(JobPhase phase) {
  switch (phase) {
    case JobPhase::kGathers:
      return "gathers";
    case JobPhase::kRuns:
      return "runs";
    case JobPhase::kDone:
      return "done";
    case JobPhase::kEnded:
      return "ended";
  }
  return "";
}

const char* text_of(MemberPhase phase) {
  switch (phase) {
    case MemberPhase::kWatches:
      return "watches";
    case MemberPhase::kWaits:
      return "waits";
    case MemberPhase::kWorks:
      return "works";
    case MemberPhase::kFinished:
      return "finished";
    case MemberPhase::kFailed:
      return "failed";
    case MemberPhase::kFoundDone:
      return "takes no part";
  }
  return "";
}

std::optional<double> seconds_since_heard(const MemberEntry& member) {
  if (member.age_ms == std::numeric_limits<std::uint32_t>::max()) return std::nullopt;
  return member.age_ms / 1000.0;
}

std::optional<double> seconds_quiet(const MemberEntry& member) {
  if (member.traffic.quiet_ms == Traffic::kNever) return std::nullopt;
  return static_cast<double>(member.traffic.quiet_ms) / 1000.0;
}

std::string waited_for(const MemberList& list, const MemberEntry& member) {
  const bool is_over = list.phase >= JobPhase::kDone;
  if (is_over || member.phase == MemberPhase::kFinished || has_left(list, member)) return "";
  if (member.incarnation == 0) return "is not here yet";
  if (member.age_ms > kSilentMs) return "is silent";
  if (list.phase == JobPhase::kRuns && list.generation > 0 && !list.established &&
      member.newest.generation > 0 && member.newest.generation < list.generation) {
    return "begins";
  }
  if (is_quietest(list, member)) {
    return fmt::format("sent nothing for {:.1f} s, the longest of all", *seconds_quiet(member));
  }
  return "";
}

std::string prometheus_text(const MemberList& list) {
  PrometheusText text;
  text.begin_gauge("tersewire_job_runs", "1 if the job is running, 0 if not.");
  text.add(list.phase == JobPhase::kRuns ? 1 : 0);
  text.begin_gauge("tersewire_generation", "Number of the newest list of members.");
  text.add(list.generation);
  text.begin_gauge("tersewire_workers", "Workers in that list; all nodes where ranks are fixed.");
  text.add(list.workers);
  text.begin_gauge("tersewire_servers", "Servers in that list, if members come and go.");
  text.add(list.servers);
  text.begin_gauge("tersewire_waiting_members", "Members that wait to be in the next list.");
  text.add(static_cast<double>(list.waiting.size()));
  text.begin_counter("tersewire_lost_members_total", "Members lost with their residuals.");
  text.add(static_cast<double>(list.lost));
  text.begin_gauge("tersewire_lost_residual_norm",
                   "L2 norm of the residuals of all lost members together.");
  text.add(list.lost_norm);
  const auto add = [&](auto&& read) {
    for (const auto* entries : {&list.members, &list.waiting}) {
      for (const MemberEntry& member : *entries) text.add("member", member.name, read(member));
    }
  };
  if (list.members.empty() && list.waiting.empty()) return text.text();
  text.begin_gauge("tersewire_member_heard_seconds",
                   "Seconds since the hub last heard from the member.");
  add([](const MemberEntry& member) {
    return seconds_since_heard(member).value_or(std::numeric_limits<double>::quiet_NaN());
  });
  text.begin_gauge("tersewire_member_quiet_seconds",
                   "Seconds since the member last sent part of a message.");
  add([](const MemberEntry& member) {
    return seconds_quiet(member).value_or(std::numeric_limits<double>::quiet_NaN());
  });
  text.begin_gauge("tersewire_member_step", "The newest step whose state the member holds.");
  add([](const MemberEntry& member) { return static_cast<double>(member.newest.step); });
  text.begin_gauge("tersewire_member_waited_for",
                   "1 if the job is waiting for the member, 0 if not.");
  add([&](const MemberEntry& member) { return waited_for(list, member).empty() ? 0.0 : 1.0; });
  text.begin_counter("tersewire_member_sent_bytes_total",
                     "Message bytes received from the member.");
  add([](const MemberEntry& member) { return static_cast<double>(member.traffic.sent_bytes); });
  text.begin_counter("tersewire_member_received_bytes_total", "Message bytes sent to the member.");
  add([](const MemberEntry& member) { return static_cast<double>(member.traffic.received_bytes); });
  return text.text();
}

}  // namespace tersewire::apps
