#include "ring_layout.h"

#include <algorithm>

#include "errors.h"

namespace tersewire {
namespace {

// The length of all parts but the last where `elems` values are cut into so many.
std::size_t part_elems(std::size_t elems, std::size_t parts) { return (elems + parts - 1) / parts; }

}  // namespace

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
  cut_into_buckets();
}

void RingLayout::cut_into_buckets() {
  const Job& job = placement_->job;
  // Of tensors with the same codecs: the number of the first such.
  std::vector<std::uint64_t> keys(job.tensors.size());
  for (std::size_t tensor = 0; tensor < keys.size(); ++tensor) {
    while (!same_codecs(keys[tensor], tensor)) ++keys[tensor];
  }
  for (std::vector<std::size_t>& tensors : make_buckets(job, keys)) {
    RingBucket& bucket = buckets_.emplace_back();
    for (const std::size_t tensor : tensors) {
      places_[tensor] = {.bucket = buckets_.size() - 1, .offset = bucket.elems};
      bucket.elems += job.tensors[tensor].elems();
    }
    bucket.tensors = std::move(tensors);
  }
}

bool RingLayout::same_codecs(std::size_t a, std::size_t b) const {
  const auto& push = placement_->push_codecs;
  const auto& pull = placement_->pull_codecs;  // of servers alone
  const auto& tensors = placement_->job.tensors;
  // Codecs for sums go by values alone; a server's may go by the tensor's kind.
  return push[a] == push[b] &&
         (!is_tree() || (pull[a] == pull[b] && tensors[a].kind == tensors[b].kind));
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
