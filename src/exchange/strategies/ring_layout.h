// How the nodes of a ring job cut what they exchange; the same on every node.
//
// Workers are in groups of consecutive ranks. Parts that have the same codecs travel together, as
// buckets in the order of the backward pass, so that small ones cost no messages of their own. A
// bucket is cut into as many blocks as a group has workers; a block, where the groups add it up in
// a ring, into as many pieces as there are groups, and otherwise it is one piece. Blocks and pieces
// are contiguous, of equal length except the last, which may be empty.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "node_state.h"
#include "placement.h"
#include "tersewire/codec.h"

namespace tersewire {

// What make_buckets() goes by: of parts with the same codecs, the number of the first such.
std::vector<std::uint64_t> ring_ways(const Placement& placement);

// The members of a group where a job of so many workers does not say: as few hops as there can be,
// and of the two such numbers the one with less traffic between groups. That is the smallest
// divisor that is not below the square root.
int default_group(int workers);

// Pieces of a bucket that follow each other: a piece, or a block.
struct PieceRange {
  std::size_t first;
  std::size_t count;
};

// Where their values lie within the bucket.
struct Extent {
  std::size_t begin;
  std::size_t elems;
};

// What some pieces have of a part.
struct PartRun {
  std::size_t part;
  std::size_t begin;   // within the part
  std::size_t offset;  // within the pieces
  std::size_t elems;   // at least 1
};

struct RingBucket {
  std::vector<std::size_t> parts;
  std::size_t elems = 0;
};

// Immutable: any thread.
class RingLayout {
 public:
  // Where a part's values lie.
  struct Place {
    std::size_t bucket;
    std::size_t offset;
  };

  explicit RingLayout(std::shared_ptr<const Placement> placement);

  [[nodiscard]] bool is_tree() const { return placement_->options.top == RingTop::kTree; }
  [[nodiscard]] std::size_t group() const { return group_; }
  [[nodiscard]] std::size_t groups() const { return groups_; }
  [[nodiscard]] std::size_t pieces_per_block() const { return is_tree() ? 1 : groups_; }
  [[nodiscard]] std::size_t pieces() const { return group_ * pieces_per_block(); }
  [[nodiscard]] PieceRange block(std::size_t number) const {
    return {.first = number * pieces_per_block(), .count = pieces_per_block()};
  }
  [[nodiscard]] const std::vector<RingBucket>& buckets() const { return buckets_; }
  [[nodiscard]] Place place(std::size_t part) const { return places_[part]; }
  [[nodiscard]] Extent extent(std::size_t bucket, PieceRange pieces) const;
  [[nodiscard]] std::vector<PartRun> part_runs(std::size_t bucket, PieceRange pieces) const;
  // The same with the residual of an encoder of these pieces, where it keeps one.
  void add_runs(std::size_t bucket, PieceRange pieces, std::span<float> residual,
                std::vector<ResidualRun>& runs) const;
  // A piece's number among all; a block goes by its first piece's.
  [[nodiscard]] std::uint32_t id_of(std::size_t bucket, std::size_t piece) const {
    return static_cast<std::uint32_t>(bucket * pieces() + piece);
  }
  // The frame of a piece, or of a block by its first one: it names the bucket and the piece.
  [[nodiscard]] Frame frame_of(std::size_t bucket, std::size_t piece, const Encoded& encoded,
                               ByteView payload) const;
  // The longest frame of these pieces: of a partial sum, or of what servers made of complete ones.
  [[nodiscard]] std::size_t most_bytes(std::size_t bucket, PieceRange pieces, bool complete) const;
  // The piece that a frame names, by its number among all; none where there is no such.
  [[nodiscard]] std::optional<std::uint32_t> find(const Frame& frame) const;
  // The rank of the server that adds up this block of every bucket.
  [[nodiscard]] int server_of(std::size_t block) const {
    return placement_->job.workers + static_cast<int>(block) % placement_->servers;
  }
  // "bucket that begins with tensor 'NAME'", or a part of it, for sentences.
  [[nodiscard]] std::string name(std::size_t bucket) const;
  // The encoder of these pieces on the node of this rank; `codecs` are those of its direction.
  [[nodiscard]] std::unique_ptr<Encoder> make_encoder(
      const std::vector<std::shared_ptr<const Codec>>& codecs, std::size_t bucket,
      PieceRange pieces, int rank) const;

 private:
  [[nodiscard]] std::size_t begin_of(std::size_t bucket, std::size_t piece) const;

  std::shared_ptr<const Placement> placement_;
  std::size_t group_;
  std::size_t groups_;
  std::vector<RingBucket> buckets_;
  std::vector<Place> places_;  // by part
};

}  // namespace tersewire
