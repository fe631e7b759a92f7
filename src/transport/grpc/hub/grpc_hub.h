// The hub's side of the transport grpc: who sits on which rank, and a stream of each.
#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "grpc_batch.h"
#include "grpc_listener.h"
#include "hub_log.h"
#include "membership.h"
#include "revoked_certificates.h"
#include "tersewire/grpc_network.h"
#include "traffic_meter.h"

namespace tersewire {

class HubStream;

class GrpcHubServer final : public grpc::CallbackGenericService {
 public:
  // With `membership` the members make the network's nodes, of which there are none yet.
  GrpcHubServer(const std::string& address, int nodes, const GrpcSecurity& security,
                std::unique_ptr<Membership> membership = nullptr, HubJournal journal = {});
  ~GrpcHubServer() override;

  [[nodiscard]] const std::string& address() const { return listener_->number(); }
  [[nodiscard]] bool wait(std::chrono::milliseconds timeout) const;
  [[nodiscard]] std::string aborted() const;
  void abort(const std::string& reason);
  [[nodiscard]] std::vector<std::string> take_events();
  [[nodiscard]] MemberList status() const;

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

  // For the streams; gRPC's threads.
  void on_read(HubStream& stream, const grpc::ByteBuffer& batch, bool ok);
  void on_written(HubStream& stream, bool ok);
  void on_done(HubStream& stream);

 private:
  using Clock = std::chrono::steady_clock;

  // A rank.
  struct Seat {
    std::optional<std::uint64_t> incarnation;  // of who has come
    Clock::time_point heard{};
    HubStream* stream = nullptr;
    std::shared_ptr<TrafficMeter> meter;  // once it has come
    std::string address;                  // where its peers reach it directly
    std::string certificate;              // in PEM, that it came with
    bool is_known = false;                // to this hub, which has seen that, and may be told of
    DirectReport direct;                  // its last one
    bool left = false;
  };

  // --- With the mutex held.

  void take_batch(HubStream& stream, const grpc::ByteBuffer& batch);
  void pump(HubStream& stream);
  // Whether its rank's messages come and go on it, in the generation that runs.
  [[nodiscard]] bool is_seated(const HubStream& stream) const;
  void unseat(HubStream& stream);
  void finish(HubStream& stream, const grpc::Status& status);
  void end_with(const std::string& reason, const HubStream* said_by);
  [[nodiscard]] bool is_over() const;
  // What the ticker does, beside members.
  void log_strangers(Clock::time_point now);
  // Who does not say who it is, or does not take its end.
  void cancel_silent(Clock::time_point now);
  void tell_rosters();

  // Ranks: hub_seats.cpp.
  // `bytes` are the record, of which so many came.
  void take(HubStream& stream, const Record& record, const grpc::Slice& bytes, std::size_t came);
  void seat(HubStream& stream, const Record& record);
  // Not OK: the status that its stream ends with.
  [[nodiscard]] grpc::Status check_hello(HubStream& stream, const RecordHead& head,
                                         const Hello& hello) const;
  [[nodiscard]] std::optional<std::string> objection_to(HubStream& stream, std::uint32_t rank,
                                                        const Hello& hello) const;
  void relay(HubStream& stream, const Record& record, const grpc::Slice& bytes, std::size_t came);
  void announce();
  void take_report(Seat& seat, const DirectReport& report);
  [[nodiscard]] Bytes addresses() const;
  // Who is at the other end of this stream may not be this rank or member.
  [[nodiscard]] std::optional<std::string> objection_to(HubStream& stream,
                                                        const Identity& claimed) const;
  void put_out_revoked();
  void warn_of_expiry();
  void look_for_certificates();
  // The journal of fixed ranks.
  void keep_ranks();
  void recall_ranks();
  [[nodiscard]] std::vector<std::uint32_t> ages() const;

  // Members: hub_members.cpp.
  void answer_member(HubStream& stream, const Record& record);
  // Each: not OK where that is the answer.
  grpc::Status check_member(HubStream& stream, const MemberSays& says, Clock::time_point now);
  grpc::Status hear(const MemberSays& says, Clock::time_point now);
  // With fixed ranks, who were to begin the job and find that it is done already.
  grpc::Status hear_found_done(const MemberSays& says);
  [[nodiscard]] std::optional<std::uint32_t> rank_that_found_done(const MemberSays& says) const;
  [[nodiscard]] MemberList list_of_ranks() const;
  // With what has passed.
  [[nodiscard]] MemberList status_at(Clock::time_point now) const;
  [[nodiscard]] std::string name_of(std::uint32_t rank) const;
  // What the membership has come to: its generation's end or beginning, its sentences.
  void follow_members();
  void keep(const Bytes& journal);
  void open_generation();
  void close_generation(const std::string& reason);

  // --- Without it.

  void tick();

  bool secure_;
  GrpcSecurity security_;
  std::string job_;  // of the certificates
  RevokedCertificates revoked_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::unique_ptr<Membership> membership_;  // of a job whose members change
  HubJournal kept_;
  std::uint32_t generation_ = kOnlyGeneration;  // of the seats
  bool vanished_ = false;                       // the hub's own certificate, from its directory
  bool open_ = true;                            // whether that one runs
  JobPhase phase_ = JobPhase::kGathers;         // that the journal has
  std::vector<Seat> seats_;                     // by rank
  std::map<std::string, std::shared_ptr<TrafficMeter>> meters_;  // by name, of this generation
  std::set<HubStream*> streams_;
  std::optional<std::string> aborted_;
  bool all_came_ = false;
  bool places_changed_ = false;  // and with them what nodes are told of each other
  HubLog log_;
  std::uint64_t handshakes_failed_;  // that the log has heard of
  std::uint64_t put_out_ = 0;        // as well
  Clock::time_point next_expiry_look_{};
  bool stop_ = false;
  std::unique_ptr<GrpcListener> listener_;
  std::thread ticker_;
};

}  // namespace tersewire
