#include "mpi_thread.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <new>
#include <thread>
#include <utility>

#include "errors.h"

namespace tersewire {
namespace {

using namespace std::chrono_literals;

// A larger message travels in pieces: MPI counts bytes in an int.
constexpr std::size_t kPieceBytes = std::size_t{1} << 24;
// Pieces that MPI is given at once for one rank. What it tests after each pause is bounded by that.
constexpr int kMaxUnderway = 16;
constexpr std::size_t kMostUnconfirmed = std::size_t{1} << 16;
// Messages that are accepted before those underway are looked after again.
constexpr int kMaxProbes = 64;

// MPI can only be asked, so the thread asks again and again: without a pause for a moment after
// something moved, then with pauses that grow with the time for which nothing did. A message waits
// for at most this part of the time since the last one, and an idle rank costs next to nothing.
constexpr auto kAwake = 100us;
constexpr int kPauseFraction = 16;
constexpr std::chrono::nanoseconds kShortestPause = 20us;
constexpr std::chrono::nanoseconds kLongestPause = 2ms;
// Where a send or a receive is underway: a large one needs MPI to be called for it to go on.
constexpr std::chrono::nanoseconds kLongestPauseUnderway = 100us;

// Signs of life: at most a thousand a second.
constexpr std::chrono::nanoseconds kSignIntervalOfARank = 1ms;
// Where progress was interrupted for longer, by a signal or for want of a processor, silence of
// others is this rank's deafness.
constexpr auto kInterruption = 500ms;

// Once MPI has started something, it has to be written down without fail.
template <typename T>
void make_room(std::vector<T>& list) {
  if (list.size() == list.capacity()) list.reserve(2 * list.size() + 16);
}

}  // namespace

bool MpiThread::run(std::promise<MpiPlace>& place) noexcept {
  // Pauses as short as they are meant: by default Linux makes each 50 us longer.
  prctl(PR_SET_TIMERSLACK, 1000UL);
  try {
    enter();
  } catch (...) {
    place.set_exception(std::current_exception());
    return true;
  }
  place.set_value(place_);
  carry();
  try {
    leave();
  } catch (const std::exception& error) {
    mailbox_->fail(ErrorCode::kUnavailable, error.what(), false);
  }
  if (may_finalize_) MPI_Finalize();
  return may_finalize_;
}

void MpiThread::enter() {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized != 0) {
    fail(ErrorCode::kFailedPrecondition,
         "MPI is already initialised in this process; leave that to transport 'mpi'");
  }
  int provided = MPI_THREAD_SINGLE;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_FUNNELED) {
    MPI_Finalize();
    fail(ErrorCode::kFailedPrecondition,
         "this MPI library was built without support for threads; use one that was built with it");
  }
  check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(MPI_COMM_WORLD, &place_.rank), "MPI_Comm_rank");
  check(MPI_Comm_size(MPI_COMM_WORLD, &place_.size), "MPI_Comm_size");
  destinations_.resize(static_cast<std::size_t>(place_.size));
  sources_.resize(static_cast<std::size_t>(place_.size));
  mailbox_->join(place_);
  sign_interval_ =
      std::max<std::chrono::nanoseconds>(kAliveEvery, kSignIntervalOfARank * place_.size);
  turned_at_ = Clock::now();
  moved();
}

void MpiThread::carry() {
  for (bool leaving = false; !leaving;) {
    Orders orders = next_orders();
    leaving = orders.leave;
    try {
      obey(std::move(orders));
      progress();
    } catch (const std::bad_alloc&) {
      mailbox_->fail(ErrorCode::kResourceExhausted,
                     fmt::format("rank {} has no memory left for the messages that it is sent; use "
                                 "a machine with more",
                                 place_.rank),
                     true);
    } catch (const Error& error) {
      mailbox_->fail(error.code(), error.what(), true);
    }
  }
}

// All ranks leave together, as MPI_Finalize() asks for, which waits for ever where one has gone:
// so the ranks meet beforehand, and where they do not in time MPI stays as it is.
void MpiThread::leave() {
  auto until = Clock::now() + limits_.progress_limit;
  bool hurry = false;
  const auto in_time = [&] {
    const auto now = Clock::now();
    if (!hurry && mailbox_->failed()) {
      hurry = true;
      until = std::min(until, now + kLongestFarewell);
    }
    return now < until && (hurry || !mailbox_->misses_one(limits_.deadline));
  };
  const auto turn = [&] {
    obey(next_orders());
    progress();
  };
  while (sends_left()) {
    if (!in_time()) return;
    turn();
  }
  for (int to = 0; to < place_.size; ++to) {
    if (to != place_.rank) tell(to, Tag::kLeft);
  }
  MPI_Request all_here = MPI_REQUEST_NULL;
  check(MPI_Ibarrier(MPI_COMM_WORLD, &all_here), "MPI_Ibarrier");
  for (int met = 0;;) {
    check(MPI_Test(&all_here, &met, MPI_STATUS_IGNORE), "MPI_Test");
    // A reason that this rank has still to tell others is told by a send.
    if (met != 0 && !sends_left()) break;
    if (!in_time()) return;
    turn();
  }
  may_finalize_ = true;
}

// What is to be done, after the pause that is due.
Orders MpiThread::next_orders() {
  // Alone there is nothing to ask MPI for.
  if (place_.size == 1) return mailbox_->collect(1s);
  const auto idle = Clock::now() - moved_at_;
  if (idle < kAwake) {
    std::this_thread::yield();
    return mailbox_->collect(0s);
  }
  const bool underway = !sends_.empty() || !receives_.empty();
  return mailbox_->collect(std::clamp<std::chrono::nanoseconds>(
      idle / kPauseFraction, kShortestPause, underway ? kLongestPauseUnderway : kLongestPause));
}

void MpiThread::obey(Orders orders) {
  if (!orders.any()) return;
  moved();
  for (const Outgoing& message : orders.messages) queue(message);
  if (orders.abort) tell_abort(*orders.abort);
}

void MpiThread::queue(const Outgoing& message) {
  auto& waiting = destinations_[static_cast<std::size_t>(message.to)].waiting;
  const std::size_t size = message.bytes->size();
  if (size > kPieceBytes) {
    Bytes announced(sizeof(std::uint64_t));
    const std::uint64_t number = size;
    std::memcpy(announced.data(), &number, sizeof(number));
    waiting.push_back({std::make_shared<const Bytes>(std::move(announced)), 0, sizeof(number),
                       Tag::kSize, message.to});
  }
  std::size_t offset = 0;
  for (; size - offset > kPieceBytes; offset += kPieceBytes) {
    waiting.push_back({message.bytes, offset, kPieceBytes, Tag::kPart, message.to});
  }
  waiting.push_back({message.bytes, offset, size - offset, Tag::kEnd, message.to});
}

// What has not been given to MPI is dropped: nobody waits for it any more.
void MpiThread::tell_abort(const std::string& reason) {
  const auto* text = reinterpret_cast<const std::byte*>(reason.data());
  const auto bytes =
      std::make_shared<const Bytes>(text, text + std::min(reason.size(), kPieceBytes));
  for (int to = 0; to < place_.size; ++to) {
    destinations_[static_cast<std::size_t>(to)].waiting.clear();
    if (to == place_.rank) continue;
    try {
      start({bytes, 0, bytes->size(), Tag::kAbort, to});
    } catch (const Error&) {
      // It cannot be reached; the others are to hear all the same.
    }
  }
}

void MpiThread::progress() {
  if (place_.size == 1) return;
  const auto interruption = Clock::now() - turned_at_;
  if (interruption > kInterruption) mailbox_->excuse(interruption);
  turned_at_ += interruption;
  give_sign_of_life();
  start_sends();
  finish_sends();
  start_receives();
  finish_receives();
}

// To those that have heard nothing else for a while.
void MpiThread::give_sign_of_life() {
  for (int to = 0; to < place_.size; ++to) {
    const auto quiet = turned_at_ - destinations_[static_cast<std::size_t>(to)].sent_at;
    if (to != place_.rank && quiet >= sign_interval_) tell(to, Tag::kAlive);
  }
}

// Its tag is all that it says.
void MpiThread::tell(int to, Tag tag) {
  static const SharedBytes nothing = std::make_shared<const Bytes>();
  start({nothing, 0, 0, tag, to});
}

void MpiThread::start_sends() {
  for (Destination& destination : destinations_) {
    while (!destination.waiting.empty() && destination.underway < kMaxUnderway) {
      Piece piece = std::move(destination.waiting.front());
      destination.waiting.pop_front();
      start(std::move(piece));
    }
  }
}

// Whether it counts as sent when its receiver has it, and not when MPI has. A reason does: the
// sender may be about to end. And one piece of so many bytes, since MPI keeps small messages for a
// receiver that takes none, any number of them.
bool MpiThread::confirmed(const Piece& piece) {
  if (piece.tag == Tag::kAbort) return true;
  std::size_t& unconfirmed = destinations_[static_cast<std::size_t>(piece.to)].unconfirmed;
  unconfirmed += piece.size;
  if (unconfirmed < kMostUnconfirmed) return false;
  unconfirmed = 0;
  return true;
}

void MpiThread::start(Piece piece) {
  const auto send = confirmed(piece) ? MPI_Issend : MPI_Isend;
  make_room(send_requests_);
  make_room(sends_);
  MPI_Request request = MPI_REQUEST_NULL;
  check(send(piece.bytes->data() + piece.offset, static_cast<int>(piece.size), MPI_BYTE, piece.to,
             static_cast<int>(piece.tag), MPI_COMM_WORLD, &request),
        "MPI_Isend");
  Destination& destination = destinations_[static_cast<std::size_t>(piece.to)];
  ++destination.underway;
  destination.sent_at = turned_at_;
  // A sign of life is no reason to look for more.
  if (piece.tag != Tag::kAlive) moved();
  send_requests_.push_back(request);
  sends_.push_back(std::move(piece));
}

// Leaves in finished_ the indices of the requests that are done, highest first.
void MpiThread::finish(std::vector<MPI_Request>& requests, const char* what) {
  finished_.resize(requests.size());
  statuses_.resize(requests.size());
  int count = 0;
  const int code = MPI_Testsome(static_cast<int>(requests.size()), requests.data(), &count,
                                finished_.data(), statuses_.data());
  finished_.resize(count == MPI_UNDEFINED ? 0 : static_cast<std::size_t>(count));
  if (code == MPI_ERR_IN_STATUS) {
    for (int i = 0; i < count; ++i) check(statuses_[static_cast<std::size_t>(i)].MPI_ERROR, what);
  }
  check(code, what);
  std::ranges::sort(finished_, std::greater<>());
}

void MpiThread::finish_sends() {
  if (sends_.empty()) return;
  finish(send_requests_, "sending");
  for (const int index : finished_) {
    const auto i = static_cast<std::size_t>(index);
    --destinations_[static_cast<std::size_t>(sends_[i].to)].underway;
    if (sends_[i].tag != Tag::kAlive) moved();
    if (sends_[i].tag == Tag::kPart || sends_[i].tag == Tag::kEnd) {
      mailbox_->sent(sends_[i].to, sends_[i].size);
    }
    std::swap(sends_[i], sends_.back());
    std::swap(send_requests_[i], send_requests_.back());
    sends_.pop_back();
    send_requests_.pop_back();
  }
}

void MpiThread::start_receives() {
  // Open MPI looks at what has arrived, and then at its network: the second call in vain tells.
  int in_vain = 0;
  for (int i = 0; i < kMaxProbes && in_vain < 2; ++i) {
    int found = 0;
    MPI_Message matched = MPI_MESSAGE_NULL;
    MPI_Status status;
    check(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, &matched, &status),
          "MPI_Improbe");
    in_vain = found != 0 ? 0 : in_vain + 1;
    if (found != 0) start_receive(matched, status);
  }
}

void MpiThread::start_receive(MPI_Message& matched, const MPI_Status& status) {
  const int from = status.MPI_SOURCE;
  int size = 0;
  check(MPI_Get_count(&status, MPI_BYTE, &size), "MPI_Get_count");
  const bool known = status.MPI_TAG >= static_cast<int>(Tag::kEnd) &&
                     status.MPI_TAG <= static_cast<int>(Tag::kLeft);
  if (!known || size < 0 || static_cast<std::size_t>(size) > kPieceBytes) {
    refuse(from, fmt::format("{} bytes under tag {}", size, status.MPI_TAG));
  }
  const auto tag = static_cast<Tag>(status.MPI_TAG);
  mailbox_->hear(from);
  if (tag == Tag::kAlive || tag == Tag::kLeft) return take_sign(matched, from, tag, size);
  if (tag == Tag::kSize) return take_size(matched, from, static_cast<std::size_t>(size));

  make_room(receive_requests_);
  make_room(receives_);
  std::byte* room = room_for(static_cast<std::size_t>(size), tag, from);
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Imrecv(room, size, MPI_BYTE, &matched, &request), "MPI_Imrecv");
  receive_requests_.push_back(request);
  receives_.push_back({from, &sources_[static_cast<std::size_t>(from)].arriving.back()});
  moved();
}

void MpiThread::take_sign(MPI_Message& matched, int from, Tag tag, int size) {
  if (size != 0) refuse(from, fmt::format("{} bytes where none belong", size));
  check(MPI_Mrecv(nullptr, 0, MPI_BYTE, &matched, MPI_STATUS_IGNORE), "MPI_Mrecv");
  if (tag == Tag::kLeft) mailbox_->see_off(from);
}

// Eight bytes come with their announcement, so receiving them does not wait.
void MpiThread::take_size(MPI_Message& matched, int from, std::size_t size) {
  std::uint64_t number = 0;
  if (size != sizeof(number)) refuse(from, "an announcement of another size");
  check(MPI_Mrecv(&number, sizeof(number), MPI_BYTE, &matched, MPI_STATUS_IGNORE), "MPI_Mrecv");
  Source& source = sources_[static_cast<std::size_t>(from)];
  if (source.announced || number <= kPieceBytes || number > mailbox_->longest_message()) {
    refuse(from, fmt::format("the announcement of {} bytes", number));
  }
  source.announced = std::make_shared<Bytes>(number);
  source.begun = 0;
}

// Where a piece goes, written down as the last one that is arriving from there.
std::byte* MpiThread::room_for(std::size_t size, Tag tag, int from) {
  Source& source = sources_[static_cast<std::size_t>(from)];
  if (tag == Tag::kAbort || !source.announced) {
    if (tag == Tag::kPart) refuse(from, "a part of no message");
    source.arriving.push_back({std::make_shared<Bytes>(size), tag});
    return source.arriving.back().bytes->data();
  }
  const std::size_t left = source.announced->size() - source.begun;
  if (tag == Tag::kEnd ? size != left : size >= left) {
    refuse(from, fmt::format("{} bytes where {} were left of a message", size, left));
  }
  source.arriving.push_back({source.announced, tag});
  std::byte* room = source.announced->data() + source.begun;
  source.begun += size;
  if (tag == Tag::kEnd) source.announced.reset();
  return room;
}

void MpiThread::refuse(int from, const std::string& what) {
  fail(ErrorCode::kDataLoss,
       "rank {} sent {}, which transport 'mpi' of this version does not; start the same program on "
       "every rank",
       from, what);
}

void MpiThread::finish_receives() {
  if (receives_.empty()) return;
  finish(receive_requests_, "receiving");
  for (const int index : finished_) {
    const auto i = static_cast<std::size_t>(index);
    const int from = receives_[i].from;
    mailbox_->hear(from);
    moved();
    Arriving& arrived = *receives_[i].arriving;
    arrived.complete = true;
    // At once: what came before it may be large and slow.
    if (arrived.tag == Tag::kAbort) hear_abort(*arrived.bytes);
    std::swap(receives_[i], receives_.back());
    std::swap(receive_requests_[i], receive_requests_.back());
    receives_.pop_back();
    receive_requests_.pop_back();
    hand_over(from);
  }
}

void MpiThread::hear_abort(const Bytes& reason) {
  for (Destination& destination : destinations_) destination.waiting.clear();
  const auto* text = reinterpret_cast<const char*>(reason.data());
  mailbox_->fail(ErrorCode::kAborted, std::string(text, reason.size()), false);
}

// What is complete and has nothing incomplete before it.
void MpiThread::hand_over(int from) {
  auto& arriving = sources_[static_cast<std::size_t>(from)].arriving;
  while (!arriving.empty() && arriving.front().complete) {
    Arriving arrived = std::move(arriving.front());
    arriving.pop_front();
    if (arrived.tag != Tag::kEnd) continue;
    mailbox_->deliver({.from = from, .bytes = std::move(arrived.bytes)});
  }
}

void MpiThread::check(int code, const char* what) const {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "unknown error";
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail(ErrorCode::kUnavailable,
       "rank {}: MPI failed ({}: {}); check whether a node or its network is down", place_.rank,
       what, text);
}

bool MpiThread::sends_left() const {
  return !sends_.empty() || std::ranges::any_of(destinations_, [](const Destination& destination) {
    return !destination.waiting.empty();
  });
}

}  // namespace tersewire
