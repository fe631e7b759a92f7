#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>

#include "byte_io.h"
#include "errors.h"
#include "kernels.h"
#include "ternary_pack.h"
#include "three_lc_payload.h"
#include "zero_run.h"

namespace tersewire {
namespace {

using kernels::kDigitsPerGroup;

// Groups that are read at once, at most: their values stay in the first cache.
constexpr std::size_t kBlockGroups = 1024;
// Groups that decode() reads at once: few enough that the processor reads on while it stores.
constexpr std::size_t kStoredGroups = 256;
constexpr std::size_t kBlockElems = kBlockGroups * kDigitsPerGroup;
constexpr std::size_t kMaxParts = 64;
constexpr std::size_t kMinPartBytes = 1 << 14;
constexpr std::uint64_t kMaxLongRun = std::uint64_t{1} << 40;
// Larger outputs leave the caches before anyone reads them: they are written past them.
constexpr std::size_t kStreamingElems = std::size_t{1} << 21;
// A block in which only one group in so many is a literal is added group by group.
constexpr std::size_t kFewLiterals = 8;

const std::uint8_t* as_u8(ByteView bytes) {
  return reinterpret_cast<const std::uint8_t*>(bytes.data());
}

// A group that is not all zeros.
struct Literal {
  std::uint16_t at;  // its place in its block
  std::uint16_t group;
};

// The literals of a block.
struct Literals {
  std::size_t count = 0;
  std::array<Literal, kBlockGroups> items;

  [[nodiscard]] const Literal* begin() const { return items.data(); }
  [[nodiscard]] const Literal* end() const { return items.data() + count; }
};

// The groups of a body, block by block. The body has been checked.
class GroupReader {
 public:
  GroupReader(ByteView body, ThreeLcLayout layout, std::size_t at)
      : at_(as_u8(body) + at), long_runs_(layout.long_runs) {}

  // Reads `count` groups, kBlockGroups or fewer, and finds the literals among them.
  void read(std::size_t count, Literals& literals) {
    std::uint64_t i = zeros_;
    std::size_t found = 0;
    while (i < count) {
      const std::uint8_t byte = *at_++;
      // Written whether it is one or not: what comes next cannot be foretold by a branch.
      literals.items[found] = {.at = static_cast<std::uint16_t>(i), .group = byte};
      const bool is_run = byte >= kernels::kFirstRunCode;
      found += is_run || byte == kernels::kZeroGroup ? 0 : 1;
      i += is_run ? kernels::run_length(byte) : 1;
      if (long_runs_ && byte == kernels::kLongRunCode) i += varint();
    }
    zeros_ = i - count;
    literals.count = found;
  }

  // Skips whole blocks of the run that is open: a long run may claim more than anyone should walk
  // through. Returns how many groups that was.
  std::size_t skip_blocks() {
    const auto skipped = static_cast<std::size_t>(zeros_ / kBlockGroups * kBlockGroups);
    zeros_ -= skipped;
    return skipped;
  }

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const std::uint8_t byte = *at_++;
      value |= std::uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
  }

  const std::uint8_t* at_;
  std::uint64_t zeros_ = 0;  // of a run that goes on behind the block
  bool long_runs_;
};

// Where the values of a tensor are found.
struct GroupMap {
  bool partitions;
  std::size_t elems;
  std::size_t groups;

  // The element of digit k in group g; at or past `elems`: padding.
  [[nodiscard]] std::size_t elem(std::size_t g, std::size_t k) const {
    return partitions ? k * groups + g : g * kDigitsPerGroup + k;
  }
};

GroupMap map_of(const ThreeLcPayload& payload, std::size_t elems) {
  return {
      .partitions = payload.layout.partitions, .elems = elems, .groups = three_lc_groups(elems)};
}

// Where a part of the body begins, in bytes and in groups.
struct Cut {
  std::size_t byte = 0;
  std::size_t group = 0;
};

// A checked body, cut into parts that can be decoded side by side.
struct Parts {
  std::array<Cut, kMaxParts + 1> cuts{};
  std::size_t count = 1;
};

std::size_t wanted_parts(std::size_t body_bytes, const ThreadPool* pool) {
  const std::size_t threads = pool != nullptr ? pool->threads() : 1;
  return std::clamp<std::size_t>(body_bytes / kMinPartBytes, 1, std::min(threads, kMaxParts));
}

[[noreturn]] void fail_length(std::uint64_t groups, std::size_t expected) {
  fail(ErrorCode::kDataLoss, "a 3lc payload holds {} groups of five values where {} are expected",
       groups, expected);
}

// Without long runs every byte says by itself how many groups it stands for.
std::size_t groups_in(const ThreeLcPayload& payload, std::size_t byte, std::size_t bytes) {
  if (!payload.layout.zero_runs) return bytes;
  return static_cast<std::size_t>(kernels::count_groups(as_u8(payload.body) + byte, bytes));
}

Parts cut_plain(const ThreeLcPayload& payload, std::size_t wanted) {
  Parts parts;
  parts.count = wanted;
  for (std::size_t i = 0; i < wanted; ++i) {
    const Cut& from = parts.cuts[i];
    Cut& to = parts.cuts[i + 1];
    to.byte = payload.body.size() * (i + 1) / wanted;
    const std::size_t bytes = to.byte - from.byte;
    to.group = from.group + groups_in(payload, from.byte, bytes);
  }
  return parts;
}

Parts cut_long_runs(const ThreeLcPayload& payload, std::size_t wanted) {
  Parts parts;
  ByteReader reader(payload.body, kThreeLcHeadBytes);
  std::uint64_t groups = 0;
  std::size_t i = 1;
  while (reader.left() > 0) {
    const std::size_t byte = payload.body.size() - reader.left();
    if (i < wanted && byte >= payload.body.size() * i / wanted) {
      parts.cuts[i++] = {.byte = byte, .group = static_cast<std::size_t>(groups)};
    }
    const auto code = reader.read<std::uint8_t>("3lc group");
    groups += code < kernels::kFirstRunCode ? 1 : kernels::run_length(code);
    if (code == kernels::kLongRunCode) groups += reader.varint(kMaxLongRun, "3lc long run");
    if (groups > kMaxLongRun) {
      fail(ErrorCode::kDataLoss, "a 3lc payload holds more groups than any tensor");
    }
  }
  parts.cuts[i] = {.byte = payload.body.size(), .group = static_cast<std::size_t>(groups)};
  parts.count = i;
  return parts;
}

// The last groups, four or fewer, may hold padding, which has to be zero.
void check_padding(const ThreeLcPayload& payload, const Parts& parts, const GroupMap& map) {
  if (map.groups * kDigitsPerGroup == map.elems) return;
  Cut from = parts.cuts[parts.count - 1];
  if (!payload.layout.long_runs) {
    // They lie in the last four bytes, if not in fewer.
    const std::size_t bytes = std::min(payload.body.size(), kDigitsPerGroup - 1);
    const std::size_t byte = payload.body.size() - bytes;
    from = {.byte = byte, .group = map.groups - groups_in(payload, byte, bytes)};
  }
  GroupReader reader(payload.body, payload.layout, from.byte);
  Literals literals;
  for (std::size_t g = from.group; g < map.groups; g += kBlockGroups) {
    g += reader.skip_blocks();
    if (g >= map.groups) return;
    reader.read(std::min(kBlockGroups, map.groups - g), literals);
    for (const Literal& literal : literals) {
      unsigned digits = literal.group;
      for (std::size_t k = kDigitsPerGroup; k-- > 0; digits /= 3) {
        if (digits % 3 != 1 && map.elem(g + literal.at, k) >= map.elems) {
          fail(ErrorCode::kDataLoss, "a 3lc payload has a value where its padding should be");
        }
      }
    }
  }
}

Parts check_body(const ThreeLcPayload& payload, const GroupMap& map, const ThreadPool* pool) {
  const std::size_t wanted = wanted_parts(payload.body.size(), pool);
  const Parts parts =
      payload.layout.long_runs ? cut_long_runs(payload, wanted) : cut_plain(payload, wanted);
  const std::size_t groups = parts.cuts[parts.count].group;
  if (groups != map.groups) fail_length(groups, map.groups);
  if (!payload.layout.zero_runs && std::ranges::any_of(payload.body, [](std::byte b) {
        return b > std::byte{kernels::kMaxGroup};
      })) {
    fail(ErrorCode::kDataLoss, "a 3lc payload without zero runs holds a byte above 242");
  }
  check_padding(payload, parts, map);
  return parts;
}

// The five values of every group, three unused lanes behind them so that a group is one store.
class GroupTable {
 public:
  static constexpr std::size_t kLanes = 8;

  GroupTable(float step, float zero) {
    const std::array<float, 3> values{-step, zero, step};
    for (std::size_t group = 0; group < table_.size(); ++group) {
      table_[group].fill(zero);
      std::size_t digits = group;
      for (std::size_t k = kDigitsPerGroup; k-- > 0; digits /= 3) {
        table_[group][k] = values[digits % 3];
      }
    }
  }

  [[nodiscard]] const float* operator[](std::size_t group) const { return table_[group].data(); }

 private:
  std::array<std::array<float, kLanes>, kernels::kMaxGroup + 1> table_;
};

// A block of decoded groups: neighbours lie one after the other; partitions in five stretches of
// kBlockGroups.
class Block {
 public:
  Block(bool partitions, const GroupTable& table) : partitions_(partitions), table_(table) {
    values_.fill(table[kernels::kZeroGroup][0]);
  }

  // Makes the block what `literals` say. What they do not name is zero already, but for what the
  // last ones named.
  void fill(const Literals& literals) {
    clear();
    for (const Literal& literal : literals) {
      put(literal.at, table_[literal.group]);
      filled_[filled_count_++] = literal.at;
    }
  }

  // Calls store(elem, values, n) for the stretches that the block, groups [g, g + groups), becomes.
  template <typename Store>
  void store_to(const GroupMap& map, std::size_t g, std::size_t groups, const Store& store) const {
    if (!partitions_) {
      const std::size_t first = map.elem(g, 0);
      return store(first, values_.data(), std::min(groups * kDigitsPerGroup, map.elems - first));
    }
    for (std::size_t k = 0; k < kDigitsPerGroup; ++k) {
      const std::size_t first = std::min(map.elem(g, k), map.elems);
      store(first, values_.data() + k * kBlockGroups, std::min(groups, map.elems - first));
    }
  }

 private:
  void put(std::size_t g, const float* values) {
    if (partitions_) {
      for (std::size_t k = 0; k < kDigitsPerGroup; ++k) values_[k * kBlockGroups + g] = values[k];
    } else {
      // Three lanes too many: zeros, where the next groups go.
      std::memcpy(values_.data() + g * kDigitsPerGroup, values, GroupTable::kLanes * sizeof(float));
    }
  }

  void clear() {
    const float* zeros = table_[kernels::kZeroGroup];
    for (std::size_t i = 0; i < filled_count_; ++i) put(filled_[i], zeros);
    filled_count_ = 0;
  }

  bool partitions_;
  const GroupTable& table_;
  std::size_t filled_count_ = 0;
  std::array<std::uint16_t, kBlockGroups> filled_;
  alignas(64) std::array<float, kBlockElems + GroupTable::kLanes> values_;
};

// Reads every block of a part, groups [g, g + groups), and calls visit(g, groups).
template <typename Visit>
void read_blocks(const ThreeLcPayload& payload, const Parts& parts, std::size_t part,
                 std::size_t block_groups, Literals& literals, const Visit& visit) {
  const Cut& from = parts.cuts[part];
  const Cut& to = parts.cuts[part + 1];
  GroupReader reader(payload.body, payload.layout, from.byte);
  for (std::size_t g = from.group; g < to.group; g += block_groups) {
    const std::size_t groups = std::min(block_groups, to.group - g);
    reader.read(groups, literals);
    visit(g, groups);
  }
}

// Adding -0 changes nothing, not even a -0: so a zero digit leaves its element untouched.
constexpr float kUntouched = -0.0F;

// Adds one group's values where they belong.
void add_group(const GroupMap& map, std::size_t g, const float* values, std::span<float> out) {
  for (std::size_t k = 0; k < kDigitsPerGroup; ++k) {
    const std::size_t elem = map.elem(g, k);
    if (elem < map.elems) out[elem] += values[k];
  }
}

// Adds the literals of the block that begins with group g, and touches nothing else.
void add_groups(const GroupMap& map, std::size_t g, const Literals& literals,
                const GroupTable& table, std::span<float> out) {
  // All of them are asked for before the first is waited for. Neighbours share a line, or two.
  const std::size_t apart = map.partitions ? 1 : kDigitsPerGroup - 1;
  for (const Literal& literal : literals) {
    for (std::size_t k = 0; k < kDigitsPerGroup; k += apart) {
      __builtin_prefetch(out.data() + std::min(map.elem(g + literal.at, k), map.elems), 1);
    }
  }
  for (const Literal& literal : literals) {
    add_group(map, g + literal.at, table[literal.group], out);
  }
}

}  // namespace

ThreeLcPayload parse_three_lc(ByteView payload) {
  ByteReader reader(payload);
  ThreeLcPayload parsed;
  parsed.m = reader.read<float>("3lc m");
  parsed.sparsity_multiplier = reader.read<float>("3lc s");
  parsed.layout = ThreeLcLayout::from_byte(reader.read<std::uint8_t>("3lc layout"));
  parsed.body = reader.take(reader.left(), "3lc body");
  if (!std::isfinite(parsed.m) || std::signbit(parsed.m)) {
    fail(ErrorCode::kDataLoss, "a 3lc payload has m = {}, which must be finite and not negative",
         parsed.m);
  }
  if (!(parsed.sparsity_multiplier >= 1 && parsed.sparsity_multiplier < 2)) {
    fail(ErrorCode::kDataLoss, "a 3lc payload has s = {}, which must be from 1 to below 2",
         parsed.sparsity_multiplier);
  }
  return parsed;
}

void ThreeLcCodec::check(ByteView bytes, std::size_t elems) {
  const ThreeLcPayload payload = parse_three_lc(bytes);
  check_body(payload, map_of(payload, elems), nullptr);
}

void ThreeLcCodec::decode(ByteView bytes, std::span<float> out, ThreadPool* pool) {
  const ThreeLcPayload payload = parse_three_lc(bytes);
  const GroupMap map = map_of(payload, out.size());
  const Parts parts = check_body(payload, map, pool);
  const GroupTable table(payload.m, 0.0F);
  const bool streaming = out.size() >= kStreamingElems;
  const auto store = [&](std::size_t first, const float* values, std::size_t n) {
    if (streaming) return kernels::copy_streaming(out.data() + first, values, n);
    std::copy_n(values, n, out.data() + first);
  };
  run_parts(pool, parts.count, [&](std::size_t i) {
    Block block(map.partitions, table);
    Literals literals;
    read_blocks(payload, parts, i, kStoredGroups, literals, [&](std::size_t g, std::size_t groups) {
      block.fill(literals);
      block.store_to(map, g, groups, store);
    });
    if (streaming) kernels::end_streaming();
  });
}

void ThreeLcCodec::decode_add(ByteView bytes, float weight, std::span<float> out,
                              ThreadPool* pool) {
  const ThreeLcPayload payload = parse_three_lc(bytes);
  const GroupMap map = map_of(payload, out.size());
  const Parts parts = check_body(payload, map, pool);
  const GroupTable table(weight * payload.m, kUntouched);
  const auto add = [&](std::size_t first, const float* values, std::size_t n) {
    kernels::add(out.data() + first, values, n);
  };
  run_parts(pool, parts.count, [&](std::size_t i) {
    Block block(map.partitions, table);
    Literals literals;
    read_blocks(payload, parts, i, kBlockGroups, literals, [&](std::size_t g, std::size_t groups) {
      if (literals.count * kFewLiterals <= groups) return add_groups(map, g, literals, table, out);
      block.fill(literals);
      block.store_to(map, g, groups, add);
    });
  });
}

}  // namespace tersewire
