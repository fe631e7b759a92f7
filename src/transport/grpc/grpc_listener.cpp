#include "grpc_listener.h"

#include <chrono>

#include "errors.h"
#include "grpc_batch.h"
#include "grpc_credentials.h"

namespace tersewire {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kHandshake(10000);
// For a connection without streams.
constexpr milliseconds kIdle(60000);

}  // namespace

GrpcListener::GrpcListener(const std::string& address, const GrpcSecurity& security,
                           grpc::CallbackGenericService& service)
    : door_(address) {
  grpc::ServerBuilder builder;
  acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      server_credentials(security));
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             static_cast<int>(kHandshake.count()));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, static_cast<int>(kIdle.count()));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 4);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kLookaheadBytes);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
  builder.SetMaxReceiveMessageSize(kMostBatchBytes);
  builder.RegisterCallbackGenericService(&service);
  server_ = builder.BuildAndStart();
  if (!server_) {
    fail(ErrorCode::kInternal, "gRPC does not serve '{}'; report it", address);
  }
}

void GrpcListener::close() {
  door_.close();
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

void GrpcListener::open() {
  door_.open([acceptor = acceptor_, listener = door_.socket()](int descriptor) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.listener_fd = listener;  // later gRPC refuses a connection without
    connection.fd = descriptor;
    acceptor->HandleNewConnection(&connection);
  });
}

}  // namespace tersewire
