// A rank of a hub's job whose ranks come and go, for PyTorch: from one generation of them to the
// next, and with what each of those begins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "python/hub_end.h"
#include "tersewire/error.h"
#include "tersewire/grpc_members.h"
#include "trainer/files/checkpoint.h"
#include "trainer/members/held_states.h"

namespace tersewire::python {

// One thread at a time, with the GIL, which is released while others are waited for; leave() comes
// from any. After close() only leave() is called.
class HubMember : public std::enable_shared_from_this<HubMember> {
 public:
  // `longest`: more bytes no member has to hand over. Throws like GrpcMember().
  HubMember(const GrpcMember::Settings& settings, std::size_t longest)
      : limits_(settings.limits),
        hub_("the hub at " + settings.hub),
        longest_(longest),
        member_(std::make_unique<GrpcMember>(settings)) {}

  // Waits for the next generation that this rank is in, and for what its members hand over. Nothing
  // where the job is done, or this rank has left it. Throws kAborted with the reason where the job
  // has ended, kDataLoss for what is no state, and otherwise like GrpcMember::await().
  std::unique_ptr<HubEnd> join();

  // Of the generation that it is in: the first of `members` are its ranks.
  [[nodiscard]] const MemberList& list() const { return list_; }
  // What the generation begins with; nothing where that is the beginning.
  [[nodiscard]] const std::optional<trainer::JobCheckpoint>& begun_with() const { return begun_; }
  // Whether this rank had that already.
  [[nodiscard]] bool had_it() const { return had_it_; }
  // How many values all ranks begin with alike under this name; 0 where there are none.
  [[nodiscard]] std::size_t elems_of(const std::string& name) const;
  // Fills `values` with them. Throws kDataLoss where they are of another length.
  void begin_with(const std::string& name, std::span<float> values) const;

  // Keeps a state to go on from; the last two are kept. `push_codec` is Job::push_codec.
  void hold(trainer::NodeCheckpoint checkpoint, const std::string& push_codec);
  // Whether the generation goes on, as far as is known without waiting.
  [[nodiscard]] bool goes_on() const;
  // Whether it is over after the next state that all have, as far as is known without waiting.
  [[nodiscard]] bool closes() const { return member_->look().closes; }
  // Waits until the hub has said whether it goes on with what this rank holds.
  void settle();
  // Tells the hub that a generation has failed here. Whether the job may go on without those to
  // whom that is due; otherwise it is over on every rank. Without the GIL.
  bool goes_on_after(ErrorCode code, const std::string& sentence);
  // Whether the script does something of its own: GrpcMember::be_away().
  void be_away(bool away) { member_->be_away(away); }
  // After its next state. Does nothing after close().
  void leave() {
    if (member_) member_->leave();
  }
  // All is done here: waits until it is so on all ranks, or the job is over, or the hub is gone.
  void finish();
  // Tells the hub nothing more: what it does not know by then, it takes for death.
  void close();

 private:
  [[nodiscard]] const trainer::StoredArray* find_begun(const std::string& name) const;
  std::unique_ptr<Transport> join_next();
  std::unique_ptr<Transport> join_listed(int rank);
  // What call(*this) returns, in which Ctrl-C is heard.
  template <typename Call>
  auto wait(const Call& call);

  const WaitLimits limits_;
  const std::string hub_;
  const std::size_t longest_;
  std::unique_ptr<GrpcMember> member_;
  MemberList list_;
  std::optional<trainer::JobCheckpoint> begun_;
  bool had_it_ = false;
  bool told_ = false;  // that its generation is over
  bool left_ = false;
  bool interrupted_ = false;
  // A generation's first state, and the one before it, which all go back to where not all have
  // that.
  trainer::HeldStates held_{2};
};

}  // namespace tersewire::python
