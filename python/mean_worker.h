// A rank's end of an exchange of gradients, as Python has it: the worker of a job that takes means
// in the same step, over TCP or a hub.
#pragma once

#include <pybind11/pybind11.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "python/auto_codec.h"
#include "python/hub_end.h"
#include "python/hub_member.h"
#include "tersewire/communicator.h"
#include "tersewire/state.h"
#include "tersewire/thread_pool.h"
#include "tersewire/transport.h"
#include "trainer/chooser/codec_pilot.h"

namespace tersewire::python {

namespace py = pybind11;

// A tensor, and its first value in a bucket.
using Stretch = std::pair<std::size_t, std::size_t>;

// What state() returned, of one rank: (rank, step, pushed, pulled, followed).
using SavedState = std::tuple<int, std::uint64_t, py::dict, py::dict, py::dict>;

// Of their JSON. Throws kInvalidArgument.
trainer::CodecDecisions decisions_of(const std::string& json);

// One thread at a time takes steps, except that a second one may wait in mean(). Any thread may
// read counters, and close(), which ends the calls that wait.
class MeanWorker {
 public:
  MeanWorker(Job job, std::size_t threads, std::optional<trainer::CodecDecisions> replay,
             std::optional<double> bytes_a_day, bool overlaps, py::function update)
      : job_(std::move(job)),
        threads_(threads),
        replay_(std::move(replay)),
        bytes_a_day_(bytes_a_day),
        overlaps_(overlaps),
        update_(std::move(update)) {}
  ~MeanWorker();
  MeanWorker(const MeanWorker&) = delete;
  MeanWorker& operator=(const MeanWorker&) = delete;

  // Meets the job's other ranks, before the first step and after change().
  void join(TcpMeeting& meeting, int rank, const std::vector<std::string>& addresses,
            const std::string& token);

  // The same over a hub.
  void join_hub(HubEnd& hub);
  // The same in a generation of ranks that come and go, after the state that it begins with.
  void go_on(HubEnd& hub, const HubMember& member);

  // Keeps the state between two steps for those who go on from there, and by their names what all
  // ranks have alike.
  void hold(HubMember& member, const py::dict& alike);
  // As state(), what hold() kept last; nothing before that.
  [[nodiscard]] std::optional<py::tuple> held_state() const;

  // As the communicator's, of tensors in a bucket.
  void begin_step(double stood_seconds);
  void push(const py::object& values, const std::vector<Stretch>& stretches);
  void mean(const py::object& values, const std::vector<Stretch>& stretches);
  void undo(const std::vector<std::size_t>& tensors);
  void say_skipped(std::uint64_t steps);

  // (step, pushed, pulled, followed)
  py::tuple state();
  // (tensor, first value, values, rank of the owner or -1) of each
  [[nodiscard]] std::vector<std::tuple<std::size_t, std::size_t, std::size_t, int>> parts() const;
  // Whether the step it was in was begun, so that all ranks must join anew.
  [[nodiscard]] bool has_begun() const;
  // Goes on after states of a job of so many ranks: this rank's own, or all in order.
  void load(int rank, int ranks, const std::vector<SavedState>& states,
            const std::string& decisions);

  // Before it meets anyone: goes on with what another worker keeps, between two of its steps.
  // Throws, and neither changes, where that has a residual and this job no place for it.
  void take_over(int rank, MeanWorker& other);
  // Becomes another worker that has taken over what this one keeps. All ranks must join anew.
  void change(const MeanWorker& other);

  // (bytes sent, bytes received, parts that were not finite, seconds in codecs, seconds waiting)
  [[nodiscard]] py::tuple counters() const;
  [[nodiscard]] std::vector<double> encoded_bytes() const;
  // With codec auto: all that was decided, on rank 0, and the codec of the last step.
  [[nodiscard]] std::string decisions() const;
  std::vector<std::string> take_news();
  [[nodiscard]] std::string codec() const;

  // Ends what others have of this worker; counters stay.
  void close();
  void abort(const std::string& reason);

 private:
  struct Counts {
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    std::uint64_t not_finite = 0;
    double codec_seconds = 0;
    double wait_seconds = 0;
    std::vector<double> encoded_bytes;  // by tensor
  };

  // Those of networks that are gone, and of this one.
  [[nodiscard]] Counts all_counts() const;
  [[noreturn]] static void fail_closed();
  // For a thread with the GIL, which whoever holds the lock may need.
  template <typename Read>
  std::invoke_result_t<Read> read(const Read& calls) const;
  // Makes calls of the worker, which no other thread deletes meanwhile; without the GIL.
  template <typename Calls>
  void use(const Calls& calls);
  // The same for calls that may wait for other ranks. Those of a hub's job may do so for long.
  template <typename Calls>
  void wait(const Calls& calls);
  // Until no other thread uses the worker: ends calls that wait.
  [[nodiscard]] std::unique_lock<std::shared_mutex> alone();
  // `what` this rank did.
  void abort_as(const char* what);
  void begin_over(std::unique_ptr<Transport> transport);
  [[nodiscard]] py::tuple as_tuple(const NodeState& state) const;
  // Between two steps; before the first it makes nothing that could not be loaded over.
  NodeState kept();
  // Those that follow are called by whoever is alone.
  void leave();
  // The worker, when it is first needed: until then a state may be loaded.
  void make();
  template <typename T>
  std::span<T> run_of(std::span<T> values, const Stretch& stretch) const;

  const pid_t made_by_ = ::getpid();
  mutable std::shared_mutex in_use_;  // whole: to change what is below
  std::atomic<int> waiting_ = 0;      // calls that may
  Job job_;
  std::size_t threads_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Transport> transport_;
  bool over_hub_ = false;
  std::optional<trainer::CodecDecisions> replay_;
  std::optional<double> bytes_a_day_;
  bool overlaps_;                    // exchanges with computation
  trainer::CodecDecisions decided_;  // before this network, or what was loaded
  py::function update_;
  std::optional<NodeState> resume_;
  std::optional<NodeState> held_;  // after the last step, among ranks that come and go
  std::unique_ptr<AutoCodec> auto_;
  std::unique_ptr<Communicator> worker_;
  Counts before_;
};

}  // namespace tersewire::python
