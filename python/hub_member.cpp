#include "python/hub_member.h"

#include <fmt/format.h>

#include <utility>

#include "python/interruptible.h"
#include "tersewire/communicator.h"
#include "trainer/members/hand_over.h"

namespace tersewire::python {

template <typename Call>
auto HubMember::wait(const Call& call) {
  try {
    return interruptible([self = shared_from_this(), call] { return call(*self); });
  } catch (const pybind11::error_already_set&) {
    interrupted_ = true;  // the call goes on by itself
    throw;
  }
}

std::unique_ptr<HubEnd> HubMember::join() {
  if (interrupted_) {
    throw Error(ErrorCode::kFailedPrecondition,
                "this rank was interrupted while it waited for others; start it again");
  }
  auto network = wait([](HubMember& self) { return self.join_next(); });
  return network ? std::make_unique<HubEnd>(std::move(network), limits_, hub_) : nullptr;
}

std::unique_ptr<Transport> HubMember::join_next() {
  for (;;) {
    if (list_.generation > 0 && !told_) member_->end(list_.generation, {});
    list_ = member_->await(list_.generation);
    told_ = false;
    if (list_.phase == JobPhase::kDone) return nullptr;
    if (list_.phase == JobPhase::kEnded) throw Error(ErrorCode::kAborted, list_.reason);
    const auto rank = list_.rank_of(member_->incarnation());
    if (!rank) return nullptr;  // it was to leave, and had nothing
    try {
      auto network = join_listed(*rank);
      if (network || left_) return network;
    } catch (const Error& error) {
      if (!goes_on_after(error.code(), error.what())) throw;
    }
  }
}

// Nothing for one that only hands over what it has.
std::unique_ptr<Transport> HubMember::join_listed(int rank) {
  const int workers = static_cast<int>(list_.workers);
  auto network = std::make_unique<trainer::NodesNetwork>(member_->join(list_), workers);
  network->expect_at_most(longest_);
  begun_.reset();
  const auto own = held_.find(list_.base);
  had_it_ = own != nullptr;
  if (!had_it_ && !held_.empty()) {  // the others have gone on without it
    held_.clear();
    member_->holds({});
  }
  if (list_.base.generation > 0) {
    begun_ = trainer::HandOver(list_, rank).run(*network, own, Job::kColocated, limits_);
  }
  if (rank < workers) return network;
  const MemberList then = member_->await_end(list_.generation);
  left_ =
      then.phase == JobPhase::kDone || (then.generation == list_.generation && then.established);
  return nullptr;
}

const trainer::StoredArray* HubMember::find_begun(const std::string& name) const {
  if (!begun_) return nullptr;
  const auto& arrays = begun_->nodes.front().arrays;
  const auto found = arrays.find(fmt::format("{}/{}", trainer::kSharedGroup, name));
  return found == arrays.end() ? nullptr : &found->second;
}

std::size_t HubMember::elems_of(const std::string& name) const {
  const trainer::StoredArray* const found = find_begun(name);
  return found == nullptr ? 0 : found->elems;
}

void HubMember::begin_with(const std::string& name, std::span<float> values) const {
  const std::size_t elems = elems_of(name);
  if (elems != values.size()) {
    throw Error(ErrorCode::kDataLoss,
                fmt::format("{} values of the shared {} were handed over, and this model has {}; "
                            "run one script and one version everywhere",
                            elems, name, values.size()));
  }
  if (elems > 0) find_begun(name)->read(0, values);
}

void HubMember::hold(trainer::NodeCheckpoint checkpoint, const std::string& push_codec) {
  held_.keep(list_.generation, std::move(checkpoint), push_codec);
  member_->holds(held_.told());
}

bool HubMember::goes_on() const {
  const MemberList now = member_->look();
  return now.phase == JobPhase::kRuns && now.generation <= list_.generation;
}

void HubMember::settle() {
  wait([](HubMember& self) { self.member_->await_settled(self.list_.generation); });
}

void HubMember::finish() {
  member_->finish();
  try {
    wait([](HubMember& self) { self.member_->await_end(self.list_.generation); });
  } catch (const Error&) {
    return;  // nobody is left to wait for
  }
}

bool HubMember::goes_on_after(ErrorCode code, const std::string& sentence) {
  told_ = true;
  switch (code) {
    case ErrorCode::kAborted:  // what others have said they know
      member_->end(list_.generation, {});
      return true;
    case ErrorCode::kUnavailable:
    case ErrorCode::kDeadlineExceeded:
      member_->end(list_.generation, sentence);
      return true;
    default:
      member_->give_up(sentence);
      return false;
  }
}

void HubMember::close() {
  if (interrupted_) return;  // a call still needs it
  auto member = std::move(member_);
  const pybind11::gil_scoped_release released;  // leave() may be called from here on
  member.reset();
}

}  // namespace tersewire::python
