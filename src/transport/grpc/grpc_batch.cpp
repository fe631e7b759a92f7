#include "grpc_batch.h"

#include <grpcpp/version_info.h>
#if GRPC_CPP_VERSION_MINOR > 65
#include <absl/log/globals.h>
#else
#include <grpc/support/log.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

#include "byte_io.h"
#include "errors.h"

namespace tersewire {
namespace {

// A slice of its own costs more than copying so much.
constexpr std::size_t kCopiedBytes = 4096;
// Batches, to write.
constexpr std::chrono::milliseconds kFast(100);
constexpr std::chrono::milliseconds kSlow(500);

// Bytes that live until gRPC lets go of them.
template <typename Owner>
grpc::Slice owning(ByteView bytes, Owner owner) {
  auto kept = std::make_unique<Owner>(std::move(owner));
  grpc::Slice slice(
      const_cast<std::byte*>(bytes.data()), bytes.size(),
      [](void* user_data) { delete static_cast<Owner*>(user_data); }, kept.get());
  static_cast<void>(kept.release());
  return slice;
}

}  // namespace

void BatchLimit::begins(std::size_t bytes, Clock::time_point now) {
  written_ = bytes;
  since_ = now;
}

void BatchLimit::ends(Clock::time_point now) {
  const Clock::duration took = now - since_;
  if (took > kSlow) {
    bytes_ = std::max(bytes_ / 2, kLeastBatchBytes);
  } else if (took < kFast && written_ > bytes_ / 2) {
    bytes_ = std::min(bytes_ + kLeastBatchBytes, kMostBatchBytes);
  }
}

void BatchWriter::add(const RecordHead& head, ByteView data) {
  const RecordHead whole = sealed(head, data, secure_);
  append_value(copied_, whole);
  append(copied_, data.data(), data.size());
  bytes_ += kRecordHeadBytes + data.size();
}

void BatchWriter::add(const RecordHead& head, ByteView data, SharedBytes owner) {
  if (data.size() <= kCopiedBytes) return add(head, data);
  append_value(copied_, sealed(head, data, secure_));
  close_copied();
  slices_.push_back(owning(data, std::move(owner)));
  bytes_ += kRecordHeadBytes + data.size();
}

void BatchWriter::add_copy(const RecordHead& head, ByteView data) {
  append_value(copied_, sealed_copy(head, data, secure_));
  bytes_ += kRecordHeadBytes;
}

bool BatchWriter::forward(const grpc::Slice& record) {
  if (bytes_ > 0 && bytes_ + record.size() > most_) return false;
  if (record.size() <= kCopiedBytes) {
    append(copied_, record.begin(), record.size());
  } else {
    close_copied();
    slices_.push_back(record);
  }
  bytes_ += record.size();
  return true;
}

void BatchWriter::close_copied() {
  if (copied_.empty()) return;
  auto bytes = std::make_unique<Bytes>(std::exchange(copied_, {}));
  const ByteView view = *bytes;
  slices_.push_back(owning(view, std::move(bytes)));
}

grpc::ByteBuffer BatchWriter::finish() {
  close_copied();
  bytes_ = 0;
  const auto slices = std::exchange(slices_, {});
  return {slices.data(), slices.size()};
}

namespace {

std::atomic<std::uint64_t> handshakes_failed{0};

}  // namespace

void keep_grpc_quiet() {
  static const bool once = [] {
    if (std::getenv("GRPC_VERBOSITY") == nullptr) {
#if GRPC_CPP_VERSION_MINOR > 65
      // What it writes to Abseil's log cannot be read there without being written as well.
      absl::SetMinLogLevel(absl::LogSeverityAtLeast::kFatal);
#else
      gpr_set_log_function([](gpr_log_func_args* line) {
        if (std::string_view(line->message).starts_with("Handshake failed")) ++handshakes_failed;
      });
#endif
    }
    return true;
  }();
  static_cast<void>(once);
}

std::uint64_t failed_handshakes() { return handshakes_failed; }

grpc::Slice in_one_piece(const grpc::ByteBuffer& buffer) {
  grpc::Slice slice;
  if (!buffer.TrySingleSlice(&slice).ok() && !buffer.DumpToSingleSlice(&slice).ok()) {
    fail(ErrorCode::kDataLoss,
         "gRPC delivered a message that cannot be read; run one version everywhere");
  }
  return slice;
}

ByteView view_of(const grpc::Slice& slice) {
  return std::as_bytes(std::span(slice.begin(), slice.size()));
}

}  // namespace tersewire
