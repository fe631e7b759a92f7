// What members and hub of a changing job tell each other, and what the hub keeps of it
// (spec/relay-format.md, "Members"). No gRPC here.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tersewire/grpc_members.h"

namespace tersewire {

inline constexpr std::size_t kMostHeld = 4;
// Of residuals; more than any has.
inline constexpr double kMostNorm = 1e100;
inline constexpr std::size_t kMostNameBytes = 40;
// Letters a to z, digits and hyphens: what names, and ranks as texts, are made of.
bool is_plain(std::string_view text);
// Whether a member may have this name.
bool is_member_name(std::string_view name);
// Throws kInvalidArgument where it may not.
void check_member_name(std::string_view name);

// Of the nodes, those who leave, and those who wait.
inline constexpr std::size_t kMostMembers = 2048;

struct MemberSays {
  std::string name;  // empty: of one that watches
  std::uint64_t incarnation = 0;
  std::uint64_t fingerprint = 0;
  MemberPhase phase = MemberPhase::kWatches;
  bool leaving = false;
  bool over = false;   // the generation is, for it
  bool hangs = false;  // its process lives, and does nothing of the job; the reason says how long
  bool serves = false;
  std::uint32_t servers = 0;         // of its job, beside the workers
  std::uint32_t generation = 0;      // that it is or was in; 0: none
  std::vector<KeptState> held = {};  // oldest first
  std::string reason = {};           // where it has failed, or the generation is over because of it

  bool operator==(const MemberSays&) const = default;
};
Bytes member_data(const MemberSays& says);
// Throw kDataLoss.
MemberSays parse_member(ByteView data);

Bytes list_data(const MemberList& list);
MemberList parse_list(ByteView data);

// Of all in the list, those who wait behind the members.
Bytes traffic_data(const MemberList& list);
void parse_traffic(ByteView data, MemberList& list);

// A generation, as the journal has it.
struct Roll {
  struct Place {
    std::string name;
    std::uint64_t incarnation = 0;
    bool serves = false;
    std::optional<std::uint32_t> base_rank = {};  // as in MemberEntry

    // Whether it is the same process.
    bool operator==(const Place& other) const {
      return name == other.name && incarnation == other.incarnation;
    }
  };
  std::uint32_t workers = 0;
  std::uint32_t servers = 0;
  std::vector<Place> places;  // by rank: workers, servers, those who leave

  // Workers and servers.
  [[nodiscard]] std::span<const Place> nodes() const {
    return std::span(places).first(workers + servers);
  }
  bool operator==(const Roll&) const = default;
};

struct Journal {
  std::uint64_t fingerprint = 0;
  std::uint32_t generation = 0;
  JobPhase phase = JobPhase::kGathers;
  bool last = false;
  Boundary base;
  std::uint64_t lost = 0;
  double lost_norm = 0;  // of what they had not yet delivered
  std::string reason;
  std::map<std::uint32_t, Roll> rolls;  // by generation, from the base's on

  bool operator==(const Journal&) const = default;
};
Bytes journal_bytes(const Journal& journal);
// Of a job whose ranks are fixed.
struct RankRecord {
  std::optional<std::uint64_t> incarnation;  // of who has come
  bool left = false;

  bool operator==(const RankRecord&) const = default;
};
Bytes journal_bytes(const std::vector<RankRecord>& ranks);
// Throws as the next one.
std::vector<RankRecord> parse_rank_journal(ByteView bytes);
// Throws kDataLoss for what is damaged, too.
Journal parse_journal(ByteView bytes);

}  // namespace tersewire
