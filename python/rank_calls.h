// What the ranks of a job tell each other before they exchange gradients: texts to compare, and the
// parameters that all begin with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tersewire/transport.h"

namespace tersewire::python {

// Every rank makes the same calls in the same order. After a failure the job is over on every rank.
// One thread at a time.
class RankCalls {
 public:
  // The most that a rank may say in gather().
  static constexpr std::size_t kMostBytes = std::size_t{1} << 20;
  // No message has more: of a lane for calls.
  static constexpr std::size_t kLongestMessage = kMostBytes + 8;

  // `lane` must outlive it. `where`: the hub, for sentences.
  RankCalls(Transport& lane, const WaitLimits& limits, std::string where);

  // What every rank says, by rank, told by rank 0. Throws kInvalidArgument for more than
  // kMostBytes, and otherwise like receive_within().
  std::vector<Bytes> gather(ByteView own);

  // Fills `data`, as long on every rank, with that of `root`, which waits until all others are
  // there and then for nobody: a copy is kept until they have it. Throws like receive_within();
  // `data` is then worth nothing.
  void broadcast(int root, std::span<std::byte> data);

 private:
  enum class Kind : std::uint32_t { kGather = 1, kBroadcast = 2 };

  [[nodiscard]] SharedBytes message(Kind kind, ByteView data) const;
  // What that rank says in this call, without its head.
  Bytes from(int rank, Kind kind);
  Bytes receive(int rank);
  [[noreturn]] void fail_apart(int rank) const;
  template <typename Call>
  auto made(const Call& call);

  Transport& lane_;
  WaitLimits limits_;
  std::string where_;
  std::uint32_t call_ = 0;
  std::vector<SharedBytes> early_;  // by sender; null: nothing has come of it that is not taken
};

}  // namespace tersewire::python
