#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels.h"
#include "residual_encoder.h"
#include "ternary_groups.h"
#include "three_lc_payload.h"

namespace tersewire {
namespace {

using kernels::kDigitsPerGroup;
using kernels::PackedBlock;

class ThreeLcEncoder final : public ResidualEncoder {
 public:
  ThreeLcEncoder(std::size_t elems, const EncoderContext& context, float sparsity_multiplier,
                 GroupLayout layout, const EncoderOptions& options)
      : ResidualEncoder(elems, context, options),
        sparsity_multiplier_(sparsity_multiplier),
        layout_(layout),
        groups_(group_count(elems)) {}

 private:
  CodecId encode_finite(const EncodeCall& call, Bytes& out) override;

  // Quantizes and packs groups [begin, begin + count), as GroupWriter wants it.
  bool pack_neighbours(const EncodeCall& call, float m, std::size_t begin, std::size_t count,
                       PackedBlock& packed) const;
  bool pack_partitions(const EncodeCall& call, float m, std::size_t begin, std::size_t count,
                       PackedBlock& packed) const;

  float sparsity_multiplier_;
  GroupLayout layout_;
  std::size_t groups_;
  GroupWriter writer_;
};

float scaled_max(float largest, float sparsity_multiplier) {
  return std::min(largest * sparsity_multiplier, std::numeric_limits<float>::max());
}

bool quantize(const EncodeCall& call, std::size_t first, std::size_t n, float m,
              std::uint64_t* sent, std::uint64_t* negative) {
  return kernels::quantize_ternary(call.input + first,
                                   call.residual != nullptr ? call.residual + first : nullptr, n, m,
                                   sent, negative);
}

bool ThreeLcEncoder::pack_neighbours(const EncodeCall& call, float m, std::size_t begin,
                                     std::size_t count, PackedBlock& packed) const {
  const std::size_t first = begin * kDigitsPerGroup;
  const std::size_t n = std::min(count * kDigitsPerGroup, elems() - first);
  kernels::DigitBits bits;
  if (!quantize(call, first, n, m, bits.sent.data(), bits.negative.data())) return false;
  kernels::pack_neighbours(bits, packed);
  return true;
}

bool ThreeLcEncoder::pack_partitions(const EncodeCall& call, float m, std::size_t begin,
                                     std::size_t count, PackedBlock& packed) const {
  kernels::PartitionBits bits;
  bool any = false;
  for (std::size_t k = 0; k < kDigitsPerGroup; ++k) {
    const std::size_t first = std::min(k * groups_ + begin, elems());
    const std::size_t n = std::min(count, elems() - first);
    any |= quantize(call, first, n, m, bits.sent[k].data(), bits.negative[k].data());
  }
  if (!any) return false;
  kernels::pack_partitions(bits, packed);
  return true;
}

CodecId ThreeLcEncoder::encode_finite(const EncodeCall& call, Bytes& out) {
  const float m = scaled_max(call.largest, sparsity_multiplier_);
  // Where everything is zero nothing reaches the limit either.
  const float limit = m > 0 ? m : std::numeric_limits<float>::infinity();

  const std::size_t start = out.size();
  out.resize(start + three_lc_max_bytes(elems()));
  auto* head = reinterpret_cast<std::uint8_t*>(out.data() + start);
  std::memcpy(head, &m, sizeof(m));
  std::memcpy(head + sizeof(m), &sparsity_multiplier_, sizeof(sparsity_multiplier_));
  head[kThreeLcHeadBytes - 1] = three_lc_layout_byte(layout_);

  const std::uint8_t* end = writer_.write(
      groups_, layout_, head + kThreeLcHeadBytes, call.pool,
      [&](std::size_t begin, std::size_t count, PackedBlock& packed) {
        return layout_.partitions ? pack_partitions(call, limit, begin, count, packed)
                                  : pack_neighbours(call, limit, begin, count, packed);
      });
  out.resize(start + static_cast<std::size_t>(end - head));
  return CodecId::kThreeLc;
}

}  // namespace

std::unique_ptr<Encoder> make_three_lc_encoder(std::size_t elems, const EncoderContext& context,
                                               float sparsity_multiplier, GroupLayout layout,
                                               const EncoderOptions& options) {
  return std::make_unique<ThreeLcEncoder>(elems, context, sparsity_multiplier, layout, options);
}

}  // namespace tersewire
