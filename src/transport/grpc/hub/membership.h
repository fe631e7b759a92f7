// The rules by which a hub makes generations of the members of a job (spec/relay-format.md,
// "Members"). No gRPC, no threads, and no clock of its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "member_record.h"
#include "silence_limit.h"

namespace tersewire {

class Membership {
 public:
  using Clock = std::chrono::steady_clock;

  // Throws kInvalidArgument for limits that make no sense, kDataLoss for a journal that is none,
  // and kFailedPrecondition for that of a job that is over.
  // Whom that knows has the deadline to be heard from again.
  Membership(const MembershipLimits& limits, ByteView journal, Clock::time_point now);

  // Throws kFailedPrecondition for a member that is none of this job's, kUnavailable while another
  // process has its name, and kResourceExhausted where there are too many.
  void hear(const MemberSays& says, Clock::time_point now);
  // For what comes of nobody saying anything: four times a second.
  void tick(Clock::time_point now);
  // One that was to begin the job finds that it is done already. When all do, it is.
  void find_done(const std::string& name, Clock::time_point now);
  // This process is given up at once. That it is not heard again is the caller's care.
  void put_out(const Roll::Place& place, const std::string& reason, Clock::time_point now);
  // Where one runs, it is over.
  void end_generation(const std::string& reason);
  // The job is over.
  void end(const std::string& reason);

  [[nodiscard]] MemberList list(Clock::time_point now) const;
  // Whether everyone who is there has been told that the job is over; `told` after list().
  void told(const std::string& name) { told_[name] = true; }
  [[nodiscard]] bool is_over(Clock::time_point now) const;

  [[nodiscard]] const Journal& journal() const { return journal_; }
  // What has happened since the last call.
  std::vector<std::string> take_events() { return std::exchange(events_, {}); }

 private:
  struct Known {
    MemberSays says;
    Clock::time_point heard;
  };

  void advance(Clock::time_point now);
  // The job is done.
  void end_done();
  [[nodiscard]] bool rank_0_has_finished() const;
  void look_at_generation(Clock::time_point now);
  void look_for_changes(Clock::time_point now);
  void gather(Clock::time_point now);
  [[nodiscard]] bool are_enough(const std::vector<Roll::Place>& survivors,
                                Clock::time_point now) const;
  void form(const std::vector<Roll::Place>& survivors, Clock::time_point now);
  void begin(Roll next);
  void choose_base(const std::vector<Roll::Place>& survivors);
  void tell_losses(const std::vector<Roll::Place>& had);

  [[nodiscard]] const Known* known(const Roll::Place& place) const;
  [[nodiscard]] bool is_live(const Known& member, Clock::time_point now) const {
    return now - member.heard < silence_.limit() && !member.says.hangs;
  }
  // Whether it has nothing more to do in the job, and has gone.
  [[nodiscard]] bool has_left(const Known& member, Clock::time_point now) const;
  [[nodiscard]] const Known* live(const Roll::Place& place, Clock::time_point now) const;
  [[nodiscard]] const Roll& roll() const;
  // Null where it holds none.
  [[nodiscard]] static const KeptState* held(const Known& member, const Boundary& at);
  // The newest state that it holds and that a generation can begin with; generation 0: none.
  [[nodiscard]] Boundary newest(const Known& member) const;
  [[nodiscard]] bool holds_any(const std::vector<Roll::Place>& places, bool serves) const;
  // Of one who holds the state that the next generation begins with.
  [[nodiscard]] std::optional<std::uint32_t> base_rank(const Roll::Place& place) const;
  // The newest that all nodes of this generation hold; none where one of them holds none of it.
  [[nodiscard]] std::optional<Boundary> reached() const;
  [[nodiscard]] bool is_listed(const Roll::Place& place) const;
  // Whether it was to be given a state often enough.
  [[nodiscard]] bool turns_away(const Roll::Place& place);
  // Those who wait to join, by name.
  [[nodiscard]] std::vector<Roll::Place> newcomers(Clock::time_point now) const;
  [[nodiscard]] MemberEntry entry(const Roll::Place& place, Clock::time_point now) const;

  MembershipLimits limits_;
  SilenceLimit silence_;
  Journal journal_;
  std::map<std::string, Known> known_;  // by name
  // Members of the last generation, by incarnation, whose name another process has now.
  std::map<std::uint64_t, Known> replaced_;
  std::map<std::string, bool> told_;
  std::set<std::string> found_done_;
  // By incarnation, the generations in which a member was to be given a state, since one began.
  std::map<std::uint64_t, int> tries_;
  std::map<std::uint64_t, std::string> turned_away_;  // and why
  std::optional<Clock::time_point> ticked_;
  bool established_ = false;
  // Where a change is wanted: what all had reached when it was, and whether the next state is the
  // one for it.
  std::optional<Boundary> wanted_at_;
  bool at_next_state_ = false;
  std::vector<Roll::Place> lost_;  // that have been counted
  std::vector<std::string> events_;
};

}  // namespace tersewire
