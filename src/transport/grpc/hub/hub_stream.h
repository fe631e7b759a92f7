// A stream at the hub: a node's, or the call of a member that says how it stands.
#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "grpc_batch.h"

namespace tersewire {

class GrpcHubServer;

// From its connection to its end. Everything under the hub's mutex but what gRPC calls. It deletes
// itself when gRPC is done with it.
class HubStream final : public grpc::ServerGenericBidiReactor {
 public:
  HubStream(GrpcHubServer& hub, grpc::GenericCallbackServerContext& context)
      : hub_(hub), context_(context) {}

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone() override;

  void read() { StartRead(&incoming_); }
  void write(grpc::ByteBuffer batch);
  void cancel() { context_.TryCancel(); }
  [[nodiscard]] bool is_of_member() const { return context_.method() == kMemberMethod; }
  [[nodiscard]] std::shared_ptr<const grpc::AuthContext> peer() const {
    return context_.auth_context();
  }
  // As ipv4:192.0.2.1:40000.
  [[nodiscard]] std::string address() const { return context_.peer(); }

  // Keeps a record of rank `from` until it is written; false where there is no room for it.
  [[nodiscard]] bool put(std::uint32_t from, const grpc::Slice& record);
  // Of what is kept, as much as the batch has room for.
  void move_into(BatchWriter& batch);
  // Forgets what is kept of one rank, or of all.
  void drop(std::uint32_t from);
  void drop_all();

  std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
  std::optional<std::uint32_t> rank;  // once it has said hello
  std::uint32_t generation = 0;       // in this one
  std::optional<std::string> over;    // why that is over
  std::string tells_end_to;           // whose call it is that hears the last of the job
  bool writing = false;
  BatchLimit limit;
  bool owes_roster = false;
  bool owes_addresses = false;
  bool owes_abort = false;
  std::optional<grpc::Status> last;  // it is to end with this
  bool finished = false;

 private:
  GrpcHubServer& hub_;
  grpc::GenericCallbackServerContext& context_;
  grpc::ByteBuffer incoming_;
  grpc::ByteBuffer outgoing_;
  std::deque<std::pair<std::uint32_t, grpc::Slice>> queue_;  // records by their sender
  std::map<std::uint32_t, std::size_t> queued_bytes_;
};

}  // namespace tersewire
