// Batches of records as gRPC's messages, without copying what is long.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "grpc_record.h"
#include "tersewire/transport.h"

namespace tersewire {

// The hub's methods: a node's stream, and a member's call. A node's: a stream of a peer.
inline constexpr const char* kExchangeMethod = "/tersewire.Hub/Exchange";
inline constexpr const char* kMemberMethod = "/tersewire.Hub/Member";
inline constexpr const char* kPeerMethod = "/tersewire.Node/Exchange";
// What HTTP/2 may have on its way in a stream: gRPC's own guesses begin at 64 KiB.
inline constexpr int kLookaheadBytes = 4 << 20;
// A batch in one frame: gRPC's own are of 16 KiB.
inline constexpr int kFrameBytes = 1 << 20;

// How much a stream's next batch may hold. The other end hears whole batches alone and must not
// take a slow link for a dead one: less after one that took long to write, more after a full one
// that did not.
class BatchLimit {
 public:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  void begins(std::size_t bytes, Clock::time_point now = Clock::now());
  void ends(Clock::time_point now = Clock::now());

 private:
  std::size_t bytes_ = kLeastBatchBytes;
  std::size_t written_ = 0;  // by the batch on its way
  Clock::time_point since_{};
};

class BatchWriter {
 public:
  explicit BatchWriter(bool secure, std::size_t most = kMostBatchBytes)
      : secure_(secure), most_(most) {}

  // What a record's data may have where `heads` more are to follow it; 0 where not even a head
  // fits.
  [[nodiscard]] std::size_t room(std::size_t heads = 0) const {
    const std::size_t begin = bytes_ + kRecordHeadBytes;
    const std::size_t end = kMostBatchBytes - std::min(kMostBatchBytes, kRecordHeadBytes * heads);
    return std::min(most_, end) > begin ? std::min({most_ - begin, end - begin, kSentRecordBytes})
                                        : 0;
  }
  [[nodiscard]] bool empty() const { return bytes_ == 0; }

  // A record whose data are copied.
  void add(const RecordHead& head, ByteView data = {});
  // One whose data are in `owner`, which is kept for as long as gRPC needs it.
  void add(const RecordHead& head, ByteView data, SharedBytes owner);
  // A copy with this head of the data record before it, which has these data.
  void add_copy(const RecordHead& head, ByteView data);
  // A record as it came; false where it has no room, which the first one has.
  [[nodiscard]] bool forward(const grpc::Slice& record);

  grpc::ByteBuffer finish();

 private:
  void close_copied();

  bool secure_;
  std::size_t most_;
  std::size_t bytes_ = 0;
  Bytes copied_;  // what goes behind the slices
  std::vector<grpc::Slice> slices_;
};

// gRPC writes what strangers do to its ports to the process's standard error. It does not, unless
// the user asks for it (GRPC_VERBOSITY).
void keep_grpc_quiet();

// TLS handshakes of this process that have failed so far: gRPC tells nobody but its log, and from
// 1.66 on not even that.
std::uint64_t failed_handshakes();

// A gRPC message in one piece.
grpc::Slice in_one_piece(const grpc::ByteBuffer& buffer);
ByteView view_of(const grpc::Slice& slice);

}  // namespace tersewire
