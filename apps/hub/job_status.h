// How the job of a hub stands, in words and as Prometheus fetches it.
#pragma once

#include <optional>
#include <string>

#include "tersewire/grpc_members.h"

namespace tersewire::apps {

const char* text_of(JobPhase phase);
const char* text_of(MemberPhase phase);

// Nothing where the hub has not heard it.
std::optional<double> seconds_since_heard(const MemberEntry& member);

// Since something of a message came from it; nothing where none has come.
std::optional<double> seconds_quiet(const MemberEntry& member);

// Why the job does not go on without this one now; empty where it does.
std::string waited_for(const MemberList& list, const MemberEntry& member);

std::string prometheus_text(const MemberList& list);

}  // namespace tersewire::apps
