#include "progress.h"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <type_traits>

#include "errors.h"
#include "tersewire/passing_transport.h"

namespace tersewire {
namespace {

// How often a thread that receives looks whether it is to end: often while messages come, seldom on
// a node that is idle.
constexpr std::chrono::milliseconds kShortestLook(2);
constexpr std::chrono::milliseconds kLongestLook(64);

// A thread that receives, one message at a time, where the network makes no calls.
class Receiving final : public ArrivalCalls {
 public:
  Receiving(Transport& network, std::function<void()> arrived)
      : network_(network), arrived_(std::move(arrived)), thread_([this] { run(); }) {}
  ~Receiving() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Receiving(const Receiving&) = delete;
  Receiving& operator=(const Receiving&) = delete;

  void call_again() override {
    {
      const std::lock_guard lock(mutex_);
      again_ = true;
    }
    changed_.notify_all();
  }

  // What has arrived. Throws what receiving ended with.
  std::optional<Incoming> take() {
    // The thread may not have heard yet that the job is over.
    static_cast<void>(network_.peer(network_.rank()));
    std::optional<Incoming> taken;
    {
      const std::lock_guard lock(mutex_);
      if (failure_) std::rethrow_exception(failure_);
      if (!arrived_here_) return std::nullopt;
      taken = std::exchange(arrived_here_, std::nullopt);
    }
    changed_.notify_all();
    return taken;
  }

 private:
  void run();

  Transport& network_;
  std::function<void()> arrived_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Incoming> arrived_here_;
  std::exception_ptr failure_;
  bool again_ = false;
  bool stop_ = false;
  std::thread thread_;
};

void Receiving::run() {
  auto look = kShortestLook;
  std::unique_lock lock(mutex_);
  while (!stop_) {
    lock.unlock();
    std::optional<Incoming> incoming;
    std::exception_ptr failure;
    try {
      incoming = network_.receive(look);
    } catch (...) {
      failure = std::current_exception();
    }
    look = incoming ? kShortestLook : std::min(2 * look, kLongestLook);
    lock.lock();
    if (!incoming && !failure) continue;
    arrived_here_ = std::move(incoming);
    failure_ = std::move(failure);
    again_ = true;
    // Until it has been taken; after a failure there is nothing more to receive.
    while (!stop_ && (arrived_here_ || failure_)) {
      if (!std::exchange(again_, false)) {
        changed_.wait(lock);
        continue;
      }
      lock.unlock();
      arrived_();
      lock.lock();
    }
  }
}

// Whose turn it is with a worker: a call of the application, or who takes messages.
class Turns {
 public:
  // For a call of the application, which has priority over messages.
  void take() {
    std::unique_lock lock(mutex_);
    if (taken_ && holder_ == std::this_thread::get_id()) {
      fail(ErrorCode::kFailedPrecondition,
           "an Update has called the communicator that it works for, which would wait for itself; "
           "call it between two steps");
    }
    take(lock);
  }
  // For messages. False where it is not free: they are due then, and whoever leaves it hears that.
  bool take_for_messages() {
    const std::lock_guard lock(mutex_);
    due_ = taken_ || wanting_ > 0;
    if (due_) return false;
    taken_ = true;
    holder_ = std::this_thread::get_id();
    return true;
  }
  [[nodiscard]] bool is_wanted() const { return wanting_ > 0; }
  [[nodiscard]] bool is_awaited() const { return awaiting_ > 0; }

  // Returns whether messages are due. `wakes`: what calls wait for in await() may be here.
  [[nodiscard]] bool leave(bool wakes) {
    const std::lock_guard lock(mutex_);
    leave_locked(wakes);
    return std::exchange(due_, false);
  }
  // Leaves the turn until calls are woken, and takes it again; keeps it where messages are due.
  // Returns whether it was woken.
  bool await(std::chrono::milliseconds timeout, bool wakes) {
    std::unique_lock lock(mutex_);
    if (std::exchange(due_, false)) return false;
    leave_locked(wakes);
    ++awaiting_;
    const bool woken =
        changed_.wait_for(lock, timeout, [&, before = wakes_] { return wakes_ > before; });
    --awaiting_;
    take(lock);
    return woken;
  }

 private:
  void take(std::unique_lock<std::mutex>& lock) {
    ++wanting_;
    changed_.wait(lock, [&] { return !taken_; });
    --wanting_;
    taken_ = true;
    holder_ = std::this_thread::get_id();
  }
  void leave_locked(bool wakes) {
    taken_ = false;
    if (wakes) ++wakes_;
    if (wanting_ > 0 || wakes) changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool taken_ = false;
  std::thread::id holder_;  // while it is taken
  bool due_ = false;
  std::atomic<int> wanting_{0};
  std::atomic<int> awaiting_{0};
  std::uint64_t wakes_ = 0;
};

class Progress final : public Communicator {
 public:
  Progress(Transport& network, bool alone,
           const std::function<std::unique_ptr<Worker>(Transport&)>& make_worker)
      : network_(network), end_(*this), worker_(make_worker(end_)) {
    if (alone) return;
    const Turn turn(*this);  // before which no message is taken
    const auto arrived = [this] { take_messages(); };
    calls_ = network.on_arrival(arrived);
    if (calls_) return;
    auto receiving = std::make_unique<Receiving>(network, arrived);
    receiving_ = receiving.get();
    calls_ = std::move(receiving);
  }
  ~Progress() override { calls_.reset(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  std::uint64_t begin_step() override {
    return in_turn([&] { return worker_->begin_step(); });
  }
  void pull(std::size_t tensor, std::span<float> parameters) override {
    in_turn([&] { worker_->pull(tensor, parameters); });
  }
  void push(std::size_t tensor, std::span<const float> gradient) override {
    in_turn([&] { worker_->push(tensor, gradient); });
  }
  void mean(std::size_t tensor, std::span<float> mean) override {
    in_turn([&] { worker_->mean(tensor, mean); });
  }
  void undo(std::size_t tensor) override {
    in_turn([&] { worker_->undo(tensor); });
  }
  void say_skipped(std::uint64_t steps) override {
    in_turn([&] { worker_->say_skipped(steps); });
  }
  void finish(std::span<const std::span<float>> parameters) override {
    in_turn([&] {
      worker_->finish(parameters);
      finished_ = true;  // what comes from now on is for whoever uses the network next
    });
    std::unique_ptr<ArrivalCalls> calls;  // destroyed when no call of them is under way
    const std::lock_guard lock(calls_mutex_);
    calls.swap(calls_);
  }
  // Both can be had when the job is over, too.
  NodeState state() override {
    const Turn turn(*this);
    return worker_->state();
  }
  [[nodiscard]] std::vector<std::vector<float>> residuals() override {
    const Turn turn(*this);
    return worker_->residuals();
  }
  [[nodiscard]] Counters counters() const override {
    const Turn turn(*this);
    return worker_->counters();
  }
  [[nodiscard]] std::vector<double> encoded_bytes() const override {
    const Turn turn(*this);
    return worker_->encoded_bytes();
  }

 private:
  // The network as the worker sees it: messages have been sorted in before it asks.
  class End final : public PassingTransport {
   public:
    explicit End(Progress& progress) : PassingTransport(progress.network_), progress_(progress) {}

    // A message without bytes: one has been sorted in.
    std::optional<Incoming> receive(std::chrono::milliseconds timeout) override {
      const bool passed = progress_.let_messages_pass(timeout);
      if (!passed || timeout.count() == 0) return std::nullopt;
      return Incoming{.from = rank(), .bytes = nullptr};
    }
    // Its calls are Progress's own.
    std::unique_ptr<ArrivalCalls> on_arrival(std::function<void()> /*arrived*/) override {
      return nullptr;
    }

   private:
    Progress& progress_;
  };

  // Of a call of the application.
  class Turn {
   public:
    explicit Turn(const Progress& progress) : progress_(progress) { progress_.turns_.take(); }
    ~Turn() {
      if (!progress_.turns_.leave(progress_.wakes())) return;
      const std::lock_guard lock(progress_.calls_mutex_);
      if (progress_.calls_) progress_.calls_->call_again();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    const Progress& progress_;
  };

  template <typename Task>
  std::invoke_result_t<Task&> in_turn(Task&& task) {
    const Turn turn(*this);
    rethrow_failure();
    try {
      return task();
    } catch (const Error& error) {
      // What a message failed with says more than that the job is over.
      if (error.code() == ErrorCode::kAborted) rethrow_failure();
      throw;
    }
  }
  void rethrow_failure() const {
    if (failure_) std::rethrow_exception(failure_);
  }

  // --- With the turn.

  // Takes what has arrived, until a call wants the turn; false where there may be more.
  bool take_all(bool unless_wanted);
  std::optional<Incoming> next() {
    return receiving_ != nullptr ? receiving_->take()
                                 : network_.receive(std::chrono::milliseconds(0));
  }
  // In a call: lets messages pass that have arrived, or waits for one where there are none, and for
  // what calls wait for. Returns whether any passed in that time, or another call went on.
  bool let_messages_pass(std::chrono::milliseconds timeout);
  [[nodiscard]] bool wakes() const {
    return turns_.is_awaited() && (failure_ || worker_->awaits_what_is_here());
  }

  // --- Without it.

  void take_messages();

  Transport& network_;
  End end_;
  mutable Turns turns_;
  std::exception_ptr failure_;
  std::unique_ptr<Worker> worker_;
  std::uint64_t passed_ = 0;  // messages
  bool finished_ = false;
  Receiving* receiving_ = nullptr;  // what `calls_` is, where the network makes none
  mutable std::mutex calls_mutex_;
  std::unique_ptr<ArrivalCalls> calls_;  // null: the application's calls take messages
};

bool Progress::take_all(bool unless_wanted) {
  try {
    while (!failure_ && !finished_) {
      if (unless_wanted && turns_.is_wanted()) return false;
      auto incoming = next();
      if (!incoming) return true;
      worker_->take(std::move(*incoming));
      ++passed_;
    }
  } catch (...) {
    // The application hears it in its next call, or in the one that waits.
    failure_ = std::current_exception();
  }
  return true;
}

bool Progress::let_messages_pass(std::chrono::milliseconds timeout) {
  const std::uint64_t before = passed_;
  take_all(false);
  bool woken = false;
  if (passed_ == before && !failure_ && timeout.count() > 0) {
    woken = turns_.await(timeout, wakes());
    take_all(false);
  }
  if (failure_) fail(ErrorCode::kAborted, "the job has ended");
  return woken || passed_ > before;
}

void Progress::take_messages() {
  while (turns_.take_for_messages()) {
    const bool all = take_all(true);
    const bool due = turns_.leave(wakes());
    if (all && !due) return;
  }
}

}  // namespace

std::unique_ptr<Communicator> with_progress(
    Transport& network, bool alone,
    const std::function<std::unique_ptr<Worker>(Transport&)>& make_worker) {
  return std::make_unique<Progress>(network, alone, make_worker);
}

}  // namespace tersewire
