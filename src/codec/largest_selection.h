// What codecs topk and dryden share: which elements are sent, by a threshold that a sample of the
// magnitudes sets (3LC, section 4.2: "we only sort sampled input values").
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "positions.h"
#include "residual_encoder.h"

namespace tersewire {

// Their parameter fraction: the part of the elements that is to be sent.
double take_fraction(SettingText& text, double fallback);
CodecParameter describe_fraction(std::string fallback, std::string published = {});

// Selects in the first pass over the tensor.
class LargestSelection : public ResidualEncoder {
 public:
  LargestSelection(std::size_t elems, const EncoderContext& context, double fraction,
                   const EncoderOptions& options);

 protected:
  [[nodiscard]] std::span<const std::uint64_t> sent() const noexcept { return sent_; }

 private:
  std::uint32_t survey(const float* input, const float* residual, ThreadPool* pool) final;
  void take_sample(const float* input, const float* residual);
  float threshold(const float* input, const float* residual);

  std::vector<std::uint32_t> sample_;  // of magnitudes, as bit patterns, which compare like them
  std::size_t rank_;                   // of the threshold among them
  std::vector<std::uint64_t> sent_;
};

}  // namespace tersewire
