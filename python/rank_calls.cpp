#include "python/rank_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tersewire/error.h"

namespace tersewire::python {
namespace {

// Before what is said in a call.
struct CallHead {
  std::uint32_t call;
  std::uint32_t kind;

  bool operator==(const CallHead&) const = default;
};
constexpr std::size_t kHeadBytes = 8;
static_assert(sizeof(CallHead) == kHeadBytes);
static_assert(RankCalls::kLongestMessage == RankCalls::kMostBytes + kHeadBytes);

}  // namespace

RankCalls::RankCalls(Transport& lane, const WaitLimits& limits, std::string where)
    : lane_(lane),
      limits_(limits),
      where_(std::move(where)),
      early_(static_cast<std::size_t>(lane.size())) {}

SharedBytes RankCalls::message(Kind kind, ByteView data) const {
  const CallHead head{.call = call_, .kind = static_cast<std::uint32_t>(kind)};
  Bytes bytes(kHeadBytes + data.size());
  std::memcpy(bytes.data(), &head, kHeadBytes);
  std::ranges::copy(data, bytes.begin() + kHeadBytes);
  return std::make_shared<const Bytes>(std::move(bytes));
}

void RankCalls::fail_apart(int rank) const {
  throw Error(ErrorCode::kFailedPrecondition,
              fmt::format("rank {} made another call than rank {}; make the same calls of "
                          "tersewire.torch in the same order on every rank",
                          rank, lane_.rank()));
}

// The next message of that rank. Another that is a call ahead has said one thing, and waits.
Bytes RankCalls::receive(int rank) {
  while (!early_[static_cast<std::size_t>(rank)]) {
    Incoming incoming =
        receive_within(lane_, limits_, fmt::format("what rank {} says by way of {}", rank, where_),
                       [&](int other) { return other == rank; });
    SharedBytes& early = early_[static_cast<std::size_t>(incoming.from)];
    if (early) fail_apart(incoming.from);
    early = std::move(incoming.bytes);
  }
  return *std::exchange(early_[static_cast<std::size_t>(rank)], nullptr);
}

Bytes RankCalls::from(int rank, Kind kind) {
  Bytes bytes = receive(rank);
  CallHead head{};
  if (bytes.size() >= kHeadBytes) std::memcpy(&head, bytes.data(), kHeadBytes);
  if (head != CallHead{.call = call_, .kind = static_cast<std::uint32_t>(kind)}) fail_apart(rank);
  bytes.erase(bytes.begin(), bytes.begin() + kHeadBytes);
  return bytes;
}

template <typename Call>
auto RankCalls::made(const Call& call) {
  try {
    ++call_;
    return call();
  } catch (const Error& error) {
    lane_.abort(error.what());
    throw;
  }
}

std::vector<Bytes> RankCalls::gather(ByteView own) {
  if (own.size() > kMostBytes) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("rank {} would send {} bytes, and at most {} are allowed; send less",
                            lane_.rank(), own.size(), kMostBytes));
  }
  return made([&] {
    const int ranks = lane_.size();
    std::vector<Bytes> told(static_cast<std::size_t>(ranks));
    const bool tells = lane_.rank() == 0;
    if (tells) {
      told[0].assign(own.begin(), own.end());
    } else {
      lane_.send(0, message(Kind::kGather, own));
    }
    for (int rank = tells ? 1 : 0; rank < ranks; ++rank) {
      told[static_cast<std::size_t>(rank)] = from(tells ? rank : 0, Kind::kGather);
    }
    for (const Bytes& bytes : told) {
      const SharedBytes shared = message(Kind::kGather, bytes);
      for (int to = 1; tells && to < ranks; ++to) lane_.send(to, shared);
    }
    return told;
  });
}

void RankCalls::broadcast(int root, std::span<std::byte> data) {
  if (root < 0 || root >= lane_.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("there is no rank {} in a job of {}; use 0 to {}", root, lane_.size(),
                            lane_.size() - 1));
  }
  made([&] {
    const bool tells = lane_.rank() == root;
    if (!tells) lane_.send(root, message(Kind::kBroadcast, {}));
    for (int rank = 0; tells && rank < lane_.size(); ++rank) {
      if (rank != root) from(rank, Kind::kBroadcast);
    }
    // A piece of nothing, too: nobody may be further ahead than this call.
    for (std::size_t at = 0; at == 0 || at < data.size(); at += kMostBytes) {
      const auto piece = data.subspan(at, std::min(kMostBytes, data.size() - at));
      if (tells) {
        const SharedBytes shared = message(Kind::kBroadcast, piece);
        for (int to = 0; to < lane_.size(); ++to) {
          if (to != root) lane_.send(to, shared);
        }
        continue;
      }
      const Bytes came = from(root, Kind::kBroadcast);
      if (came.size() != piece.size()) {
        throw Error(
            ErrorCode::kDataLoss,
            fmt::format("rank {} sends {} bytes where {} were expected; run one version everywhere",
                        root, came.size(), piece.size()));
      }
      std::ranges::copy(came, piece.begin());
    }
  });
}

}  // namespace tersewire::python
