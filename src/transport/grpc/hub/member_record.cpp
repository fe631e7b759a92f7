#include "member_record.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "byte_io.h"
#include "ends.h"
#include "errors.h"
#include "grpc_record.h"

namespace tersewire {
namespace {

constexpr std::uint64_t kJournalMark = 0x334C4E524A425554;  // "TUBJRNL3"
constexpr std::uint64_t kRanksMark = 0x3152524E4A425554;    // "TUBJNRR1"
constexpr std::uint32_t kNoRank = 0xffffffff;

void append_text(Bytes& out, const std::string& text) {
  append_value(out, static_cast<std::uint16_t>(text.size()));
  append(out, text.data(), text.size());
}

void append_boundary(Bytes& out, const Boundary& boundary) {
  append_value(out, boundary.generation);
  append_value(out, boundary.step);
}

void append_reason(Bytes& out, const std::string& reason) {
  append_text(out, reason.substr(0, kMostReasonBytes));
}

[[noreturn]] void refuse(const std::string& what) {
  fail(ErrorCode::kDataLoss, "{}; run one version everywhere", what);
}

// What both kinds are made of.
class Fields {
 public:
  explicit Fields(ByteView data) : reader_(data) {}

  template <typename T>
  T number() {
    return reader_.read<T>("a field of a list of members");
  }
  template <typename T>
  T number_up_to(T most) {
    const T value = number<T>();
    if (value > most)
      refuse(fmt::format("a list of members has {} where {} is the maximum",
                         static_cast<std::uint64_t>(value), static_cast<std::uint64_t>(most)));
    return value;
  }
  double norm() {
    const auto value = number<double>();
    if (!(value >= 0 && value <= kMostNorm)) {
      refuse(fmt::format("a list of members has {} where a norm belongs", value));
    }
    return value;
  }
  bool flag() { return number_up_to<std::uint8_t>(1) == 1; }
  template <typename Phase>
  Phase phase(Phase last) {
    return static_cast<Phase>(number_up_to(static_cast<std::uint8_t>(last)));
  }
  Boundary boundary() {
    Boundary boundary;
    boundary.generation = number<std::uint32_t>();
    boundary.step = number<std::uint64_t>();
    return boundary;
  }
  std::string text(std::size_t most) {
    const auto size = number_up_to(static_cast<std::uint16_t>(most));
    const ByteView bytes = reader_.take(size, "a text of a list of members");
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  // Or a rank, which a list of a job that does not change has for a name.
  std::string name() {
    std::string name = text(kMostNameBytes);
    if (!name.empty() && !is_plain(name)) refuse("a member's name is not valid");
    return name;
  }
  std::optional<std::uint32_t> rank() {
    const auto rank = number<std::uint32_t>();
    return rank == kNoRank ? std::nullopt : std::optional(rank);
  }
  // So many things of at least `bytes` each.
  std::size_t count(std::size_t most, std::size_t bytes) {
    const auto count = number_up_to(static_cast<std::uint32_t>(most));
    if (count > reader_.left() / bytes) refuse("a list of members is cut off");
    return count;
  }
  void finish() const {
    if (reader_.left() > 0) {
      refuse(fmt::format("a list of members has {} bytes too many", reader_.left()));
    }
  }

 private:
  ByteReader reader_;
};

constexpr std::size_t kBoundaryBytes = 12;
constexpr std::size_t kKeptStateBytes = kBoundaryBytes + 8;
constexpr std::size_t kLeastEntryBytes = 2 + 8 + 4 + 1 + 1 + kBoundaryBytes + 1 + 4;
constexpr std::size_t kLeastPlaceBytes = 2 + 8 + 4;

// Whether the first of them are so many workers, and the next so many servers.
template <typename Places>
bool are_in_order(const Places& places, std::uint32_t workers, std::uint32_t servers) {
  if (workers > places.size() || servers > places.size() - workers) return false;
  for (std::size_t rank = 0; rank < workers + servers; ++rank) {
    if (places[rank].serves != (rank >= workers)) return false;
  }
  return true;
}

void append_entries(Bytes& out, const std::vector<MemberEntry>& entries) {
  append_value(out, static_cast<std::uint32_t>(entries.size()));
  for (const MemberEntry& entry : entries) {
    append_text(out, entry.name);
    append_value(out, entry.incarnation);
    append_value(out, entry.age_ms);
    append_value(out, entry.phase);
    append_value(out, static_cast<std::uint8_t>(entry.leaving));
    append_boundary(out, entry.newest);
    append_value(out, static_cast<std::uint8_t>(entry.serves));
    append_value(out, entry.base_rank.value_or(kNoRank));
  }
}

std::vector<MemberEntry> entries_in(Fields& fields) {
  std::vector<MemberEntry> entries(fields.count(kMostMembers, kLeastEntryBytes));
  for (MemberEntry& entry : entries) {
    entry.name = fields.name();
    entry.incarnation = fields.number<std::uint64_t>();
    entry.age_ms = fields.number<std::uint32_t>();
    entry.phase = fields.phase(MemberPhase::kFailed);
    entry.leaving = fields.flag();
    entry.newest = fields.boundary();
    entry.serves = fields.flag();
    entry.base_rank = fields.rank();
  }
  return entries;
}

}  // namespace

bool is_plain(std::string_view text) {
  return std::ranges::all_of(
      text, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
}

bool is_member_name(std::string_view name) {
  return name.size() <= kMostNameBytes && name != "hub" && is_plain(name) &&
         std::ranges::any_of(name, [](char c) { return c >= 'a' && c <= 'z'; });
}

void check_member_name(std::string_view name) {
  if (is_member_name(name)) return;
  fail(ErrorCode::kInvalidArgument,
       "'{}' is not a valid member name; use 1 to {} letters a to z, digits and hyphens, with at "
       "least one letter, and not 'hub'",
       name, kMostNameBytes);
}

Bytes member_data(const MemberSays& says) {
  Bytes data;
  append_value(data, says.incarnation);
  append_value(data, says.fingerprint);
  append_value(data, says.phase);
  append_value(data, static_cast<std::uint8_t>(says.leaving));
  append_value(data, static_cast<std::uint8_t>(says.over));
  append_value(data, static_cast<std::uint8_t>(says.hangs));
  append_value(data, static_cast<std::uint8_t>(says.serves));
  append_value(data, says.servers);
  append_value(data, says.generation);
  append_value(data, static_cast<std::uint32_t>(says.held.size()));
  for (const KeptState& state : says.held) {
    append_boundary(data, state.at);
    append_value(data, state.undelivered);
  }
  append_text(data, says.name);
  append_reason(data, says.reason);
  return data;
}

MemberSays parse_member(ByteView data) {
  Fields fields(data);
  MemberSays says;
  says.incarnation = fields.number<std::uint64_t>();
  says.fingerprint = fields.number<std::uint64_t>();
  says.phase = fields.phase(MemberPhase::kFoundDone);
  says.leaving = fields.flag();
  says.over = fields.flag();
  says.hangs = fields.flag();
  says.serves = fields.flag();
  says.servers = fields.number_up_to(static_cast<std::uint32_t>(kMostMembers));
  says.generation = fields.number<std::uint32_t>();
  says.held.resize(fields.count(kMostHeld, kKeptStateBytes));
  for (KeptState& state : says.held) {
    state.at = fields.boundary();
    state.undelivered = fields.norm();
  }
  says.name = fields.name();
  says.reason = fields.text(kMostReasonBytes);
  fields.finish();
  const bool watches = says.phase == MemberPhase::kWatches;
  const bool may_be_rank = says.phase == MemberPhase::kFoundDone && !says.name.empty();
  if (watches ? !says.name.empty() : !may_be_rank && !is_member_name(says.name)) {
    refuse(fmt::format("'{}' is not a valid member name", says.name));
  }
  if (!std::ranges::is_sorted(says.held, {}, &KeptState::at))
    refuse("a member's states are out of order");
  if (says.serves && says.servers == 0) refuse("a member serves in a job without servers");
  return says;
}

Bytes list_data(const MemberList& list) {
  Bytes data;
  append_value(data, list.generation);
  append_value(data, list.phase);
  append_value(data, static_cast<std::uint8_t>(list.closes));
  append_value(data, static_cast<std::uint8_t>(list.last));
  append_value(data, static_cast<std::uint8_t>(list.established));
  append_boundary(data, list.base);
  append_value(data, list.base_workers);
  append_value(data, list.base_servers);
  append_value(data, list.workers);
  append_value(data, list.servers);
  append_value(data, list.lost);
  append_value(data, list.lost_norm);
  append_entries(data, list.members);
  append_entries(data, list.waiting);
  append_reason(data, list.reason);
  return data;
}

MemberList parse_list(ByteView data) {
  Fields fields(data);
  MemberList list;
  list.generation = fields.number<std::uint32_t>();
  list.phase = fields.phase(JobPhase::kEnded);
  list.closes = fields.flag();
  list.last = fields.flag();
  list.established = fields.flag();
  list.base = fields.boundary();
  list.base_workers = fields.number_up_to(static_cast<std::uint32_t>(kMostMembers));
  list.base_servers = fields.number_up_to(static_cast<std::uint32_t>(kMostMembers));
  list.workers = fields.number<std::uint32_t>();
  list.servers = fields.number<std::uint32_t>();
  list.lost = fields.number<std::uint64_t>();
  list.lost_norm = fields.norm();
  list.members = entries_in(fields);
  list.waiting = entries_in(fields);
  list.reason = fields.text(kMostReasonBytes);
  fields.finish();
  if (!are_in_order(list.members, list.workers, list.servers)) {
    refuse("the members of a list are not its workers and then its servers");
  }
  std::vector<bool> taken(list.base_workers + list.base_servers);
  for (const MemberEntry& member : list.members) {
    if (!member.base_rank) continue;
    if (*member.base_rank >= taken.size() || taken[*member.base_rank] ||
        member.serves != (*member.base_rank >= list.base_workers)) {
      refuse(fmt::format("'{}' had no place of its own", member.name));
    }
    taken[*member.base_rank] = true;
  }
  return list;
}

Bytes traffic_data(const MemberList& list) {
  Bytes data;
  for (const auto* entries : {&list.members, &list.waiting}) {
    for (const MemberEntry& entry : *entries) {
      const auto& [sent, received, sent_rate, received_rate, quiet] = entry.traffic;
      for (const std::uint64_t number : {sent, received, sent_rate, received_rate, quiet}) {
        append_value(data, number);
      }
    }
  }
  return data;
}

void parse_traffic(ByteView data, MemberList& list) {
  Fields fields(data);
  for (auto* const entries : {&list.members, &list.waiting}) {
    for (MemberEntry& entry : *entries) {
      auto& [sent, received, sent_rate, received_rate, quiet] = entry.traffic;
      for (std::uint64_t* const number : {&sent, &received, &sent_rate, &received_rate, &quiet}) {
        *number = fields.number<std::uint64_t>();
      }
    }
  }
  fields.finish();
}

namespace {

// Puts a checksum behind it.
Bytes summed(Bytes bytes) {
  append_value(bytes, std::uint64_t{XXH3_64bits(bytes.data(), bytes.size())});
  return bytes;
}

[[noreturn]] void refuse_journal(const char* kind) {
  fail(ErrorCode::kDataLoss,
       "the journal is not that of a hub {} and of this version; start the hub as before, or name "
       "another",
       kind);
}

ByteView checked(ByteView bytes) {
  constexpr std::size_t kSum = sizeof(std::uint64_t);
  std::uint64_t sum = 0;
  if (bytes.size() >= kSum) std::memcpy(&sum, bytes.data() + bytes.size() - kSum, kSum);
  if (bytes.size() < kSum || sum != XXH3_64bits(bytes.data(), bytes.size() - kSum)) {
    fail(ErrorCode::kDataLoss,
         "the journal is not a hub's, or is damaged; remove it to start the job again");
  }
  return bytes.first(bytes.size() - kSum);
}

}  // namespace

Bytes journal_bytes(const std::vector<RankRecord>& ranks) {
  Bytes bytes;
  append_value(bytes, kRanksMark);
  append_value(bytes, static_cast<std::uint32_t>(ranks.size()));
  for (const RankRecord& rank : ranks) {
    append_value(bytes, static_cast<std::uint8_t>(rank.incarnation.has_value()));
    append_value(bytes, rank.incarnation.value_or(0));
    append_value(bytes, static_cast<std::uint8_t>(rank.left));
  }
  return summed(std::move(bytes));
}

std::vector<RankRecord> parse_rank_journal(ByteView bytes) {
  Fields fields(checked(bytes));
  if (fields.number<std::uint64_t>() != kRanksMark) refuse_journal("with fixed ranks");
  std::vector<RankRecord> ranks(fields.count(kMostMembers, 10));
  for (RankRecord& rank : ranks) {
    const bool came = fields.flag();
    const auto incarnation = fields.number<std::uint64_t>();
    if (came) rank.incarnation = incarnation;
    rank.left = fields.flag();
  }
  fields.finish();
  return ranks;
}

Bytes journal_bytes(const Journal& journal) {
  Bytes bytes;
  append_value(bytes, kJournalMark);
  append_value(bytes, journal.fingerprint);
  append_value(bytes, journal.generation);
  append_value(bytes, journal.phase);
  append_value(bytes, static_cast<std::uint8_t>(journal.last));
  append_boundary(bytes, journal.base);
  append_value(bytes, journal.lost);
  append_value(bytes, journal.lost_norm);
  append_reason(bytes, journal.reason);
  append_value(bytes, static_cast<std::uint32_t>(journal.rolls.size()));
  for (const auto& [generation, roll] : journal.rolls) {
    append_value(bytes, generation);
    append_value(bytes, roll.workers);
    append_value(bytes, roll.servers);
    append_value(bytes, static_cast<std::uint32_t>(roll.places.size()));
    for (const Roll::Place& place : roll.places) {
      append_text(bytes, place.name);
      append_value(bytes, place.incarnation);
      append_value(bytes, static_cast<std::uint8_t>(place.serves));
      append_value(bytes, place.base_rank.value_or(kNoRank));
    }
  }
  return summed(std::move(bytes));
}

Journal parse_journal(ByteView bytes) {
  Fields fields(checked(bytes));
  Journal journal;
  if (fields.number<std::uint64_t>() != kJournalMark) refuse_journal("whose members come and go");
  journal.fingerprint = fields.number<std::uint64_t>();
  journal.generation = fields.number<std::uint32_t>();
  journal.phase = fields.phase(JobPhase::kEnded);
  journal.last = fields.flag();
  journal.base = fields.boundary();
  journal.lost = fields.number<std::uint64_t>();
  journal.lost_norm = fields.norm();
  journal.reason = fields.text(kMostReasonBytes);
  for (std::size_t left = fields.count(kMostMembers, 12); left > 0; --left) {
    const auto generation = fields.number<std::uint32_t>();
    Roll& roll = journal.rolls[generation];
    roll.workers = fields.number<std::uint32_t>();
    roll.servers = fields.number<std::uint32_t>();
    roll.places.resize(fields.count(kMostMembers, kLeastPlaceBytes));
    for (Roll::Place& place : roll.places) {
      place.name = fields.name();
      place.incarnation = fields.number<std::uint64_t>();
      place.serves = fields.flag();
      place.base_rank = fields.rank();
    }
    if (!are_in_order(roll.places, roll.workers, roll.servers)) {
      refuse("the places of a journal are not those of its workers and then of its servers");
    }
  }
  fields.finish();
  const auto has = [&](std::uint32_t generation) {
    return generation == 0 || journal.rolls.contains(generation);
  };
  if (!has(journal.generation) || !has(journal.base.generation)) {
    refuse("a journal lacks its own generation");
  }
  return journal;
}

}  // namespace tersewire
