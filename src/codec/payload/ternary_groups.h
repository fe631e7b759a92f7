// Bodies of base-3^5 groups, with or without zero-run encoding (spec/wire-format.md, "Codec 2"):
// written part by part by several threads and joined, checked, and read back block by block.
// Codecs 3lc, terngrad and stoch3 share them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "partition.h"
#include "shape.h"
#include "ternary_digits.h"
#include "ternary_pack.h"
#include "tersewire/bytes.h"
#include "zero_run.h"

namespace tersewire {

// Which elements share a group, and how groups are written.
struct GroupLayout {
  bool partitions = false;  // else neighbours
  bool zero_runs = true;
};

// Groups of five elements.
constexpr std::size_t group_count(std::size_t elems) {
  return divide_up(elems, kernels::kDigitsPerGroup);
}

// Fewer groups are not worth a thread. A multiple of a block.
inline constexpr std::size_t kMinPartGroups = std::size_t{1} << 14;

// Writes bodies. Keeps what parts have become until they are joined: a second body of as many parts
// allocates nothing.
class GroupWriter {
 public:
  // Writes `groups` groups at `body`, which needs room for one byte a group, and returns the end.
  // pack(begin, count, block) packs groups [begin, begin + count), count <= kernels::kBlockGroups,
  // or returns false where all are zero groups. It is called once for each block, in the order of
  // its part, by several threads.
  template <typename Pack>
  std::uint8_t* write(std::size_t groups, GroupLayout layout, std::uint8_t* body, ThreadPool* pool,
                      const Pack& pack);

 private:
  // What one part of a tensor became. Its bytes lie in the part's own region of the body, behind
  // the room that its leading zero groups would take.
  struct Part {
    std::uint64_t leading_zeros = 0;  // groups of 121 before the first other one
    std::uint8_t* begin = nullptr;
    std::uint8_t* end = nullptr;
    std::uint64_t trailing_zeros = 0;
  };

  template <typename Pack>
  static void write_plain(std::size_t begin, std::size_t end, std::uint8_t* region,
                          const Pack& pack);
  template <typename Pack>
  static Part write_part(std::size_t begin, std::size_t end, std::uint8_t* region,
                         const Pack& pack);
  std::uint8_t* join(std::uint8_t* body) const;

  std::vector<Part> parts_;
};

// A checked body, cut into parts that can be read side by side.
class GroupSource final : public DigitSource {
 public:
  // Throws kDataLoss, naming `codec`, where the body does not hold the groups of `elems` elements.
  // The parts are for the threads of `pool`.
  GroupSource(std::string_view codec, ByteView body, GroupLayout layout, std::size_t elems,
              const ThreadPool* pool);

  [[nodiscard]] std::size_t parts() const override { return parts_; }
  void read(std::size_t part, std::size_t block_elems, const DigitSink& sink) const override;

 private:
  class Rows;
  static constexpr std::size_t kMaxParts = 64;

  // Where a part begins, in bytes and in groups.
  struct Cut {
    std::size_t byte = 0;
    std::size_t group = 0;
  };

  // The element of digit k in group g; at or past elems_: padding.
  [[nodiscard]] std::size_t elem(std::size_t g, std::size_t k) const {
    return layout_.partitions ? k * groups_ + g : g * kernels::kDigitsPerGroup + k;
  }
  [[nodiscard]] std::size_t groups_in(std::size_t byte, std::size_t bytes) const;
  void cut(std::size_t wanted);
  void check_padding() const;
  // The blocks of a part that has few digits that are not 0, and of others.
  void read_few(const Cut& from, const Cut& to, std::size_t block_groups,
                const DigitSink& sink) const;
  void read_many(const Cut& from, const Cut& to, std::size_t block_groups,
                 const DigitSink& sink) const;
  // Passes on groups [g, g + count).
  void emit(const Rows& rows, std::size_t g, std::size_t count, const DigitSink& sink) const;

  std::string_view codec_;
  ByteView body_;
  GroupLayout layout_;
  std::size_t elems_;
  std::size_t groups_;
  std::array<Cut, kMaxParts + 1> cuts_{};
  std::size_t parts_ = 1;
};

template <typename Pack>
void GroupWriter::write_plain(std::size_t begin, std::size_t end, std::uint8_t* region,
                              const Pack& pack) {
  for (std::size_t g = begin; g < end; g += kernels::kBlockGroups) {
    const std::size_t count = std::min(kernels::kBlockGroups, end - g);
    kernels::PackedBlock block;
    if (pack(g, count, block)) {
      std::memcpy(region + (g - begin), block.groups.data(), count);
    } else {
      std::memset(region + (g - begin), kernels::kZeroGroup, count);
    }
  }
}

template <typename Pack>
GroupWriter::Part GroupWriter::write_part(std::size_t begin, std::size_t end, std::uint8_t* region,
                                          const Pack& pack) {
  Part part{.leading_zeros = 0, .begin = region, .end = region, .trailing_zeros = 0};
  kernels::ZeroRunWriter writer(region);
  bool leading = true;
  for (std::size_t g = begin; g < end; g += kernels::kBlockGroups) {
    kernels::PackedBlock block;
    const std::size_t count = std::min(kernels::kBlockGroups, end - g);
    if (!pack(g, count, block)) {
      writer.write_zeros(count);
      continue;
    }
    std::size_t from = 0;
    if (leading) {
      while (block.groups[from] == kernels::kZeroGroup) ++from;
      part.leading_zeros = writer.open_run() + from;
      part.begin = region + part.leading_zeros;
      writer = kernels::ZeroRunWriter(part.begin);
      leading = false;
    }
    writer.write(block, from, count);
  }
  if (leading) {
    part.leading_zeros = writer.open_run();
  } else {
    part.end = writer.end();
    part.trailing_zeros = writer.open_run();
  }
  return part;
}

template <typename Pack>
std::uint8_t* GroupWriter::write(std::size_t groups, GroupLayout layout, std::uint8_t* body,
                                 ThreadPool* pool, const Pack& pack) {
  const auto cut = Partition::of(groups, kMinPartGroups, pool);
  if (!layout.zero_runs) {
    run_parts(pool, cut.count(), [&](std::size_t i) {
      write_plain(cut.begin(i), cut.end(i), body + cut.begin(i), pack);
    });
    return body + groups;
  }
  parts_.resize(cut.count());
  run_parts(pool, cut.count(), [&](std::size_t i) {
    parts_[i] = write_part(cut.begin(i), cut.end(i), body + cut.begin(i), pack);
  });
  return join(body);
}

}  // namespace tersewire
