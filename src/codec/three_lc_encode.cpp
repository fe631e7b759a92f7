#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "byte_io.h"
#include "kernels.h"
#include "ternary_pack.h"
#include "three_lc_payload.h"
#include "zero_run.h"

namespace tersewire {
namespace {

using kernels::kBlockGroups;
using kernels::kDigitsPerGroup;
using kernels::PackedBlock;

// Fewer are not worth a thread.
constexpr std::size_t kMinPartGroups = std::size_t{1} << 14;

// What one part of a tensor became. Its bytes lie in the part's own region of the output, behind
// the room that its leading zero groups would take.
struct EncodedPart {
  std::uint64_t leading_zeros = 0;  // groups of 121 before the first other one
  std::uint8_t* begin = nullptr;
  std::uint8_t* end = nullptr;
  std::uint64_t trailing_zeros = 0;
};

class ThreeLcEncoder final : public ResidualEncoder {
 public:
  ThreeLcEncoder(std::size_t elems, float sparsity_multiplier, ThreeLcLayout layout,
                 const EncoderOptions& options)
      : ResidualEncoder(elems, options),
        sparsity_multiplier_(sparsity_multiplier),
        layout_(layout),
        groups_(three_lc_groups(elems)) {}

 private:
  CodecId encode_finite(const float* input, float* residual, float largest, Bytes& out,
                        ThreadPool* pool) override;

  // Quantizes and packs groups [begin, begin + count), count <= kBlockGroups, into `packed`; false
  // where all are zero groups (`packed` is then not written).
  bool pack_block(const float* input, float* residual, float m, std::size_t begin,
                  std::size_t count, PackedBlock& packed) const;
  bool pack_neighbour_block(const float* input, float* residual, float m, std::size_t begin,
                            std::size_t count, PackedBlock& packed) const;
  bool pack_partition_block(const float* input, float* residual, float m, std::size_t begin,
                            std::size_t count, PackedBlock& packed) const;

  void encode_part_plain(const float* input, float* residual, float m, std::size_t begin,
                         std::size_t end, std::uint8_t* out) const;
  EncodedPart encode_part(const float* input, float* residual, float m, std::size_t begin,
                          std::size_t end, std::uint8_t* region) const;
  std::uint8_t* join_parts(std::uint8_t* body) const;

  float sparsity_multiplier_;
  ThreeLcLayout layout_;
  std::size_t groups_;
  std::vector<EncodedPart> parts_;
};

float scaled_max(float largest, float sparsity_multiplier) {
  return std::min(largest * sparsity_multiplier, std::numeric_limits<float>::max());
}

bool ThreeLcEncoder::pack_neighbour_block(const float* input, float* residual, float m,
                                          std::size_t begin, std::size_t count,
                                          PackedBlock& packed) const {
  const std::size_t first = begin * kDigitsPerGroup;
  const std::size_t n = std::min(count * kDigitsPerGroup, elems() - first);
  kernels::DigitBits bits;
  if (!kernels::quantize_ternary(input + first, residual != nullptr ? residual + first : nullptr, n,
                                 m, bits.sent.data(), bits.negative.data())) {
    return false;
  }
  kernels::pack_neighbours(bits, packed);
  return true;
}

bool ThreeLcEncoder::pack_partition_block(const float* input, float* residual, float m,
                                          std::size_t begin, std::size_t count,
                                          PackedBlock& packed) const {
  kernels::PartitionBits bits;
  bool any = false;
  for (std::size_t k = 0; k < kDigitsPerGroup; ++k) {
    const std::size_t first = std::min(k * groups_ + begin, elems());
    const std::size_t n = std::min(count, elems() - first);
    any |=
        kernels::quantize_ternary(input + first, residual != nullptr ? residual + first : nullptr,
                                  n, m, bits.sent[k].data(), bits.negative[k].data());
  }
  if (!any) return false;
  kernels::pack_partitions(bits, packed);
  return true;
}

bool ThreeLcEncoder::pack_block(const float* input, float* residual, float m, std::size_t begin,
                                std::size_t count, PackedBlock& packed) const {
  return layout_.partitions ? pack_partition_block(input, residual, m, begin, count, packed)
                            : pack_neighbour_block(input, residual, m, begin, count, packed);
}

void ThreeLcEncoder::encode_part_plain(const float* input, float* residual, float m,
                                       std::size_t begin, std::size_t end,
                                       std::uint8_t* out) const {
  for (std::size_t g = begin; g < end; g += kBlockGroups) {
    const std::size_t count = std::min(kBlockGroups, end - g);
    PackedBlock packed;
    if (pack_block(input, residual, m, g, count, packed)) {
      std::memcpy(out + (g - begin), packed.groups.data(), count);
    } else {
      std::memset(out + (g - begin), kernels::kZeroGroup, count);
    }
  }
}

EncodedPart ThreeLcEncoder::encode_part(const float* input, float* residual, float m,
                                        std::size_t begin, std::size_t end,
                                        std::uint8_t* region) const {
  EncodedPart part{.leading_zeros = 0, .begin = region, .end = region, .trailing_zeros = 0};
  kernels::ZeroRunWriter writer(region, layout_.long_runs);
  bool leading = true;
  for (std::size_t g = begin; g < end; g += kBlockGroups) {
    PackedBlock packed;
    const std::size_t count = std::min(kBlockGroups, end - g);
    if (!pack_block(input, residual, m, g, count, packed)) {
      writer.write_zeros(count);
      continue;
    }
    std::size_t from = 0;
    if (leading) {
      while (packed.groups[from] == kernels::kZeroGroup) ++from;
      part.leading_zeros = writer.open_run() + from;
      part.begin = region + part.leading_zeros;
      writer = kernels::ZeroRunWriter(part.begin, layout_.long_runs);
      leading = false;
    }
    writer.write(packed, from, count);
  }
  if (leading) {
    part.leading_zeros = writer.open_run();
  } else {
    part.end = writer.end();
    part.trailing_zeros = writer.open_run();
  }
  return part;
}

// A run may span parts; what a run becomes depends on its length alone, so joining the parts' open
// runs gives the bytes that one part would have given.
std::uint8_t* ThreeLcEncoder::join_parts(std::uint8_t* body) const {
  kernels::ZeroRunWriter writer(body, layout_.long_runs);
  for (const EncodedPart& part : parts_) {
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

CodecId ThreeLcEncoder::encode_finite(const float* input, float* residual, float largest,
                                      Bytes& out, ThreadPool* pool) {
  const float m = scaled_max(largest, sparsity_multiplier_);
  // Where everything is zero nothing reaches the limit either.
  const float limit = m > 0 ? m : std::numeric_limits<float>::infinity();

  const std::size_t start = out.size();
  out.resize(start + three_lc_max_bytes(elems()));
  auto* head = reinterpret_cast<std::uint8_t*>(out.data() + start);
  std::memcpy(head, &m, sizeof(m));
  std::memcpy(head + sizeof(m), &sparsity_multiplier_, sizeof(sparsity_multiplier_));
  head[kThreeLcHeadBytes - 1] = layout_.byte();

  std::uint8_t* body = head + kThreeLcHeadBytes;
  const auto cut = Partition::of(groups_, kMinPartGroups, pool);
  if (!layout_.zero_runs) {
    run_parts(pool, cut.count(), [&](std::size_t i) {
      encode_part_plain(input, residual, limit, cut.begin(i), cut.end(i), body + cut.begin(i));
    });
    return CodecId::kThreeLc;
  }
  parts_.resize(cut.count());
  run_parts(pool, cut.count(), [&](std::size_t i) {
    parts_[i] = encode_part(input, residual, limit, cut.begin(i), cut.end(i), body + cut.begin(i));
  });
  const std::uint8_t* end = join_parts(body);
  out.resize(start + static_cast<std::size_t>(end - head));
  return CodecId::kThreeLc;
}

}  // namespace

std::unique_ptr<Encoder> make_three_lc_encoder(std::size_t elems, float sparsity_multiplier,
                                               ThreeLcLayout layout,
                                               const EncoderOptions& options) {
  return std::make_unique<ThreeLcEncoder>(elems, sparsity_multiplier, layout, options);
}

}  // namespace tersewire
