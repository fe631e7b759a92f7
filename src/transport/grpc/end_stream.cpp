#include "end_stream.h"

#include <utility>

#include "grpc_end.h"

namespace tersewire {

DialedStream::DialedStream(GrpcEnd& end, std::shared_ptr<grpc::Channel> channel, const char* method)
    : end_(end), channel_(std::move(channel)), stub_(channel_) {
  stub_.PrepareBidiStreamingCall(&context_, method, {}, this);
}

void DialedStream::start() {
  AddHold();  // write() is called from any thread
  StartRead(&incoming_);
  StartCall();
}

void DialedStream::write(grpc::ByteBuffer batch) {
  outgoing_.Swap(&batch);
  writing = true;
  limit.begins(outgoing_.Length());
  StartWrite(&outgoing_);
}

void DialedStream::OnReadDone(bool ok) { end_.on_read(*this, incoming_, ok); }
void DialedStream::OnWriteDone(bool ok) { end_.on_written(*this, ok); }
void DialedStream::OnDone(const grpc::Status& status) { end_.on_done(*this, status); }

// Nothing comes after its end.
void AcceptedStream::read() {
  if (!last_) StartRead(&incoming_);
}

void AcceptedStream::write(grpc::ByteBuffer batch) {
  outgoing_.Swap(&batch);
  writing = true;
  limit.begins(outgoing_.Length());
  StartWrite(&outgoing_);
}

void AcceptedStream::wrote() {
  writing = false;
  if (last_) finish(*last_);
}

// gRPC wants no write to be on its way.
void AcceptedStream::finish(const grpc::Status& status) {
  if (!last_) last_ = status;
  if (writing || std::exchange(finished_, true)) return;
  Finish(*last_);
}

void AcceptedStream::OnReadDone(bool ok) { end_.on_read(*this, incoming_, ok); }
void AcceptedStream::OnWriteDone(bool ok) { end_.on_written(*this, ok); }
void AcceptedStream::OnDone() { end_.on_done(*this, grpc::Status::OK); }

grpc::ServerGenericBidiReactor* PeerDoor::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  listener_.let_in(context->peer());
  auto* const stream = new AcceptedStream(end_, *context);
  end_.on_accepted(*stream, context->method() == kPeerMethod);
  return stream;
}

}  // namespace tersewire
