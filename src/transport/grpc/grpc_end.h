// A node's end of the transport grpc: what it sends to and receives from each peer, over whatever
// stream to the hub, or direct one to the peer, there is at the time.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "grpc_batch.h"
#include "grpc_pair.h"
#include "tersewire/grpc_network.h"
#include "tersewire/job_certificates.h"

namespace tersewire {

class AcceptedStream;
class DialedStream;
class EndStream;
class PeerDoor;

// Of the system's.
std::uint64_t random_number();

// Which process a node is, of which generation's network.
struct GrpcNode {
  int rank = 0;
  int nodes = 1;
  std::uint32_t generation = kOnlyGeneration;
  std::uint64_t incarnation = random_number();
  // "HOST:PORT" where it listens for its peers; empty: it only dials.
  std::string direct = {};
  // Where they reach it, if a port is forwarded; empty: there.
  std::string forwarded = {};
  // By rank, where nodes have names; empty: their certificates are for ranks.
  std::vector<std::string> names = {};
};

class GrpcEnd final : public Transport {
 public:
  // Waits until all ranks are there.
  GrpcEnd(const std::string& hub, const GrpcNode& node, const GrpcSecurity& security,
          const WaitLimits& limits, std::shared_ptr<GrpcHub> own_hub = nullptr);
  ~GrpcEnd() override;
  GrpcEnd(const GrpcEnd&) = delete;
  GrpcEnd& operator=(const GrpcEnd&) = delete;

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return static_cast<int>(peers_.size()); }
  void send(int to, SharedBytes bytes) override;
  std::optional<Incoming> receive(std::chrono::milliseconds timeout) override;
  void abort(const std::string& reason) noexcept override;
  [[nodiscard]] Peer peer(int rank) const override;
  void expect_at_most(std::size_t bytes) override { longest_ = bytes; }
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept override { return sent_; }
  [[nodiscard]] std::uint64_t bytes_received() const noexcept override { return received_; }

  // For the streams; gRPC's threads.
  void on_read(EndStream& stream, const grpc::ByteBuffer& batch, bool ok);
  void on_written(EndStream& stream, bool ok);
  void on_done(EndStream& stream, const grpc::Status& status);
  void on_accepted(AcceptedStream& stream, bool is_of_peer);

 private:
  using Clock = std::chrono::steady_clock;

  // Who says nothing for so long, hub or peer, is dialed anew: they speak four times a second.
  static constexpr std::chrono::milliseconds kMostSilence{10000};

  struct PeerState {
    SendingSide sending;
    ReceivingSide receiving;
    // Of receiving, as the peer last heard it.
    std::uint64_t told_received = 0;
    std::uint64_t told_taken = 0;
    bool owes_state = false;
    bool owes_resume = false;
    Clock::time_point heard = Clock::now();
    bool here = false;
    bool left = false;

    EndStream* direct = nullptr;      // what is said to it goes there; none: to the hub
    DialedStream* dialing = nullptr;  // which it has not answered yet
    PeerAddress place;                // as the hub says
    Clock::time_point dial_at = Clock::now();
    std::chrono::milliseconds pause{0};
    std::optional<Clock::time_point> missed;  // since when it is dialed in vain
    bool complained = false;
  };

  // With the mutex held, unless said otherwise.
  void run();  // without
  void dial();
  void send_what_is_owed();
  void pump();
  void fill(BatchWriter& batch);
  void add_signs(BatchWriter& batch);
  void say(BatchWriter& batch, RecordKind kind, ByteView data = {});
  // Whether there was any.
  bool add_data(BatchWriter& batch, int to);
  void add_data(BatchWriter& batch, int to, const SendingSide::Chunk& chunk, RecordKind kind);
  RecordHead state_for(int to, RecordKind kind);
  void take(const Record& record);
  void take_roster(const std::vector<std::uint32_t>& ages);
  void deliver(Incoming message);
  void take_of_pair(const Record& record);
  void tell_taken(PeerState& peer, bool caught_up);
  void tell_all_states();
  bool end_with(const std::string& reason) noexcept;
  void check_not_aborted() const;
  [[nodiscard]] PeerState& state_of(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::string missing() const;
  void await_all(std::unique_lock<std::mutex>& lock);
  void say_goodbye(std::unique_lock<std::mutex>& lock);
  [[nodiscard]] bool all_is_delivered() const;

  // Direct streams: end_direct.cpp.
  void look_after_direct(Clock::time_point now);
  [[nodiscard]] bool dials(int to, Clock::time_point now) const;
  void dial_direct(int to);
  void pump_direct(int to);
  void take_addresses(std::vector<PeerAddress> places);
  void take_direct(EndStream& stream, const grpc::ByteBuffer& batch);
  void admit(AcceptedStream& stream, const Record& record);
  // What is said to the peer goes there from now on, or to the hub.
  void go_by(int to, EndStream* direct);
  void leave(EndStream& stream);
  void miss(int to, const std::string& why);
  [[nodiscard]] Identity identity_of(int rank) const;
  void done_direct(EndStream& stream, const grpc::Status& status);

  const std::shared_ptr<GrpcHub> own_hub_;  // where it is in this process, for as long as this end
  const std::string hub_;
  const int rank_;
  const std::uint32_t generation_;
  const GrpcSecurity security_;
  const bool secure_;
  const std::string job_;                 // of the certificates
  const std::vector<std::string> names_;  // by rank; empty: they are for ranks
  const WaitLimits limits_;
  const std::uint64_t incarnation_;
  std::string address_;  // where its peers reach it directly; empty: nowhere

  mutable std::mutex mutex_;
  std::condition_variable moved_;  // a message, the end of the job, a peer or a stream that changed
  std::condition_variable wake_;   // the thread
  std::vector<PeerState> peers_;   // by rank; this one's own is not used
  std::deque<Incoming> inbox_;
  std::optional<std::string> aborted_;
  bool refused_ = false;   // by the hub, before all were here
  bool answered_ = false;  // the hub has
  bool joined_ = false;
  bool leaving_ = false;
  bool stop_ = false;

  DialedStream* stream_ = nullptr;  // the one to the hub that is in use
  int streams_ = 0;                 // to the hub that gRPC is not done with
  std::set<EndStream*> direct_;     // nor with these
  std::vector<std::unique_ptr<EndStream>> finished_;
  bool owes_hello_ = false;
  bool owes_abort_ = false;
  bool owes_alive_ = false;
  bool owes_data_ = false;  // that may be for several peers
  DirectReport report_;
  bool has_news_ = false;  // that the hub has not been told
  bool owes_report_ = false;
  enum class Goodbye { kNotYet, kOwed, kSaid, kHeard } goodbye_ = Goodbye::kNotYet;
  int next_ = 0;  // whose turn it is to be sent to
  Clock::time_point hub_heard_ = Clock::now();
  Clock::time_point written_ = Clock::now();
  Clock::time_point ticked_ = Clock::now();
  Clock::time_point dialed_ = Clock::now();
  Clock::time_point dial_at_ = Clock::now();
  std::chrono::milliseconds pause_{0};  // before the next dial
  std::string trouble_ = "it does not answer";

  std::atomic<std::uint64_t> longest_;
  std::atomic<std::uint64_t> sent_{0};
  std::atomic<std::uint64_t> received_{0};
  std::unique_ptr<PeerDoor> door_;
  std::thread thread_;
};

}  // namespace tersewire
