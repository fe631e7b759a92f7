#include "progress.h"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <type_traits>

#include "errors.h"

namespace tersewire {
namespace {

// How often the thread looks whether it is to end: often while messages come, seldom on a node that
// is idle.
constexpr std::chrono::milliseconds kShortestLook(2);
constexpr std::chrono::milliseconds kLongestLook(64);

// A worker's two threads take turns: one lock a node, which is held for a part or a message at a
// time.
class Turns {
 public:
  using Lock = std::unique_lock<std::mutex>;

  // For a call of the application.
  [[nodiscard]] Lock take() { return Lock(mutex_); }

  // For a message: the application lets it pass before its next part.
  [[nodiscard]] Lock take_for_message() {
    ++waiting_;
    Lock lock(mutex_);
    --waiting_;
    return lock;
  }
  // After a message, or the failure that ended the receiving, with the lock.
  void passed() {
    ++passed_;
    moved_.notify_all();
  }

  // After a call of the application, with the lock: it may be what another one waits for.
  void called() {
    if (awaiting_ > 0) passed();
  }

  // In a call of the application: lets messages pass that wait.
  void let_pass(Lock& lock) {
    if (waiting_ > 0) moved_.wait(lock, [&, before = passed_] { return passed_ > before; });
  }
  // The same, and waits for one, or for another call. Returns whether one came in time.
  bool await(Lock& lock, std::chrono::milliseconds timeout) {
    ++awaiting_;
    const bool came =
        moved_.wait_for(lock, timeout, [&, before = passed_] { return passed_ > before; });
    --awaiting_;
    return came;
  }

 private:
  std::mutex mutex_;
  std::condition_variable moved_;
  std::atomic<int> waiting_{0};
  int awaiting_ = 0;
  std::uint64_t passed_ = 0;
};

class Progress final : public Communicator {
 public:
  Progress(Transport& network, bool alone,
           const std::function<std::unique_ptr<Worker>(Transport&)>& make_worker)
      : network_(network), alone_(alone), end_(*this), worker_(make_worker(end_)) {
    if (!alone) receiving_ = std::thread([this] { receive_all(); });
  }
  ~Progress() override { stop(); }
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
  void give_back(std::size_t tensor, std::span<const float> mean) override {
    in_turn([&] { worker_->give_back(tensor, mean); });
  }
  void say_skipped(std::uint64_t steps) override {
    in_turn([&] { worker_->say_skipped(steps); });
  }
  void finish(std::span<const std::span<float>> parameters) override {
    in_turn([&] { worker_->finish(parameters); });
    stop();  // what comes from now on is for whoever uses the network next
  }
  // Both can be had when the job is over, too.
  NodeState state() override {
    const auto lock = turns_.take();
    return worker_->state();
  }
  [[nodiscard]] std::vector<std::vector<float>> residuals() override {
    const auto lock = turns_.take();
    return worker_->residuals();
  }
  [[nodiscard]] const Counters& counters() const noexcept override {
    const auto lock = turns_.take();
    return counters_ = worker_->counters();
  }
  [[nodiscard]] std::vector<double> encoded_bytes() const override {
    const auto lock = turns_.take();
    return worker_->encoded_bytes();
  }

 private:
  // The network as the worker sees it: messages have been sorted in before it asks.
  class End final : public Transport {
   public:
    explicit End(Progress& progress) : progress_(progress) {}

    [[nodiscard]] int rank() const noexcept override { return network().rank(); }
    [[nodiscard]] int size() const noexcept override { return network().size(); }
    void send(int to, SharedBytes bytes) override { network().send(to, std::move(bytes)); }
    // A message without bytes: one has been sorted in.
    std::optional<Incoming> receive(std::chrono::milliseconds timeout) override {
      if (progress_.alone_) {
        if (auto incoming = network().receive(std::chrono::milliseconds(0))) return incoming;
      }
      if (!progress_.let_messages_pass(timeout)) return std::nullopt;
      return Incoming{.from = rank(), .bytes = nullptr};
    }
    void abort(const std::string& reason) noexcept override { network().abort(reason); }
    [[nodiscard]] Peer peer(int rank) const override { return network().peer(rank); }
    [[nodiscard]] std::uint64_t bytes_sent() const noexcept override {
      return network().bytes_sent();
    }
    [[nodiscard]] std::uint64_t bytes_received() const noexcept override {
      return network().bytes_received();
    }

   private:
    [[nodiscard]] Transport& network() const { return progress_.network_; }

    Progress& progress_;
  };

  template <typename Task>
  std::invoke_result_t<Task&> in_turn(Task&& task) {
    Turns::Lock lock = turns_.take();
    turn_ = &lock;
    const std::unique_ptr<Turns, void (*)(Turns*)> tells(&turns_,
                                                         [](Turns* turns) { turns->called(); });
    rethrow_failure();
    try {
      return task();
    } catch (const Error& error) {
      // What the thread failed with says more than that the job is over.
      if (error.code() == ErrorCode::kAborted) rethrow_failure();
      throw;
    }
  }
  // In a call of the application.
  bool let_messages_pass(std::chrono::milliseconds timeout) {
    const bool looks_only = timeout.count() == 0;
    // The thread may not have heard yet that the job is over.
    if (looks_only) static_cast<void>(network_.peer(network_.rank()));
    // Another call may have its turn meanwhile.
    Turns::Lock* const own = turn_;
    if (looks_only) turns_.let_pass(*own);
    const bool came = !looks_only && turns_.await(*own, timeout);
    turn_ = own;
    if (failure_) fail(ErrorCode::kAborted, "the job has ended");
    return came;
  }
  void rethrow_failure() const {
    if (failure_) std::rethrow_exception(failure_);
  }

  void receive_all();
  bool pass(Incoming incoming);
  void stop() {
    stop_ = true;
    if (receiving_.joinable()) receiving_.join();
  }

  Transport& network_;
  bool alone_;
  End end_;
  mutable Turns turns_;
  Turns::Lock* turn_ = nullptr;  // of the application's call that has it
  std::exception_ptr failure_;
  mutable Counters counters_;
  std::unique_ptr<Worker> worker_;
  std::atomic<bool> stop_{false};
  std::thread receiving_;
};

void Progress::receive_all() {
  std::exception_ptr failure;
  try {
    for (auto look = kShortestLook; !stop_;) {
      auto incoming = network_.receive(look);
      look = incoming ? kShortestLook : std::min(2 * look, kLongestLook);
      if (!incoming) continue;
      if (!pass(std::move(*incoming))) return;
    }
    return;
  } catch (...) {
    failure = std::current_exception();
  }
  // Out of the handler, so that the application alone has it.
  const auto lock = turns_.take();
  failure_ = std::move(failure);
  turns_.passed();
}

// False where it ended the job, which the application hears in its next call, or in this one.
bool Progress::pass(Incoming incoming) {
  const auto lock = turns_.take_for_message();
  try {
    worker_->take(std::move(incoming));
  } catch (...) {
    failure_ = std::current_exception();
  }
  turns_.passed();
  return failure_ == nullptr;
}

}  // namespace

std::unique_ptr<Communicator> with_progress(
    Transport& network, bool alone,
    const std::function<std::unique_ptr<Worker>(Transport&)>& make_worker) {
  return std::make_unique<Progress>(network, alone, make_worker);
}

}  // namespace tersewire
