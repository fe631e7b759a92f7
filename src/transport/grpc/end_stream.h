// A node's streams: the one to the hub, and direct ones to and from its peers.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "grpc_batch.h"
#include "grpc_listener.h"

namespace tersewire {

class GrpcEnd;

// Everything under the end's mutex but what gRPC calls, which hands it to the end. The end deletes
// it when gRPC is done with it, and not in a thread of gRPC's, which the last channel to go waits
// for.
class EndStream {
 public:
  EndStream() = default;
  virtual ~EndStream() = default;
  EndStream(const EndStream&) = delete;
  EndStream& operator=(const EndStream&) = delete;

  virtual void read() = 0;
  // Where none is being written.
  virtual void write(grpc::ByteBuffer batch) = 0;
  // That one is written.
  virtual void wrote() { writing = false; }
  // Reading fails soon.
  virtual void cancel() = 0;
  // Reading has failed, and nothing is written any more. Once.
  virtual void let_go() = 0;

  // Both for direct streams: a peer's, once it is known whose it is.
  bool is_direct = false;
  std::optional<int> peer;
  bool writing = false;
  BatchLimit limit;
  std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point heard = since;
  std::chrono::steady_clock::time_point written = since;
};

// One connection that this node has dialed, and the stream in it.
class DialedStream final : public EndStream,
                           public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  DialedStream(GrpcEnd& end, std::shared_ptr<grpc::Channel> channel, const char* method);

  void start();
  void read() override { StartRead(&incoming_); }
  void write(grpc::ByteBuffer batch) override;
  void cancel() override { context_.TryCancel(); }
  void let_go() override { RemoveHold(); }

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  GrpcEnd& end_;
  std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::ByteBuffer incoming_;
  grpc::ByteBuffer outgoing_;
};

// A stream that came to this node's own port.
class AcceptedStream final : public EndStream, public grpc::ServerGenericBidiReactor {
 public:
  AcceptedStream(GrpcEnd& end, grpc::GenericCallbackServerContext& context)
      : end_(end), context_(context) {}

  void read() override;
  void write(grpc::ByteBuffer batch) override;
  void wrote() override;
  void cancel() override { context_.TryCancel(); }
  void let_go() override { finish(grpc::Status::OK); }
  // Tells who dialed why it ends.
  void finish(const grpc::Status& status);
  [[nodiscard]] std::shared_ptr<const grpc::AuthContext> who() const {
    return context_.auth_context();
  }

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone() override;

 private:
  GrpcEnd& end_;
  grpc::GenericCallbackServerContext& context_;
  grpc::ByteBuffer incoming_;
  grpc::ByteBuffer outgoing_;
  std::optional<grpc::Status> last_;  // it ends with this
  bool finished_ = false;
};

// The port at which a node listens for its peers, whose streams it hands to the end.
class PeerDoor final : public grpc::CallbackGenericService {
 public:
  PeerDoor(GrpcEnd& end, const std::string& address, const GrpcSecurity& security)
      : end_(end), listener_(address, security, *this) {}

  [[nodiscard]] const std::string& address() const { return listener_.address(); }
  void open() { listener_.open(); }
  void close() { listener_.close(); }

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

 private:
  GrpcEnd& end_;
  GrpcListener listener_;
};

}  // namespace tersewire
