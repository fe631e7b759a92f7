// A port at which gRPC serves: a hub's, or a node's for its peers.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <cstdint>
#include <memory>
#include <string>

#include "hub_door.h"
#include "tersewire/grpc_network.h"

namespace tersewire {

class GrpcListener {
 public:
  // Listens at "HOST:PORT", and lets nobody in before open(). Throws kUnavailable where it cannot,
  // and like server_credentials().
  GrpcListener(const std::string& address, const GrpcSecurity& security,
               grpc::CallbackGenericService& service);
  ~GrpcListener() { close(); }
  GrpcListener(const GrpcListener&) = delete;
  GrpcListener& operator=(const GrpcListener&) = delete;

  // From now on `service` is called, by gRPC's threads.
  void open();
  // Ends the streams that are left, and waits until gRPC is done with them. Again does nothing.
  void close();
  // Those of the door (hub_door.h).
  [[nodiscard]] const std::string& address() const { return door_.address(); }
  [[nodiscard]] const std::string& number() const { return door_.number(); }
  void let_in(const std::string& peer) { door_.let_in(peer); }
  [[nodiscard]] std::uint64_t put_out() const { return door_.put_out(); }

 private:
  HubDoor door_;
  std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace tersewire
