// Where a run ends. All its nodes must end after the same step, and one of them may be asked to end
// it sooner than it would: in one process by who notices that first, between processes by rank 0,
// when it has asked all others how far they are, in messages of the transport that only the trainer
// reads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tersewire/passing_transport.h"

namespace tersewire::trainer {

// What nodes say to each other of it.
enum class StopWord : std::uint64_t {
  kWish,    // to rank 0: this node is asked to end the run
  kAsk,     // of rank 0, to all: say how far you are, and go no further until you hear more
  kAnswer,  // to rank 0, once for each question
  kLast,    // of rank 0, to all: where the run ends
};
struct StopMessage {
  static constexpr std::uint64_t kKind = 0x3153504F54535254;  // "TRSTOPS1"

  StopWord word = StopWord::kWish;
  std::uint64_t step = 0;   // kAnswer: the newest that was begun; kLast: the last
  std::uint64_t asker = 0;  // kLast: the rank of the node that was asked to end the run
};

// Where the run ends: after `steps`, or sooner where `stop` (may be null) asks for it. Where not
// all nodes are in this process, asking ends the job with kCancelled, unless they agree. Any
// thread.
class StopPoint {
 public:
  // A run that is asked to end does so after a step that `state_every` divides, and its state is
  // saved then; 0: it is not.
  StopPoint(std::uint64_t steps, const std::atomic<bool>* stop, bool all_here,
            std::uint64_t state_every)
      : last_(steps), stop_(stop), all_here_(all_here), state_every_(state_every) {}

  // For this process's only node, before any other call: has it agree with others over this end,
  // which a StopEnd wraps and which must outlive it. `on_ending` is called once, where all have
  // agreed; where it is empty this node's own `stop` still ends the job at once.
  void agree_over(Transport& end, const WaitLimits& limits,
                  std::function<void(std::uint64_t last)> on_ending);

  // Whether `step`, which a worker has begun, is past the end. Waits while nodes agree on that;
  // then throws kUnavailable and kDeadlineExceeded where one of them is gone, or says nothing for
  // too long.
  bool passed(std::uint64_t step);
  // Ends the run of all workers after the steps that are under way. Where they are not all in this
  // process kOutOfRange is thrown with the sentence instead.
  void end(std::uint64_t step, const std::string& sentence);
  // Throws kCancelled where a node that is no worker has to end.
  void check() const;
  [[nodiscard]] std::uint64_t last() const;
  // The rank of the node whose `stop` has ended the run sooner, where one has.
  [[nodiscard]] std::optional<int> asker() const;
  // The first sentence with which end() was called; empty: it was not.
  [[nodiscard]] std::string ended_by() const;
  // As Job::state_also_after.
  [[nodiscard]] const std::atomic<std::uint64_t>& state_after() const { return state_after_; }

 private:
  friend class StopEnd;

  void choose(std::uint64_t step);
  void choose_with_state(std::uint64_t step);
  void wish();
  void ask_all(std::unique_lock<std::mutex>& lock, std::uint64_t step);
  void await(std::unique_lock<std::mutex>& lock, int rank, const char* awaited,
             const std::function<bool()>& is_here);
  void say(int to, const StopMessage& message);
  void say_to_all(const StopMessage& message);
  void take(int from, const StopMessage& message);
  void take_last(const StopMessage& message);
  [[nodiscard]] bool makes_sense(int from, const StopMessage& message) const;
  [[nodiscard]] bool is_asking() const;
  void receiving_has_failed();
  [[nodiscard]] bool asked() const { return stop_ != nullptr && stop_->load(); }
  [[nodiscard]] bool agrees() const { return on_ending_ && state_every_ > 0; }
  [[nodiscard]] bool leads() const { return end_ != nullptr && end_->rank() == 0; }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t last_;
  std::uint64_t newest_ = 0;  // that a worker has begun; while others are asked, any of theirs
  bool chosen_ = false;
  bool cut_short_ = false;
  std::optional<int> asker_;
  std::string ended_by_;
  const std::atomic<bool>* stop_;
  bool all_here_;
  std::uint64_t state_every_;
  std::atomic<std::uint64_t> state_after_{0};

  // Between processes.
  Transport* end_ = nullptr;
  WaitLimits limits_;
  std::function<void(std::uint64_t)> on_ending_;
  std::atomic<bool> has_wished_{false};
  bool asking_ = false;         // from the question until the last step is known
  std::vector<bool> answered_;  // at rank 0, by rank
  bool failed_ = false;         // nothing more is received
};

// A node's end of the network between processes: sorts out what is said of the run's end. From the
// question how far the node is until it hears where the run ends nothing of the exchange passes, so
// that a server passes no step after which its state may be wanted. One thread at a time receives.
class StopEnd final : public PassingTransport {
 public:
  // Both must outlive it.
  StopEnd(Transport& end, StopPoint& stop) : PassingTransport(end), stop_(stop) {}

  // Never one of those messages. Throws kDataLoss for one that makes no sense.
  std::optional<Incoming> receive(std::chrono::milliseconds timeout) override;

 private:
  // Whether the message is not to be passed on, or not yet.
  bool keep(Incoming& message);

  StopPoint& stop_;
  std::deque<Incoming> held_;
};

}  // namespace tersewire::trainer
