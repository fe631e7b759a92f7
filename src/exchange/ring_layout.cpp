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
  const auto& tensors = placement.job.tensors;
  // Codecs for sums go by values alone; a server's may go by the tensor's kind.
  return push[a] == push[b] && (placement.options.top == RingTop::kRing ||
                                (pull[a] == pull[b] && tensors[a].kind == tensors[b].kind));
}

}  // namespace

std::vector<std::uint64_t> ring_ways(const Placement& placement) {
  std::vector<std::uint64_t> ways(placement.job.tensors.size(), 0);
  for (std::size_t tensor = 0; tensor < ways.size(); ++tensor) {
    while (!same_codecs(placement, ways[tensor], tensor)) ++ways[tensor];
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
      places_(placement_->job.tensors.size()) {
  for (const std::vector<std::size_t>& tensors : placement_->buckets) {
    RingBucket bucket{.tensors = tensors};
    for (const std::size_t tensor : tensors) {
      places_[tensor] = {.bucket = buckets_.size(), .offset = bucket.elems};
      bucket.elems += placement_->job.tensors[tensor].elems();
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

std::vector<TensorPart> RingLayout::tensor_parts(std::size_t bucket, PieceRange pieces) const {
  const Extent within = extent(bucket, pieces);
  std::vector<TensorPart> parts;
  for (const std::size_t tensor : buckets_[bucket].tensors) {
    const std::size_t offset = places_[tensor].offset;
    const std::size_t elems = placement_->job.tensors[tensor].elems();
    const std::size_t begin = std::max(within.begin, offset);
    const std::size_t end = std::min(within.begin + within.elems, offset + elems);
    if (begin >= end) continue;
    parts.push_back({.tensor = tensor,
                     .begin = begin - offset,
                     .offset = begin - within.begin,
                     .elems = end - begin});
  }
  return parts;
}

void RingLayout::add_parts(std::size_t bucket, PieceRange pieces, std::span<float> residual,
                           std::vector<ResidualPart>& parts) const {
  if (residual.empty()) return;
  for (const TensorPart& part : tensor_parts(bucket, pieces)) {
    parts.push_back({part.tensor, part.begin, residual.subspan(part.offset, part.elems)});
  }
}

std::string RingLayout::name(std::size_t bucket) const {
  return fmt::format("bucket that begins with tensor '{}'",
                     placement_->job.tensors[buckets_[bucket].tensors.front()].name);
}

std::unique_ptr<Encoder> RingLayout::make_encoder(
    const std::vector<std::shared_ptr<const Codec>>& codecs, std::size_t bucket, PieceRange pieces,
    int rank) const {
  const std::size_t first = buckets_[bucket].tensors.front();
  EncoderContext context = encoder_context(placement_->job, first, rank);
  context.tensor = id_of(bucket, pieces.first);
  return codecs[first]->make_encoder(extent(bucket, pieces).elems, context);
}

}  // namespace tersewire
