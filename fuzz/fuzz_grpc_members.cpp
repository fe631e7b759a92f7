// Arbitrary bytes as what members, hubs and journals of a changing job say: what is none is
// refused, what is read is written as it was, and whatever members say, a hub's lists make sense.
//
// Input: a byte that says which, then the bytes; or, for a hub that listens to members, where the
// byte is 128 or more in a job with a server, for each
// record 1 byte of seconds that pass, 1 of its length, and the record.
#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "fuzz_support.h"
#include "membership.h"

namespace tersewire::fuzz {
namespace {

using namespace std::chrono_literals;

// With the checksum that it should have, so that what lies before it is reached.
Bytes mended(ByteView journal) {
  Bytes bytes(journal.begin(), journal.end());
  const std::uint64_t sum = XXH3_64bits(bytes.data(), bytes.size());
  const auto* const first = reinterpret_cast<const std::byte*>(&sum);
  bytes.insert(bytes.end(), first, first + sizeof(sum));
  return bytes;
}

void require_sense(const MemberList& list) {
  require(list.nodes() <= list.members.size(), "workers and servers are members");
  std::set<std::string> names;
  std::set<std::uint32_t> ranks;
  for (const MemberEntry& member : list.members) {
    require(names.insert(member.name).second, "nobody is in a generation twice");
    if (!member.base_rank) continue;
    const std::uint32_t base_nodes = list.base_workers + list.base_servers;
    require(*member.base_rank < base_nodes, "who had a state had a rank");
    require((*member.base_rank >= list.base_workers) == member.serves, "as what it is");
    require(ranks.insert(*member.base_rank).second, "a rank was one member's");
  }
  for (std::size_t rank = 0; rank < list.nodes(); ++rank) {
    require(list.members[rank].serves == (rank >= list.workers), "workers come first");
  }
  for (std::size_t rank = list.nodes(); rank < list.members.size(); ++rank) {
    require(list.members[rank].base_rank.has_value(), "who leaves has something to hand over");
  }
  require(parse_list(list_data(list)) == list, "a list is read as it was written");
}

void listen(Input& input, int servers) {
  Membership::Clock::time_point now{1h};
  Membership hub({.first = 2, .least = 1, .most = 3, .servers = servers, .deadline = 10s}, {}, now);
  while (!input.rest().empty()) {
    now += std::chrono::seconds(input.take<std::uint8_t>());
    Bytes record(std::min<std::size_t>(input.take<std::uint8_t>(), input.rest().size()));
    for (std::byte& byte : record) byte = input.take<std::byte>();
    hub.tick(now);
    succeeds([&] {
      // As a hub does.
      const MemberSays says = parse_member(record);
      if (says.phase == MemberPhase::kFoundDone) return hub.find_done(says.name, now);
      if (says.phase != MemberPhase::kWatches) hub.hear(says, now);
    });
    require_sense(hub.list(now));
    require(parse_journal(journal_bytes(hub.journal())) == hub.journal(), "a journal is read back");
  }
}

}  // namespace
}  // namespace tersewire::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tersewire;
  using namespace tersewire::fuzz;
  Input input(data, size);
  const auto which = input.take<std::uint8_t>();
  if (which % 4 == 3) {
    listen(input, which >= 128 ? 1 : 0);
    return 0;
  }
  const auto bytes = std::as_bytes(input.rest());
  succeeds([&] {
    if (which % 4 == 0) {
      const MemberSays says = parse_member(bytes);
      require(parse_member(member_data(says)) == says, "a member is read as it was written");
    } else if (which % 4 == 1) {
      const MemberList list = parse_list(bytes);
      require(parse_list(list_data(list)) == list, "a list is read as it was written");
      MemberList with_traffic = list;
      succeeds([&] { parse_traffic(bytes, with_traffic); });
    } else {
      succeeds([&] {
        const std::vector<RankRecord> ranks = parse_rank_journal(mended(bytes));
        require(parse_rank_journal(journal_bytes(ranks)) == ranks, "a journal is read back");
      });
      const Journal journal = parse_journal(mended(bytes));
      require(parse_journal(journal_bytes(journal)) == journal, "a journal is read back");
    }
  });
  return 0;
}
