#include "trainer/members/server_copy.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "tersewire/error.h"
#include "trainer/members/node_report.h"

namespace tersewire::trainer {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
constexpr std::size_t kHeaderBytes = sizeof(ServerPiece::kKind) + sizeof(ServerPiece);

// Before an array's name and its values.
struct ArrayHeader {
  std::uint64_t name_bytes = 0;
  std::uint64_t elems = 0;
};

void append(ByteView more, Bytes& bytes) { bytes.insert(bytes.end(), more.begin(), more.end()); }

Bytes bytes_of_server(const NodeCheckpoint& node) {
  Bytes bytes(1, std::byte{0});  // where the node has none, too
  for (const auto& [key, array] : node.arrays) {
    if (!is_of_server(key)) continue;
    const ArrayHeader header{.name_bytes = key.size(), .elems = array.values.size()};
    append(std::as_bytes(std::span(&header, 1)), bytes);
    append(std::as_bytes(std::span(key)), bytes);
    append(std::as_bytes(std::span(array.values)), bytes);
  }
  return bytes;
}

// Nothing where they are none.
std::optional<NodeCheckpoint::Arrays> arrays_in(ByteView bytes) {
  NodeCheckpoint::Arrays arrays;
  for (ByteView rest = bytes.subspan(1); !rest.empty();) {
    ArrayHeader header;
    if (rest.size() < sizeof(header)) return std::nullopt;
    std::memcpy(&header, rest.data(), sizeof(header));
    rest = rest.subspan(sizeof(header));
    if (header.name_bytes > rest.size() ||
        header.elems > (rest.size() - header.name_bytes) / sizeof(float)) {
      return std::nullopt;
    }
    const std::string key(reinterpret_cast<const char*>(rest.data()), header.name_bytes);
    NodeCheckpoint::Array array{.shape = {header.elems}, .values = {}};
    array.values.resize(header.elems);
    const std::size_t value_bytes = header.elems * sizeof(float);
    std::ranges::copy(rest.subspan(header.name_bytes, value_bytes),
                      std::as_writable_bytes(std::span(array.values)).begin());
    rest = rest.subspan(header.name_bytes + value_bytes);
    if (!is_of_server(key) || !arrays.emplace(key, std::move(array)).second) return std::nullopt;
  }
  return arrays;
}

}  // namespace

std::optional<Incoming> ServerCopyEnd::receive(std::chrono::milliseconds timeout) {
  if (auto message = take_first(waiting_)) return message;
  try {
    return receive_unkept(timeout, [this](const Incoming& message) { return take(message); });
  } catch (...) {
    {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
    }
    changed_.notify_all();
    throw;
  }
}

void ServerCopyEnd::expect_at_most(std::size_t bytes) {
  end().expect_at_most(std::max(bytes, kHeaderBytes + kPieceBytes));
}

bool ServerCopyEnd::take(const Incoming& message) {
  const Bytes& bytes = *message.bytes;
  if (bytes.size() < kHeaderBytes || !begins_as<ServerPiece>(bytes)) return false;
  ByteView values;
  const auto piece = parse_report<ServerPiece>(message, bytes.size() - kHeaderBytes, &values);
  const std::lock_guard lock(mutex_);
  // No node is two states ahead of another.
  const bool begins = !last_ && piece.begin == 0;
  const bool goes_on = last_ && bytes_.size() < last_->total_bytes && piece.step == last_->step &&
                       piece.total_bytes == last_->total_bytes && piece.begin == bytes_.size();
  if (message.from != before() || !(begins || goes_on) || values.empty() ||
      piece.total_bytes > most_bytes_ || values.size() > piece.total_bytes - piece.begin) {
    throw Error(ErrorCode::kDataLoss,
                "rank " + std::to_string(message.from) +
                    " sent an invalid piece of its server's state; start the same "
                    "program with the same arguments on every rank");
  }
  bytes_.insert(bytes_.end(), values.begin(), values.end());
  last_ = piece;
  changed_.notify_all();
  return true;
}

bool ServerCopyEnd::has_come(std::chrono::milliseconds timeout) {
  if (alone_ && !is_whole()) {
    auto message = end().receive(timeout);
    if (message && !take(*message)) waiting_.push_back(*std::move(message));
    return is_whole();
  }
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [this] { return failure_ || is_whole(); });
}

NodeCheckpoint::Arrays ServerCopyEnd::swap(const NodeCheckpoint& own, const WaitLimits& limits) {
  const Bytes sent = bytes_of_server(own);
  for (std::size_t begin = 0; begin < sent.size(); begin += kPieceBytes) {
    const ByteView piece =
        ByteView(sent).subspan(begin, std::min(kPieceBytes, sent.size() - begin));
    end().send(ring_.next(rank()), pack_report(ServerPiece{own.step, sent.size(), begin}, piece));
  }
  await(end(), before(), "its server's state", limits,
        [this](std::chrono::milliseconds timeout) { return has_come(timeout); });
  std::unique_lock lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  const Bytes bytes = std::exchange(bytes_, {});
  const std::uint64_t step = std::exchange(last_, std::nullopt)->step;
  lock.unlock();
  auto arrays = arrays_in(bytes);
  if (!arrays || step != own.step) {
    throw Error(ErrorCode::kDataLoss,
                "what rank " + std::to_string(before()) + " sent for step " + std::to_string(step) +
                    " is not its server's state after step " + std::to_string(own.step) +
                    "; run one version everywhere");
  }
  return *std::move(arrays);
}

}  // namespace tersewire::trainer
