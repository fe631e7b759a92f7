#include "ternary_groups.h"

#include "byte_io.h"
#include "errors.h"
#include "kernels.h"
#include "ternary_unpack.h"

namespace tersewire {
namespace {

using kernels::kBlockGroups;
using kernels::kDigitsPerGroup;
using kernels::kMaxGroup;

// Groups that are read at once, at most.
constexpr std::size_t kMaxReadGroups = kMaxReadElems / kDigitsPerGroup;
constexpr std::size_t kMinPartBytes = 1 << 14;
// Bodies of fewer bytes for so many groups have few groups that are not zeros.
constexpr std::size_t kFewBytes = 4;
// A block in which only one group in so many is a literal is added digit by digit.
constexpr std::size_t kFewLiterals = 8;
constexpr std::size_t kMaxFew = kMaxReadGroups / kFewLiterals;

// What a byte of a body stands for: `groups` times a group.
struct Item {
  std::uint8_t group;
  std::uint8_t groups;
};

constexpr std::array<Item, 256> make_items() {
  std::array<Item, 256> items;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto byte = static_cast<std::uint8_t>(i);
    const bool is_run = byte >= kernels::kFirstRunCode;
    items[i] = {is_run ? kernels::kZeroGroup : byte,
                is_run ? static_cast<std::uint8_t>(kernels::run_length(byte)) : std::uint8_t{1}};
  }
  return items;
}

// No branch: what comes next cannot be foretold.
constexpr std::array<Item, 256> kItems = make_items();

using Groups = std::array<std::uint8_t, kMaxReadGroups>;

// A group that is not all zeros.
struct Literal {
  std::uint16_t at;  // its place in its block
  std::uint8_t group;
};

// Those of a block.
struct Literals {
  std::size_t count = 0;
  std::array<Literal, kMaxReadGroups> items;

  // Writes them among zeros.
  void put(Groups& groups) const {
    groups.fill(kernels::kZeroGroup);
    for (const Literal& literal : *this) groups[literal.at] = literal.group;
  }

  [[nodiscard]] const Literal* begin() const { return items.data(); }
  [[nodiscard]] const Literal* end() const { return items.data() + count; }
};

// The groups of a body, block by block. The body has been checked.
class GroupReader {
 public:
  GroupReader(ByteView body, GroupLayout layout, std::size_t at)
      : at_(as_u8(body) + at), layout_(layout) {}

  // Reads `count` groups, kMaxReadGroups or fewer, and finds the literals among them.
  void read(std::size_t count, Literals& literals) {
    std::size_t found = 0;
    read_items(count, [&](std::uint64_t i, Item item) {
      // Written whether it is one or not: what comes next cannot be foretold by a branch.
      literals.items[found] = {.at = static_cast<std::uint16_t>(i), .group = item.group};
      found += item.group != kernels::kZeroGroup ? 1 : 0;
    });
    literals.count = found;
  }

  // Reads `count` groups, kMaxReadGroups or fewer.
  void read(std::size_t count, Groups& groups) {
    if (!layout_.zero_runs) {
      std::memcpy(groups.data(), at_, count);
      at_ += count;
      return;
    }
    std::memset(groups.data(), kernels::kZeroGroup, count);
    read_items(count, [&](std::uint64_t i, Item item) { groups[i] = item.group; });
  }

 private:
  // Calls visit(i, item) for the bytes that stand for `count` groups, group i the first of each.
  template <typename Visit>
  void read_items(std::size_t count, const Visit& visit) {
    // Members would be read again after each byte that is written.
    const std::uint8_t* at = at_;
    std::uint64_t i = zeros_;
    while (i < count) {
      const Item item = kItems[*at++];
      visit(i, item);
      i += item.groups;
    }
    at_ = at;
    zeros_ = i - count;
  }

  const std::uint8_t* at_;
  std::uint64_t zeros_ = 0;  // of a run that goes on behind the block
  GroupLayout layout_;
};

// The digits of a group that are not 0, as FewDigits whose places count from the group's first.
struct GroupDigits {
  std::array<std::uint16_t, 7> bits{};
  std::uint16_t count = 0;
};

constexpr std::array<GroupDigits, kMaxGroup + 1> make_group_digits() {
  std::array<GroupDigits, kMaxGroup + 1> table;
  for (std::size_t group = 0; group < table.size(); ++group) {
    GroupDigits& digits = table[group];
    std::size_t weight = 81;
    for (std::size_t k = 0; k < kDigitsPerGroup; ++k, weight /= 3) {
      const std::size_t digit = group / weight % 3;
      if (digit == 1) continue;
      digits.bits[digits.count++] = static_cast<std::uint16_t>(2 * k + (digit == 0 ? 1 : 0));
    }
  }
  return table;
}

constexpr std::array<GroupDigits, kMaxGroup + 1> kGroupDigits = make_group_digits();

[[noreturn]] void fail_length(std::string_view codec, std::uint64_t groups, std::size_t expected) {
  fail(ErrorCode::kDataLoss, "a {} payload holds {} groups of five values where {} are expected",
       codec, groups, expected);
}

}  // namespace

// The digits of groups that are read at once, in the order of their elements: neighbours in one
// row, partitions in five.
class GroupSource::Rows {
 public:
  explicit Rows(bool partitions) : partitions_(partitions) {}

  [[nodiscard]] std::size_t count() const { return partitions_ ? kDigitsPerGroup : 1; }

  // All digits as bits.
  void set(const Groups& groups, std::size_t count) {
    few_ = false;
    for (std::size_t g = 0; g < count; g += kBlockGroups) {
      if (partitions_) {
        kernels::unpack_partitions(&groups[g], kRowWords, &sent_[g / 64], &negative_[g / 64]);
      } else {
        const std::size_t word = g * kDigitsPerGroup / 64;
        kernels::unpack_neighbours(&groups[g], &sent_[word], &negative_[word]);
      }
    }
  }

  // Those of `literals`, kMaxFew or fewer, that are not 0.
  void set(const Literals& literals) {
    few_ = true;
    lengths_ = {};
    for (const Literal& literal : literals) {
      partitions_ ? add_partitions(literal) : add_neighbours(literal);
    }
  }

  [[nodiscard]] DigitRun run(std::size_t row, std::size_t first, std::size_t n) const {
    return {.first = first,
            .n = n,
            .few = few_,
            .bits = {&sent_[row * kRowWords], &negative_[row * kRowWords], 0},
            .list = std::span(&lists_[row * kMaxFew], lengths_[row])};
  }

 private:
  static constexpr std::size_t kRowWords = kMaxReadGroups / 64;
  // The word behind the digits may be read.
  using Words = std::array<std::uint64_t, kDigitsPerGroup * kRowWords + 1>;

  // Copies all that a group may have, and keeps as many as it has: a loop's end could not be
  // foretold.
  void add_neighbours(const Literal& literal) {
    constexpr std::uint64_t kFour = 0x0001000100010001;
    const GroupDigits& digits = kGroupDigits[literal.group];
    const auto place = static_cast<std::uint16_t>(2 * kDigitsPerGroup * literal.at);
    std::uint64_t four;
    std::memcpy(&four, digits.bits.data(), sizeof(four));
    four += place * kFour;
    FewDigit* out = &lists_[lengths_[0]];
    std::memcpy(out, &four, sizeof(four));
    out[4].bits = static_cast<std::uint16_t>(digits.bits[4] + place);
    lengths_[0] += digits.count;
  }

  void add_partitions(const Literal& literal) {
    const GroupDigits& digits = kGroupDigits[literal.group];
    for (std::size_t i = 0; i < digits.count; ++i) {
      const std::size_t row = digits.bits[i] / 2;
      const unsigned negative = digits.bits[i] % 2;
      lists_[row * kMaxFew + lengths_[row]++] = {
          static_cast<std::uint16_t>(2U * literal.at + negative)};
    }
  }

  bool partitions_;
  bool few_ = false;
  Words sent_{};
  Words negative_{};
  std::array<std::size_t, kDigitsPerGroup> lengths_{};
  std::array<FewDigit, kDigitsPerGroup*(kMaxFew + 1)> lists_;
};

// A run may span parts; what a run becomes depends on its length alone, so joining the parts' open
// runs gives the bytes that one part would have given.
std::uint8_t* GroupWriter::join(std::uint8_t* body) const {
  kernels::ZeroRunWriter writer(body);
  for (const Part& part : parts_) {
    writer.write_zeros(part.leading_zeros);
    if (part.begin == part.end) continue;
    writer.flush_run();
    const auto bytes = static_cast<std::size_t>(part.end - part.begin);
    std::memmove(writer.end(), part.begin, bytes);
    writer.move_to(writer.end() + bytes);
    writer.write_zeros(part.trailing_zeros);
  }
  writer.flush_run();
  return writer.end();
}

GroupSource::GroupSource(std::string_view codec, ByteView body, GroupLayout layout,
                         std::size_t elems, const ThreadPool* pool)
    : codec_(codec), body_(body), layout_(layout), elems_(elems), groups_(group_count(elems)) {
  const std::size_t threads = pool != nullptr ? pool->threads() : 1;
  const std::size_t wanted =
      std::clamp<std::size_t>(body.size() / kMinPartBytes, 1, std::min(threads, kMaxParts));
  cut(wanted);
  if (cuts_[parts_].group != groups_) fail_length(codec, cuts_[parts_].group, groups_);
  if (!layout.zero_runs && !kernels::all_at_most(as_u8(body), body.size(), kMaxGroup)) {
    fail(ErrorCode::kDataLoss, "a {} payload without zero runs holds a byte above 242", codec);
  }
  check_padding();
}

// Every byte says by itself how many groups it stands for.
std::size_t GroupSource::groups_in(std::size_t byte, std::size_t bytes) const {
  if (!layout_.zero_runs) return bytes;
  return static_cast<std::size_t>(kernels::count_groups(as_u8(body_) + byte, bytes));
}

void GroupSource::cut(std::size_t wanted) {
  for (std::size_t i = 0; i < wanted; ++i) {
    const Cut& from = cuts_[i];
    const std::size_t end = body_.size() * (i + 1) / wanted;
    cuts_[i + 1] = {.byte = end, .group = from.group + groups_in(from.byte, end - from.byte)};
  }
  parts_ = wanted;
}

// The last groups, four or fewer, may hold padding, which has to be zero.
void GroupSource::check_padding() const {
  if (groups_ * kDigitsPerGroup == elems_) return;
  // They lie in the last four bytes, if not in fewer.
  constexpr std::size_t kMostBytes = kDigitsPerGroup - 1;
  static_assert(kMostBytes * kernels::kLongestRun <= kMaxReadGroups);
  const std::size_t bytes = std::min(body_.size(), kMostBytes);
  const std::size_t byte = body_.size() - bytes;
  const std::size_t groups = groups_in(byte, bytes);
  Literals literals;
  GroupReader(body_, layout_, byte).read(groups, literals);
  for (const Literal& literal : literals) {
    const GroupDigits& digits = kGroupDigits[literal.group];
    for (std::size_t i = 0; i < digits.count; ++i) {
      if (elem(groups_ - groups + literal.at, digits.bits[i] / 2) >= elems_) {
        fail(ErrorCode::kDataLoss, "a {} payload has a value where its padding should be", codec_);
      }
    }
  }
}

void GroupSource::emit(const Rows& rows, std::size_t g, std::size_t count,
                       const DigitSink& sink) const {
  const std::size_t row_elems = count * kDigitsPerGroup / rows.count();
  for (std::size_t row = 0; row < rows.count(); ++row) {
    const std::size_t first = std::min(elem(g, row), elems_);
    sink(rows.run(row, first, std::min(row_elems, elems_ - first)));
  }
}

void GroupSource::read_few(const Cut& from, const Cut& to, std::size_t block_groups,
                           const DigitSink& sink) const {
  GroupReader reader(body_, layout_, from.byte);
  Literals literals;
  Rows rows(layout_.partitions);
  for (std::size_t g = from.group; g < to.group; g += block_groups) {
    const std::size_t count = std::min(block_groups, to.group - g);
    reader.read(count, literals);
    if (literals.count * kFewLiterals <= count) {
      rows.set(literals);
    } else {
      Groups groups;
      literals.put(groups);
      rows.set(groups, count);
    }
    emit(rows, g, count, sink);
  }
}

void GroupSource::read_many(const Cut& from, const Cut& to, std::size_t block_groups,
                            const DigitSink& sink) const {
  GroupReader reader(body_, layout_, from.byte);
  const auto count_at = [&](std::size_t g) { return std::min(block_groups, to.group - g); };
  std::array<Groups, 2> blocks;
  std::size_t turn = 0;
  Rows rows(layout_.partitions);
  reader.read(count_at(from.group), blocks[turn]);
  for (std::size_t g = from.group; g < to.group; g += block_groups, turn ^= 1) {
    // A block ahead: to unpack bytes that were stored one by one waits for all stores before the
    // last of them, and those that go past the caches take long.
    const std::size_t next = g + block_groups;
    if (next < to.group) reader.read(count_at(next), blocks[turn ^ 1]);
    rows.set(blocks[turn], count_at(g));
    emit(rows, g, count_at(g), sink);
  }
}

void GroupSource::read(std::size_t part, std::size_t block_elems, const DigitSink& sink) const {
  const Cut& from = cuts_[part];
  const Cut& to = cuts_[part + 1];
  const bool few = (to.byte - from.byte) * kFewBytes <= to.group - from.group;
  // Partitions' rows are short enough as they are.
  const std::size_t block_groups =
      layout_.partitions ? kMaxReadGroups : block_elems / kDigitsPerGroup;
  few ? read_few(from, to, block_groups, sink) : read_many(from, to, block_groups, sink);
}

}  // namespace tersewire
