// Parts that are worked on at once, each by a thread of the node's pool.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "partition.h"
#include "placement.h"
#include "tersewire/communicator.h"
#include "tersewire/thread_pool.h"

namespace tersewire {

// The first of `rest`, as many as are encoded at once, which it then lacks. Codecs are by part.
inline std::span<const std::size_t> next_at_once(
    std::span<const std::size_t>& rest, const std::vector<std::shared_ptr<const Codec>>& codecs,
    const ThreadPool* pool) {
  const bool alone = pool == nullptr || codecs[rest.front()]->traits().splits;
  const auto some = rest.first(alone ? 1 : std::min(pool->threads(), rest.size()));
  rest = rest.subspan(some.size());
  return some;
}

// The pool for these parts; null where there is none, or where handing them out would cost more
// than it saves.
inline ThreadPool* pool_for(const Placement& placement, std::span<const std::size_t> some,
                            ThreadPool* pool) {
  constexpr std::size_t kLeastValues = std::size_t{1} << 16;
  if (pool == nullptr || some.size() < 2) return nullptr;
  std::size_t values = 0;
  for (const std::size_t part : some) values += placement.parts[part].elems;
  return values < kLeastValues ? nullptr : pool;
}

// Payloads that were encoded beside each other, before their turn in a message.
class EncodedAhead {
 public:
  // Encodes these parts by encode(part, payload), in place of those that were before.
  template <typename Encode>
  void encode(std::span<const std::size_t> some, ThreadPool* pool, const Encode& encode) {
    parts_.assign(some.begin(), some.end());
    made_.resize(std::max(made_.size(), some.size()));
    run_parts(pool, some.size(), [&](std::size_t i) {
      made_[i].payload.clear();
      made_[i].encoded = encode(some[i], made_[i].payload);
    });
  }
  void clear() { parts_.clear(); }

  // Appends a part's payload to `out`; nothing where it was not encoded.
  std::optional<Encoded> append(std::size_t part, Bytes& out) const {
    const auto found = std::ranges::find(parts_, part);
    if (found == parts_.end()) return std::nullopt;
    const Made& made = made_[static_cast<std::size_t>(found - parts_.begin())];
    out.insert(out.end(), made.payload.begin(), made.payload.end());
    return made.encoded;
  }

 private:
  struct Made {
    Encoded encoded;
    Bytes payload;
  };

  std::vector<std::size_t> parts_;
  std::vector<Made> made_;  // of them, and with memory for more
};

// Calls task(part, counters) for each, and adds up what they count.
template <typename Task>
void for_each_part(std::span<const std::size_t> some, ThreadPool* pool, Counters& counters,
                   const Task& task) {
  std::vector<Counters> counted(some.size());
  run_parts(pool, some.size(), [&](std::size_t i) { task(some[i], counted[i]); });
  for (const Counters& part : counted) {
    counters.decode_seconds += part.decode_seconds;
    counters.pulled_values += part.pulled_values;
    counters.unused_pushes += part.unused_pushes;
  }
}

}  // namespace tersewire
