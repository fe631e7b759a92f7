#include "ring_layout.h"

#include <algorithm>

#include "errors.h"

namespace tersewire {
namespace {

// The length of all parts but the last where `elems` values are cut into so many.
std::size_t part_elems(std::size_t elems, std::size_t parts) { return (elems + parts - 1) / parts; }

bool same_codecs(const Placement& placement, std::size_t a, std::size_t b) {
  const auto& push = placement.push_codecs;
  const auto& pull = placement.pull_codecs;  // of servers alone
  const auto kind = [&](std::size_t part) {
    return placement.job.tensors[placement.parts[part].tensor].kind;
  };
  // Codecs for sums go by values alone; a server's may go by the tensor's kind.
  return push[a] == push[b] &&
         (placement.options.top == RingTop::kRing || (pull[a] == pull[b] && kind(a) == kind(b)));
}

}  // namespace

std::vector<std::uint64_t> ring_ways(const Placement& placement) {
  std::vector<std::uint64_t> ways(placement.parts.size(), 0);
  for (std::size_t part = 0; part < ways.size(); ++part) {
    while (!same_codecs(placement, ways[part], part)) ++ways[part];
  }
  return ways;
}

int default_group(int workers) {
  int groups = 1;
  for (int divisor = 2; divisor <= workers / divisor; ++divisor) {
    if (workers % divisor == 0) groups = divisor;
  }
  return workers / groups;
}

RingLayout::RingLayout(std::shared_ptr<const Placement> placement)
    : placement_(std::move(placement)),
      group_(static_cast<std::size_t>(placement_->options.group)),
      groups_(static_cast<std::size_t>(placement_->job.workers) / group_),
      places_(placement_->parts.size()) {
  for (const std::vector<std::size_t>& parts : placement_->buckets) {
    RingBucket bucket{.parts = parts};
    for (const std::size_t part : parts) {
      places_[part] = {.bucket = buckets_.size(), .offset = bucket.elems};
      bucket.elems += placement_->parts[part].elems;
    }
    buckets_.push_back(std::move(bucket));
  }
}

std::size_t RingLayout::begin_of(std::size_t bucket, std::size_t piece) const {
  const std::size_t elems = buckets_[bucket].elems;
  const std::size_t block_elems = part_elems(elems, group_);
  const std::size_t begin = std::min(piece / pieces_per_block() * block_elems, elems);
  const std::size_t end = std::min(begin + block_elems, elems);
  const std::size_t piece_elems = part_elems(end - begin, pieces_per_block());
  return std::min(begin + piece % pieces_per_block() * piece_elems, end);
}

Extent RingLayout::extent(std::size_t bucket, PieceRange pieces) const {
  const std::size_t begin = begin_of(bucket, pieces.first);
  return {.begin = begin, .elems = begin_of(bucket, pieces.first + pieces.count) - begin};
}

std::vector<PartRun> RingLayout::part_runs(std::size_t bucket, PieceRange pieces) const {
  const Extent within = extent(bucket, pieces);
  std::vector<PartRun> runs;
  for (const std::size_t part : buckets_[bucket].parts) {
    const std::size_t offset = places_[part].offset;
    const std::size_t elems = placement_->parts[part].elems;
    const std::size_t begin = std::max(within.begin, offset);
    const std::size_t end = std::min(within.begin + within.elems, offset + elems);
    if (begin >= end) continue;
    runs.push_back({.part = part,
                    .begin = begin - offset,
                    .offset = begin - within.begin,
                    .elems = end - begin});
  }
  return runs;
}

void RingLayout::add_runs(std::size_t bucket, PieceRange pieces, std::span<float> residual,
                          std::vector<ResidualRun>& runs) const {
  if (residual.empty()) return;
  for (const PartRun& run : part_runs(bucket, pieces)) {
    runs.push_back({run.part, run.begin, residual.subspan(run.offset, run.elems)});
  }
}

Frame RingLayout::frame_of(std::size_t bucket, std::size_t piece, const Encoded& encoded,
                           ByteView payload) const {
  return {.tensor = static_cast<std::uint32_t>(bucket),
          .part = static_cast<std::uint32_t>(piece),
          .codec = encoded.codec,
          .not_finite = encoded.not_finite,
          .description = std::nullopt,
          .payload = payload};
}

std::size_t RingLayout::most_bytes(std::size_t bucket, PieceRange pieces, bool complete) const {
  const auto& codecs = complete && is_tree() ? placement_->pull_codecs : placement_->push_codecs;
  return codecs[buckets_[bucket].parts.front()]->max_encoded_bytes(extent(bucket, pieces).elems);
}

std::optional<std::uint32_t> RingLayout::find(const Frame& frame) const {
  if (frame.tensor >= buckets_.size() || frame.part >= pieces()) return {};
  return id_of(frame.tensor, frame.part);
}

std::string RingLayout::name(std::size_t bucket) const {
  return "bucket that begins with " + placement_->name(buckets_[bucket].parts.front());
}

std::unique_ptr<Encoder> RingLayout::make_encoder(
    const std::vector<std::shared_ptr<const Codec>>& codecs, std::size_t bucket, PieceRange pieces,
    int rank) const {
  // Its values are of several tensors: their random numbers go by the piece.
  const std::size_t first = buckets_[bucket].parts.front();
  EncoderContext context = encoder_context(*placement_, first, rank);
  context.tensor = id_of(bucket, pieces.first);
  context.first_elem = 0;
  return codecs[first]->make_encoder(extent(bucket, pieces).elems, context);
}

}  // namespace tersewire
