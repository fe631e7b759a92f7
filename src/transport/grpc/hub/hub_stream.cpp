#include "hub_stream.h"

#include "grpc_hub.h"
#include "grpc_pair.h"

namespace tersewire {
namespace {

// A window on its way, one that is sent again, and room for what is said beside them.
constexpr std::size_t kMostQueuedBytes = 3 * kWindowBytes;

}  // namespace

void HubStream::OnReadDone(bool ok) { hub_.on_read(*this, incoming_, ok); }

void HubStream::OnWriteDone(bool ok) { hub_.on_written(*this, ok); }

void HubStream::OnDone() {
  hub_.on_done(*this);
  delete this;
}

void HubStream::write(grpc::ByteBuffer batch) {
  outgoing_.Swap(&batch);
  writing = true;
  limit.begins(outgoing_.Length());
  StartWrite(&outgoing_);
}

bool HubStream::put(std::uint32_t from, const grpc::Slice& record) {
  std::size_t& bytes = queued_bytes_[from];
  if (bytes + record.size() > kMostQueuedBytes) return false;
  bytes += record.size();
  queue_.emplace_back(from, record);
  return true;
}

void HubStream::move_into(BatchWriter& batch) {
  while (!queue_.empty() && batch.forward(queue_.front().second)) {
    queued_bytes_[queue_.front().first] -= queue_.front().second.size();
    queue_.pop_front();
  }
}

void HubStream::drop(std::uint32_t from) {
  std::erase_if(queue_, [&](const auto& queued) { return queued.first == from; });
  queued_bytes_.erase(from);
}

void HubStream::drop_all() {
  queue_.clear();
  queued_bytes_.clear();
}

}  // namespace tersewire
