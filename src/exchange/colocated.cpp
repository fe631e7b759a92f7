#include "colocated.h"

#include <atomic>
#include <charconv>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>

#include "errors.h"
#include "tersewire/message.h"

namespace tersewire {
namespace {

// How often the thread that receives looks whether it is to end.
constexpr std::chrono::milliseconds kLook(10);
constexpr std::chrono::milliseconds kNoTime(0);

// What has arrived for one of a node's two halves.
class Inbox {
 public:
  void put(Incoming message) {
    {
      const std::lock_guard lock(mutex_);
      messages_.push_back(std::move(message));
    }
    arrived_or_failed_.notify_one();
  }
  void put_failure(ErrorCode code, const std::string& sentence) {
    {
      const std::lock_guard lock(mutex_);
      if (failure_) return;  // the first one stays
      failure_ = code;
      sentence_ = sentence;
    }
    arrived_or_failed_.notify_all();
  }
  std::optional<Incoming> take(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    const auto has_something = [&] { return !messages_.empty() || failure_; };
    if (timeout > kNoTime) arrived_or_failed_.wait_for(lock, timeout, has_something);
    if (failure_) throw Error(*failure_, sentence_);
    return take_first(messages_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_or_failed_;
  std::deque<Incoming> messages_;
  std::optional<ErrorCode> failure_;
  std::string sentence_;
};

// Bytes of messages that crossed a node's link.
struct Traffic {
  std::atomic<std::uint64_t> sent{0};
  std::atomic<std::uint64_t> received{0};
};

// A node's end of the network, shared by its worker and its server.
class SharedEnd {
 public:
  SharedEnd(Transport& network, int servers, Traffic& traffic)
      : network_(network), servers_(servers), traffic_(traffic) {
    if (!is_alone()) receiving_ = std::thread([this] { receive_all(); });
  }
  ~SharedEnd() { stop_receiving(); }
  SharedEnd(const SharedEnd&) = delete;
  SharedEnd& operator=(const SharedEnd&) = delete;

  // What comes from now on is for whoever uses the network next.
  void stop_receiving() {
    stop_ = true;
    if (receiving_.joinable()) receiving_.join();
  }
  // The node's worker is gone: its server ends, which ends the job for nobody else.
  void leave() {
    left_ = true;
    to_server_.put_failure(ErrorCode::kAborted, "this node's worker has left the job");
  }
  [[nodiscard]] bool has_left() const { return left_; }
  // Without another node nothing comes from the network.
  [[nodiscard]] bool is_alone() const { return network_.size() == 1; }

  [[nodiscard]] Transport& network() { return network_; }
  [[nodiscard]] int workers() const { return network_.size(); }
  [[nodiscard]] int ranks() const { return network_.size() + servers_; }
  [[nodiscard]] Inbox& inbox(bool of_server) { return of_server ? to_server_ : to_worker_; }

  void send(int from, int to, SharedBytes bytes) {
    const bool to_a_server = to >= workers();
    const int node = to_a_server ? to - workers() : to;
    // What stays on the node never sees the network.
    if (node == network_.rank()) {
      return inbox(to_a_server).put({.from = from, .bytes = std::move(bytes), .own = true});
    }
    traffic_.sent += bytes->size();
    network_.send(node, std::move(bytes));
  }

 private:
  void receive_all();
  void fail(ErrorCode code, const std::string& sentence);
  void sort_in(Incoming message);

  Transport& network_;
  int servers_;
  Traffic& traffic_;
  Inbox to_worker_;
  Inbox to_server_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> left_{false};
  std::thread receiving_;
};

void SharedEnd::receive_all() {
  try {
    while (!stop_) {
      if (auto message = network_.receive(kLook)) sort_in(std::move(*message));
    }
  } catch (const Error& error) {
    fail(error.code(), error.what());
  } catch (const std::exception& error) {  // no memory
    fail(ErrorCode::kResourceExhausted, error.what());
  }
}

void SharedEnd::fail(ErrorCode code, const std::string& sentence) {
  to_worker_.put_failure(code, sentence);
  to_server_.put_failure(code, sentence);
}

// By its kind, which says what its sender is as well.
void SharedEnd::sort_in(Incoming message) {
  traffic_.received += message.bytes->size();
  switch (message_kind(*message.bytes)) {
    case MessageKind::kPush:
    case MessageKind::kDone:
    case MessageKind::kOffer:
      // Without a server here, the worker refuses it.
      return (network_.rank() < servers_ ? to_server_ : to_worker_).put(std::move(message));
    case MessageKind::kPull:
    case MessageKind::kAgreement:
      message.from += workers();
      return to_worker_.put(std::move(message));
    default:
      return to_worker_.put(std::move(message));
  }
}

// A sentence in which the rank of a server, which only this node's halves know, is its node's. What
// is quoted, as a tensor's name, stays.
std::string with_nodes(std::string_view sentence, int workers) {
  std::string told;
  bool quoted = false;
  while (!sentence.empty()) {
    std::string_view rest = sentence;
    // That of "rank 3's" closes and opens nothing.
    if (sentence.front() == '\'' && (quoted || told.empty() || told.back() == ' '))
      quoted = !quoted;
    for (const std::string_view word : {"rank ", "server "}) {
      if (quoted || !sentence.starts_with(word)) continue;
      int rank = 0;
      const auto [end, error] =
          std::from_chars(sentence.data() + word.size(), sentence.data() + sentence.size(), rank);
      if (error != std::errc() || rank < workers || rank >= 2 * workers) continue;
      told += fmt::format("the server on rank {}", rank - workers);
      rest.remove_prefix(static_cast<std::size_t>(end - sentence.data()));
    }
    if (rest.size() == sentence.size()) {
      told += rest.front();
      rest.remove_prefix(1);
    }
    sentence = rest;
  }
  return told;
}

class Half final : public Transport {
 public:
  // `before_receiving` is called whenever a message is asked for.
  Half(SharedEnd& end, bool server, std::function<void()> before_receiving = {})
      : end_(end), server_(server), before_receiving_(std::move(before_receiving)) {}

  [[nodiscard]] int rank() const noexcept override {
    return end_.network().rank() + (server_ ? end_.workers() : 0);
  }
  [[nodiscard]] int size() const noexcept override { return end_.ranks(); }
  void send(int to, SharedBytes bytes) override { end_.send(rank(), to, std::move(bytes)); }
  std::optional<Incoming> receive(std::chrono::milliseconds timeout) override {
    if (before_receiving_) before_receiving_();
    return end_.inbox(server_).take(timeout);
  }
  void abort(const std::string& reason) noexcept override {
    if (end_.has_left()) return;
    try {
      end_.network().abort(with_nodes(reason, end_.workers()));
    } catch (...) {
      end_.network().abort(reason);  // no memory for more
    }
  }
  [[nodiscard]] Peer peer(int rank) const override {
    return end_.network().peer(rank < end_.workers() ? rank : rank - end_.workers());
  }
  // The node's, both halves'.
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept override {
    return end_.network().bytes_sent();
  }
  [[nodiscard]] std::uint64_t bytes_received() const noexcept override {
    return end_.network().bytes_received();
  }

 private:
  SharedEnd& end_;
  bool server_;
  std::function<void()> before_receiving_;
};

class ColocatedWorker final : public Communicator {
 public:
  ColocatedWorker(Transport& network, std::shared_ptr<const Placement> placement,
                  const ColocatedTasks& tasks)
      : placement_(std::move(placement)),
        others_(static_cast<std::uint64_t>(network.size()) - 1),
        end_(network, placement_->servers, traffic_),
        worker_half_(end_, false, [this] { serve_if_alone(); }),
        server_half_(end_, true) {
    for (const Part& part : placement_->parts) {
      values_ += part.elems;
      if (placement_->owners[part.number] == server_half_.rank()) own_values_ += part.elems;
    }
    const bool serves = network.rank() < placement_->servers;
    if (serves) server_ = tasks.make_server(server_half_);
    worker_ = tasks.make_worker(worker_half_);
    if (serves && !end_.is_alone()) serving_ = std::thread([this] { run_server(); });
  }
  ~ColocatedWorker() override {
    // A worker that is not through with its last step ends the job.
    worker_.reset();
    end_.leave();
    if (serving_.joinable()) serving_.join();
  }
  ColocatedWorker(const ColocatedWorker&) = delete;
  ColocatedWorker& operator=(const ColocatedWorker&) = delete;

  std::uint64_t begin_step() override {
    std::uint64_t step = 0;
    run_worker([&] { step = worker_->begin_step(); });
    // As in state(): the worker has taken all means that its server encoded.
    if (placement_->job.undoable && server_) before_step_.keep(server_->residual_runs());
    return step;
  }
  void pull(std::size_t tensor, std::span<float> parameters) override {
    run_worker([&] { worker_->pull(tensor, parameters); });
  }
  void push(std::size_t tensor, std::span<const float> gradient) override {
    run_worker([&] { worker_->push(tensor, gradient); });
  }
  void mean(std::size_t tensor, std::span<float> mean) override {
    run_worker([&] { worker_->mean(tensor, mean); });
  }
  void undo(std::size_t tensor) override {
    run_worker([&] { worker_->undo(tensor); });
    if (server_) before_step_.restore(*placement_, tensor, server_->residual_runs());
  }
  void say_skipped(std::uint64_t steps) override {
    run_worker([&] { worker_->say_skipped(steps); });
  }
  void finish(std::span<const std::span<float>> parameters) override {
    run_worker([&] {
      worker_->finish(parameters);
      rethrow_servers_failure();
    });
    end_.stop_receiving();
  }
  NodeState state() override;
  [[nodiscard]] std::vector<std::vector<float>> residuals() override {
    return worker_->residuals();
  }
  [[nodiscard]] std::vector<double> encoded_bytes() const override {
    return worker_->encoded_bytes();
  }
  [[nodiscard]] Counters counters() const override {
    Counters counters = worker_->counters();
    counters.pushed_bytes = traffic_.sent;
    counters.pulled_bytes = traffic_.received;
    counters.pushed_values = crossing(counters.pushed_values);
    counters.pulled_values = crossing(counters.pulled_values);
    return counters;
  }

 private:
  void run_server() {
    try {
      serve(*server_, server_half_, {});
    } catch (...) {
      // It has ended the job, which the worker hears of.
      server_failure_ = std::current_exception();
    }
  }
  // Where the worker has nobody else to wait for, the server needs no thread of its own: it takes
  // what was sent to it when the worker asks what there is.
  void serve_if_alone() {
    if (!end_.is_alone()) return;
    static_cast<void>(end_.network().receive(kNoTime));  // throws where the job is over
    std::vector<Incoming> messages;
    while (auto message = end_.inbox(true).take(kNoTime)) messages.push_back(std::move(*message));
    if (messages.empty()) return;
    try {
      as_server(server_half_, [&] {
        std::vector<Received> received;
        for (Incoming& message : messages) received.push_back(parse_incoming(std::move(message)));
        server_->take(received);
      });
    } catch (...) {
      server_failure_ = std::current_exception();
      fail(ErrorCode::kAborted, "the job has ended");
    }
  }
  // In its errors ranks are those of halves. Where the job was ended by this node's server, what
  // that failed with says more.
  void run_worker(const std::function<void()>& task) {
    try {
      try {
        task();
      } catch (const Error& error) {
        if (error.code() == ErrorCode::kAborted) rethrow_servers_failure();
        throw;
      }
    } catch (const Error& error) {
      throw Error(error.code(), with_nodes(error.what(), workers()));
    }
  }
  // When the server has ended, as it has where the job is over.
  void rethrow_servers_failure() {
    if (serving_.joinable()) serving_.join();
    if (server_failure_) std::rethrow_exception(server_failure_);
  }
  [[nodiscard]] int workers() const { return static_cast<int>(others_) + 1; }
  // Of the values that the worker pushes or pulls in so many steps, its server's do not cross the
  // link, and those that its server takes from, or sends to, other workers do.
  [[nodiscard]] std::uint64_t crossing(std::uint64_t of_worker) const {
    if (values_ == 0) return 0;
    const std::uint64_t of_model = values_ - own_values_ + own_values_ * others_;
    const double share = static_cast<double>(of_worker % values_) / static_cast<double>(values_);
    return of_worker / values_ * of_model +
           static_cast<std::uint64_t>(std::llround(share * static_cast<double>(of_model)));
  }

  std::shared_ptr<const Placement> placement_;
  std::uint64_t values_ = 0;      // of all tensors
  std::uint64_t own_values_ = 0;  // of those that this node serves
  std::uint64_t others_;          // workers
  Traffic traffic_;
  SharedEnd end_;
  Half worker_half_;
  Half server_half_;
  std::unique_ptr<Server> server_;  // null: the node has none
  std::unique_ptr<Communicator> worker_;
  std::thread serving_;
  std::exception_ptr server_failure_;
  KeptResiduals before_step_;  // the server's, of an undoable job
};

// The worker has pulled all that its server encoded, which encodes nothing of the next step before
// the worker has pushed to it again.
NodeState ColocatedWorker::state() {
  NodeState state = worker_->state();
  if (server_) {
    NodeState of_server = server_->state(exchanges_in(placement_->job, state));
    state.pulled = std::move(of_server.pulled);
    state.followed = std::move(of_server.followed);
  }
  return state;
}

}  // namespace

std::unique_ptr<Communicator> make_colocated_worker(Transport& network,
                                                    std::shared_ptr<const Placement> placement,
                                                    const ColocatedTasks& tasks) {
  return std::make_unique<ColocatedWorker>(network, std::move(placement), tasks);
}

}  // namespace tersewire
