#include "membership.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>

#include "errors.h"
#include "tersewire/counted.h"

namespace tersewire {
namespace {

using std::chrono::milliseconds;

// A hub that looks so much later than the last time was suspended, or had no processor.
constexpr std::chrono::seconds kLate(1);
// One that was to leave and could, and says nothing for so long, has left. It says something every
// quarter of a second.
constexpr std::chrono::seconds kGone(3);
// Deadlines for which it waits for members that are all silent.
constexpr int kAllSilent = 4;
// Generations in a row that may fail while a member is given a state: it would stop the others for
// ever.
constexpr int kMostTries = 5;

Roll::Place place_of(const MemberSays& says) {
  return {.name = says.name, .incarnation = says.incarnation, .serves = says.serves};
}

double seconds(Membership::Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

Membership::Membership(const MembershipLimits& limits, ByteView journal, Clock::time_point now)
    : limits_(limits), silence_(limits.deadline) {
  if (limits.least < 1 || limits.first < limits.least || limits.most < limits.first ||
      static_cast<std::size_t>(limits.most) > kMostMembers / 2) {
    fail(ErrorCode::kInvalidArgument,
         "a job that begins with {} cannot have at least {} and at most {}; the least is from 1 to "
         "those that it begins with, and the most from there to {}",
         counted(limits.first, "worker"), limits.least, limits.most, kMostMembers / 2);
  }
  if (limits.servers < 0 || limits.servers > static_cast<int>(kMostMembers / 2) - limits.most) {
    fail(ErrorCode::kInvalidArgument,
         "a job of up to {} cannot have {}; use 0 or more, and no more than {} nodes",
         counted(limits.most, "worker"), counted(limits.servers, "server"), kMostMembers / 2);
  }
  if (limits.deadline && *limits.deadline < milliseconds(1)) {
    fail(ErrorCode::kInvalidArgument, "members cannot be given up after {} ms; use at least 1",
         limits.deadline->count());
  }
  if (limits.join_steps < 1) {
    fail(ErrorCode::kInvalidArgument, "members cannot join every 0 steps; use at least 1");
  }
  if (journal.empty()) return;
  journal_ = parse_journal(journal);
  if (journal_.phase == JobPhase::kDone || journal_.phase == JobPhase::kEnded) {
    fail(ErrorCode::kFailedPrecondition,
         "the journal is of a job that is over; remove it, or name another");
  }
  if (journal_.generation == 0) return;
  if ((roll().servers > 0) != (limits.servers > 0)) {
    fail(
        ErrorCode::kFailedPrecondition,
        "the journal is of a job with {}, and this hub is for {}; start it with the --servers that "
        "it had",
        counted(roll().servers, "server"), limits.servers);
  }
  for (const Roll::Place& place : roll().places) {
    known_[place.name] = {.says = {.name = place.name,
                                   .incarnation = place.incarnation,
                                   .fingerprint = journal_.fingerprint,
                                   .phase = MemberPhase::kWorks,
                                   .serves = place.serves,
                                   .servers = static_cast<std::uint32_t>(limits.servers),
                                   .generation = journal_.generation},
                          .heard = now};
  }
  events_.push_back(fmt::format("the journal knows generation {}", journal_.generation));
}

const Roll& Membership::roll() const { return journal_.rolls.at(journal_.generation); }

const Membership::Known* Membership::known(const Roll::Place& place) const {
  const auto found = known_.find(place.name);
  if (found == known_.end() || found->second.says.incarnation != place.incarnation) return nullptr;
  return &found->second;
}

const Membership::Known* Membership::live(const Roll::Place& place, Clock::time_point now) const {
  const Known* const member = known(place);
  return member != nullptr && is_live(*member, now) ? member : nullptr;
}

bool Membership::is_listed(const Roll::Place& place) const {
  return journal_.generation > 0 && std::ranges::find(roll().places, place) != roll().places.end();
}

const KeptState* Membership::held(const Known& member, const Boundary& at) {
  const auto found = std::ranges::find(member.says.held, at, &KeptState::at);
  return found == member.says.held.end() ? nullptr : &*found;
}

Boundary Membership::newest(const Known& member) const {
  for (auto held = member.says.held.rbegin(); held != member.says.held.rend(); ++held) {
    if (journal_.rolls.contains(held->at.generation)) return held->at;
  }
  return {};
}

std::optional<std::uint32_t> Membership::base_rank(const Roll::Place& place) const {
  const auto base = journal_.rolls.find(journal_.base.generation);
  const Known* const member = known(place);
  if (base == journal_.rolls.end() || member == nullptr) return std::nullopt;
  const auto nodes = base->second.nodes();
  const auto found = std::ranges::find(nodes, place);
  if (found == nodes.end() || found->serves != place.serves) return std::nullopt;
  if (!held(*member, journal_.base)) return std::nullopt;
  return static_cast<std::uint32_t>(found - nodes.begin());
}

void Membership::hear(const MemberSays& says, Clock::time_point now) {
  const Roll::Place place = place_of(says);
  const auto found = known_.find(says.name);
  if (found != known_.end() && known(place) == nullptr && is_live(found->second, now)) {
    fail(ErrorCode::kUnavailable,
         "another process is '{}' of this job; give each a name of its own, or wait {:.3g} s, "
         "after which that one is given up",
         says.name, seconds(silence_.limit()));
  }
  if (std::cmp_not_equal(says.servers, limits_.servers)) {
    fail(ErrorCode::kFailedPrecondition,
         "'{}' is of a job with {}, and this hub is for {}; give both the same --servers",
         says.name, counted(says.servers, "server"), limits_.servers);
  }
  if (journal_.generation == 0 && newcomers(now).empty()) journal_.fingerprint = says.fingerprint;
  if (says.fingerprint != journal_.fingerprint) {
    fail(ErrorCode::kFailedPrecondition,
         "'{}' was started with other arguments, other data or another version than this job; give "
         "all its members the same",
         says.name);
  }
  if (const auto away = turned_away_.find(says.incarnation); away != turned_away_.end()) {
    fail(ErrorCode::kFailedPrecondition,
         "'{}' could not be given the others' state, and is turned away after {} attempts: {}",
         says.name, kMostTries, away->second);
  }
  if (says.generation > journal_.generation) {
    fail(
        ErrorCode::kFailedPrecondition,
        "'{}' is of generation {}, and this hub knows of none after {}: start it with its journal, "
        "or start all nodes again",
        says.name, says.generation, journal_.generation);
  }
  if (found == known_.end() && known_.size() == kMostMembers) {
    std::erase_if(known_, [&](const auto& member) {
      return !is_live(member.second, now) && !is_listed(place_of(member.second.says));
    });
    if (known_.size() == kMostMembers) {
      fail(ErrorCode::kResourceExhausted,
           "{} processes have asked to be members already; check who they are", kMostMembers);
    }
  }
  if (known(place) == nullptr) {
    events_.push_back(fmt::format("'{}' is here", says.name));
    told_.erase(says.name);
    if (found != known_.end() && is_listed(place_of(found->second.says))) {
      replaced_[found->second.says.incarnation] = found->second;
    }
  } else {
    silence_.note(now - found->second.heard);
  }
  const bool leaves = says.leaving && (known(place) == nullptr || !known(place)->says.leaving);
  if (leaves) events_.push_back(fmt::format("'{}' is to leave", says.name));
  known_[says.name] = {.says = says, .heard = now};
  advance(now);
}

void Membership::find_done(const std::string& name, Clock::time_point now) {
  if (!is_member_name(name)) {
    fail(ErrorCode::kFailedPrecondition, "'{}' is not the name of a member of this job", name);
  }
  if (journal_.phase == JobPhase::kDone) return;
  if (journal_.generation > 0 || journal_.phase != JobPhase::kGathers) {
    fail(ErrorCode::kFailedPrecondition, "the job has begun and is not done; look at its --out");
  }
  if (found_done_.size() == kMostMembers || !found_done_.insert(name).second) return;
  events_.push_back(fmt::format("'{}' finds that the job is done already", name));
  const auto first = static_cast<std::size_t>(limits_.first + limits_.servers);
  if (found_done_.size() + newcomers(now).size() < first) return;
  if (!newcomers(now).empty()) return;
  journal_.phase = JobPhase::kDone;
  told_.clear();
}

void Membership::put_out(const Roll::Place& place, const std::string& reason,
                         Clock::time_point now) {
  if (known(place) == nullptr) return;
  known_[place.name].heard = now - 2 * kAllSilent * silence_.limit();
  events_.push_back(fmt::format("'{}' is removed: {}", place.name, reason));
  if (is_listed(place)) end_generation(fmt::format("'{}' is removed: {}", place.name, reason));
  advance(now);
}

void Membership::tick(Clock::time_point now) {
  // While the hub stood still it could hear nobody.
  if (ticked_ && now - *ticked_ > kLate) {
    for (auto& [name, member] : known_) {
      member.heard = std::min(now, member.heard + (now - *ticked_));
    }
  }
  ticked_ = now;
  advance(now);
}

void Membership::advance(Clock::time_point now) {
  if (journal_.phase == JobPhase::kRuns) look_at_generation(now);
  if (journal_.phase == JobPhase::kGathers) gather(now);
}

void Membership::end_generation(const std::string& reason) {
  if (journal_.phase != JobPhase::kRuns) return;
  if (journal_.last) return end(reason);
  if (rank_0_has_finished()) return end_done();
  journal_.phase = JobPhase::kGathers;
  journal_.reason = reason;
  wanted_at_.reset();
  events_.push_back(fmt::format("generation {} is over: {}", journal_.generation, reason));
}

void Membership::end(const std::string& reason) {
  if (journal_.phase == JobPhase::kDone || journal_.phase == JobPhase::kEnded) return;
  journal_.phase = JobPhase::kEnded;
  journal_.reason = reason;
  told_.clear();
  events_.push_back("the job is ended: " + reason);
}

void Membership::end_done() {
  journal_.phase = JobPhase::kDone;
  told_.clear();
  events_.push_back(fmt::format("'{}' has ended the job", roll().places.front().name));
}

bool Membership::rank_0_has_finished() const {
  const Known* const member = known(roll().places.front());
  return member != nullptr && member->says.generation == journal_.generation &&
         member->says.phase == MemberPhase::kFinished;
}

void Membership::look_at_generation(Clock::time_point now) {
  const std::uint32_t generation = journal_.generation;
  const auto is_in_it = [&](const Known& member) { return member.says.generation == generation; };
  if (!established_ && reached()) {
    established_ = true;
    tries_.clear();
    events_.push_back(fmt::format("generation {} has begun", generation));
  }
  bool all_finished = true;
  for (std::size_t rank = 0; rank < roll().places.size(); ++rank) {
    const Roll::Place& place = roll().places[rank];
    const bool works = rank < roll().nodes().size();
    const Known* const known_one = known(place);
    // Who has reported all is not needed any more.
    const bool finished = known_one != nullptr && is_in_it(*known_one) &&
                          known_one->says.phase == MemberPhase::kFinished;
    const Known* const member = finished ? known_one : live(place, now);
    all_finished = all_finished && (finished || !works);
    if (member != nullptr && member->says.phase == MemberPhase::kFailed) {
      return end(fmt::format("'{}' has failed: {}", place.name, member->says.reason));
    }
    // What one who leaves had to hand over is in the others' states.
    if (!works && established_) continue;
    if (member == nullptr) {
      const bool hangs = known_one != nullptr && known_one->says.hangs;
      if (hangs) return end_generation(known_one->says.reason);
      return end_generation(fmt::format("'{}' has not been heard for {:.3g} s{}", place.name,
                                        seconds(silence_.limit()), silence_.reason()));
    }
    if (is_in_it(*member) && member->says.over) {
      return end_generation(member->says.reason.empty()
                                ? fmt::format("it is over for '{}'", place.name)
                                : member->says.reason);
    }
  }
  if (journal_.last && all_finished) return end(journal_.reason);
  if (!journal_.last && rank_0_has_finished()) {
    // The others may still be taking what it has sent.
    if (all_finished) end_done();
    return;
  }
  look_for_changes(now);
}

// Who is to come or go does so once all have reached another state, and who comes where that is
// past a multiple of so many steps: little is computed twice.
void Membership::look_for_changes(Clock::time_point now) {
  const auto all = reached();
  if (!all || journal_.last) return;
  std::string change;
  std::uint64_t apart = 1;
  for (const Roll::Place& place : roll().nodes()) {
    const Known* const member = known(place);
    if (member != nullptr && member->says.leaving) change = fmt::format("'{}' leaves", place.name);
  }
  const std::vector<Roll::Place> waiting = newcomers(now);
  const auto has_room = [&](const Roll::Place& place) {
    return place.serves ? std::cmp_less(roll().servers, limits_.servers)
                        : std::cmp_less(roll().workers, limits_.most);
  };
  const auto joins = std::ranges::find_if(waiting, has_room);
  if (change.empty() && joins != waiting.end()) {
    change = fmt::format("'{}' joins", joins->name);
    apart = limits_.join_steps;
  }
  at_next_state_ = apart == 1;
  if (change.empty()) {
    wanted_at_.reset();
  } else if (!wanted_at_) {
    wanted_at_ = all;
  } else if (*wanted_at_ < *all && wanted_at_->step / apart < all->step / apart) {
    end_generation(change);
  }
}

std::optional<Boundary> Membership::reached() const {
  std::optional<Boundary> least;
  for (const Roll::Place& place : roll().nodes()) {
    const Known* const member = known(place);
    const Boundary held = member == nullptr ? Boundary() : newest(*member);
    if (held.generation != journal_.generation) return std::nullopt;
    least = std::min(least.value_or(held), held);
  }
  return least;
}

std::vector<Roll::Place> Membership::newcomers(Clock::time_point now) const {
  std::vector<Roll::Place> places;
  for (const auto& [name, member] : known_) {
    const Roll::Place place = place_of(member.says);
    if (is_live(member, now) && member.says.phase == MemberPhase::kWaits && !member.says.leaving &&
        !is_listed(place) && !turned_away_.contains(place.incarnation)) {
      places.push_back(place);
    }
  }
  return places;
}

// Waits until the generation is over for everyone who is left of it.
void Membership::gather(Clock::time_point now) {
  std::vector<Roll::Place> survivors;
  if (journal_.generation > 0) {
    // Who goes on longer than rank 0 found that it had left before the hub heard that it is
    // through.
    if (rank_0_has_finished()) return end_done();
    for (std::size_t rank = 0; rank < roll().places.size(); ++rank) {
      const Roll::Place& place = roll().places[rank];
      const Known* const member = live(place, now);
      const bool has_gone = rank >= roll().nodes().size() && established_;
      if (member == nullptr || has_gone) continue;
      if (member->says.phase == MemberPhase::kFailed) {
        return end(fmt::format("'{}' has failed: {}", place.name, member->says.reason));
      }
      const bool is_out = member->says.over && member->says.generation == journal_.generation;
      // In it, or not yet.
      if (!is_out) return;
      survivors.push_back(place);
    }
    const bool there_was_one = established_ || journal_.base.generation > 0;
    const bool no_server = there_was_one && limits_.servers > 0 && !holds_any(survivors, true);
    if (survivors.empty() || no_server || (there_was_one && !holds_any(survivors, false))) {
      // Where all that have the model are silent at once it may be the network, and they come back.
      const auto was_heard = [&](const Roll::Place& place) {
        if (std::ranges::find(survivors, place) != survivors.end()) return false;
        const Known* const member = known(place);
        return member != nullptr && now - member->heard < kAllSilent * silence_.limit();
      };
      if (std::ranges::any_of(roll().places, was_heard)) return;
      return end(fmt::format(
          "no {} is left ({}); start the hub and all nodes again, without the journal, and with "
          "--resume if there are checkpoints",
          no_server ? "server" : "member that had the model", journal_.reason));
    }
  }
  if (are_enough(survivors, now)) form(survivors, now);
}

// Whether a job can begin with them and those who wait, or go on.
bool Membership::are_enough(const std::vector<Roll::Place>& survivors,
                            Clock::time_point now) const {
  const std::vector<Roll::Place> waiting = newcomers(now);
  const auto servers = std::ranges::count_if(waiting, &Roll::Place::serves);
  if (journal_.generation == 0) {
    return std::ssize(waiting) - servers >= limits_.first && servers >= limits_.servers;
  }
  return limits_.servers == 0 || servers > 0 ||
         std::ranges::any_of(survivors, &Roll::Place::serves);
}

bool Membership::holds_any(const std::vector<Roll::Place>& places, bool serves) const {
  return std::ranges::any_of(places, [&](const Roll::Place& place) {
    return place.serves == serves && newest(*known(place)).generation > 0;
  });
}

// The newest state that each who holds any holds: each keeps the last ones. Where they have none in
// common, the oldest of their newest. Workers' states are of no use without a server's: all begin
// anew.
void Membership::choose_base(const std::vector<Roll::Place>& survivors) {
  if (limits_.servers > 0 && !holds_any(survivors, true)) {
    journal_.base = {};
    return;
  }
  std::vector<std::reference_wrapper<const Known>> holders;
  std::optional<Boundary> oldest;
  for (const Roll::Place& place : survivors) {
    const Known& member = *known(place);
    const Boundary newest_held = newest(member);
    if (newest_held.generation == 0) continue;
    holders.emplace_back(member);
    oldest = std::min(oldest.value_or(newest_held), newest_held);
  }
  journal_.base = oldest.value_or(Boundary());
  if (holders.empty()) return;
  const auto& of_first = holders.front().get().says.held;
  for (auto state = of_first.rbegin(); state != of_first.rend(); ++state) {
    const auto holds = [&](const Known& member) { return held(member, state->at) != nullptr; };
    if (!journal_.rolls.contains(state->at.generation)) continue;
    if (!std::ranges::all_of(holders, holds)) continue;
    journal_.base = state->at;
    return;
  }
}

// Those who hold the state go on in their order, behind them who has to be given it.
void Membership::form(const std::vector<Roll::Place>& survivors, Clock::time_point now) {
  choose_base(survivors);
  std::vector<Roll::Place> all = survivors;
  for (const Roll::Place& place : newcomers(now)) all.push_back(place);
  std::vector<Roll::Place> staying;
  std::vector<Roll::Place> leaving;
  std::vector<Roll::Place> without;
  for (Roll::Place& place : all) {
    place.base_rank = base_rank(place);
    const bool leaves = known(place)->says.leaving;
    if (place.base_rank) {
      (leaves ? leaving : staying).push_back(place);
    } else if (!leaves && !turns_away(place)) {
      without.push_back(place);
    }
  }
  std::ranges::sort(staying, {}, &Roll::Place::base_rank);
  std::ranges::sort(leaving, {}, &Roll::Place::base_rank);
  Roll next;
  const auto add = [&next](bool serve, const std::vector<Roll::Place>& some, std::size_t most) {
    std::uint32_t& count = serve ? next.servers : next.workers;
    for (const Roll::Place& place : some) {
      if (place.serves != serve || count >= most) continue;
      next.places.push_back(place);
      ++count;
    }
  };
  for (const bool serve : {false, true}) {
    add(serve, staying, kMostMembers);
    add(serve, without, static_cast<std::size_t>(serve ? limits_.servers : limits_.most));
  }
  const bool lacks_server = limits_.servers > 0 && next.servers == 0;
  journal_.last = std::cmp_less(next.workers, limits_.least) || lacks_server;
  if (journal_.last) {
    journal_.reason =
        lacks_server ? fmt::format("no server is left ({})", journal_.reason)
                     : fmt::format("{} left, and the job needs {} ({})",
                                   next.workers == 1 ? "1 worker is"
                                                     : fmt::format("{} workers are", next.workers),
                                   limits_.least, journal_.reason);
    // All who have the model save it.
    next = {};
    for (const bool serve : {false, true}) {
      add(serve, staying, kMostMembers);
      add(serve, leaving, kMostMembers);
    }
    leaving.clear();
    if (next.workers == 0 || (limits_.servers > 0 && next.servers == 0)) {
      return end(journal_.reason);
    }
  }
  next.places.insert(next.places.end(), leaving.begin(), leaving.end());
  tell_losses(next.places);
  begin(std::move(next));
}

bool Membership::turns_away(const Roll::Place& place) {
  const auto tries = tries_.find(place.incarnation);
  if (tries == tries_.end() || tries->second < kMostTries) return false;
  turned_away_[place.incarnation] = journal_.reason;
  events_.push_back(
      fmt::format("'{}' is turned away, to which {} generations could not give a state", place.name,
                  kMostTries));
  return true;
}

void Membership::begin(Roll next) {
  const auto named = [&next](bool serve) {
    std::string names;
    for (const Roll::Place& place : next.nodes()) {
      if (place.serves == serve) names += (names.empty() ? "" : ", ") + place.name;
    }
    return names;
  };
  std::string who = fmt::format("{}: {}", counted(next.workers, "worker"), named(false));
  if (next.servers > 0) {
    who += fmt::format("; {}: {}", counted(next.servers, "server"), named(true));
  }
  for (const Roll::Place& place : next.places) {
    if (journal_.base.generation > 0 && !place.base_rank) ++tries_[place.incarnation];
  }
  ++journal_.generation;
  journal_.phase = JobPhase::kRuns;
  journal_.rolls[journal_.generation] = std::move(next);
  std::erase_if(journal_.rolls, [&](const auto& one) {
    return one.first != journal_.generation &&
           (journal_.base.generation == 0 || one.first < journal_.base.generation);
  });
  established_ = false;
  replaced_.clear();
  events_.push_back(fmt::format("generation {} goes on after step {} with {}", journal_.generation,
                                journal_.base.step, who));
}

// Of whom the last generation's end has cost.
void Membership::tell_losses(const std::vector<Roll::Place>& had) {
  if (journal_.base.generation == 0) return;
  for (const Roll::Place& place : journal_.rolls.at(journal_.base.generation).nodes()) {
    const auto found = std::ranges::find(had, place);
    if (found != had.end() && found->base_rank) continue;
    if (std::ranges::find(lost_, place) != lost_.end()) continue;
    lost_.push_back(place);
    ++journal_.lost;
    const auto replaced = replaced_.find(place.incarnation);
    const Known* const member = replaced == replaced_.end() ? known(place) : &replaced->second;
    const KeptState* state = member ? held(*member, journal_.base) : nullptr;
    // What it held last it may not have told.
    if (member && !state && !member->says.held.empty()) state = &member->says.held.back();
    if (state) {
      journal_.lost_norm = std::min(std::hypot(journal_.lost_norm, state->undelivered), kMostNorm);
    }
    events_.push_back(fmt::format(
        "'{}' is lost after step {}, and with it what it had not yet delivered: its residual, {}",
        place.name, journal_.base.step,
        !state ? "which the hub does not know"
        : state->at == journal_.base
            ? fmt::format("of norm {:.3g}", state->undelivered)
            : fmt::format("of norm {:.3g} after step {}", state->undelivered, state->at.step)));
  }
}

MemberEntry Membership::entry(const Roll::Place& place, Clock::time_point now) const {
  MemberEntry entry{.name = place.name,
                    .incarnation = place.incarnation,
                    .age_ms = 0xffffffff,
                    .serves = place.serves,
                    .base_rank = place.base_rank};
  if (const Known* const member = known(place)) {
    const auto age = std::chrono::duration_cast<milliseconds>(now - member->heard).count();
    entry.age_ms = static_cast<std::uint32_t>(std::clamp<std::int64_t>(age, 0, 0xfffffffe));
    entry.phase = member->says.phase;
    entry.leaving = member->says.leaving;
    entry.newest = newest(*member);
  }
  return entry;
}

MemberList Membership::list(Clock::time_point now) const {
  MemberList list{.generation = journal_.generation,
                  .phase = journal_.phase,
                  .closes = wanted_at_.has_value() && at_next_state_,
                  .last = journal_.last,
                  .established = established_,
                  .base = journal_.base,
                  .lost = journal_.lost,
                  .lost_norm = journal_.lost_norm,
                  .reason = journal_.reason};
  const auto base = journal_.rolls.find(journal_.base.generation);
  if (base != journal_.rolls.end()) {
    list.base_workers = base->second.workers;
    list.base_servers = base->second.servers;
  }
  if (journal_.generation > 0) {
    list.workers = roll().workers;
    list.servers = roll().servers;
    for (const Roll::Place& place : roll().places) list.members.push_back(entry(place, now));
  }
  for (const Roll::Place& place : newcomers(now)) {
    if (list.waiting.size() < kMostMembers / 2) list.waiting.push_back(entry(place, now));
  }
  return list;
}

bool Membership::is_over(Clock::time_point now) const {
  if (journal_.phase != JobPhase::kDone && journal_.phase != JobPhase::kEnded) return false;
  return std::ranges::all_of(known_, [&](const auto& member) {
    return told_.contains(member.first) || !is_live(member.second, now) ||
           has_left(member.second, now);
  });
}

bool Membership::has_left(const Known& member, Clock::time_point now) const {
  const auto nodes = journal_.generation == 0 ? std::span<const Roll::Place>() : roll().nodes();
  return member.says.leaving && now - member.heard > kGone &&
         std::ranges::find(nodes, place_of(member.says)) == nodes.end();
}

}  // namespace tersewire
