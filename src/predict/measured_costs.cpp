// The one place of what codecs were measured to cost, for predictions by who has measured nothing.
// Bits: whole trainings, both directions (evidence/blocks, "Where fp32 trains", medians over LeNet
// at two rates, MLP and HDC). Nanoseconds: one core of an AMD EPYC with AVX-512, encode with its
// residual and decode_add ("Every codec: speed, size, error"; 3lc's of "3lc in blocks" at parts of
// 2^20, at 17.1 GB/s of memcpy; 3lc:s=2 is taken to be as fast as s=1.75; those with a lead are
// taken to be as fast as without; local-selection and dryden by how they compare with what their
// defaults were, "Where fp32 trains").
#include "measured_costs.h"

#include <algorithm>
#include <array>
#include <string>

#include "errors.h"

namespace tersewire {
namespace {

constexpr MeasuredCodec measured(std::string_view codec, double bits, double encode_ns,
                                 double decode_ns, double points_lost) {
  return {.codec = codec,
          .cost = {.bits = bits,
                   .encode_seconds = encode_ns * 1e-9,
                   .decode_seconds = decode_ns * 1e-9},
          .points_lost = points_lost};
}

constexpr std::array kMeasured = {
    measured("fp32", 32, 0.41, 0.36, 0),
    measured("fp16", 16, 0.19, 0.20, 0.0),
    measured("bf16", 16, 0.20, 0.22, 0.0),
    measured("truncate", 16, 0.21, 0.30, 0.0),
    measured("int8", 8.0, 0.34, 0.21, 0.0),
    measured("qsgd", 4.07, 0.70, 0.42, 0.1),
    measured("oland-raj", 4.64, 1.91, 1.38, 0.0),
    measured("inceptionn", 3.22, 0.53, 0.72, 0.5),
    measured("topk", 1.90, 0.87, 0.38, 0.3),
    measured("stoch3", 1.61, 0.79, 0.20, 1.7),
    measured("terngrad", 1.23, 0.67, 0.26, 1.7),
    measured("mqe1bit", 1.01, 0.50, 0.15, 0.4),
    measured("signsgd", 1.01, 0.50, 0.14, 0.4),
    measured("3lc", 0.91, 0.76, 0.47, 0.0),
    measured("3lc:s=1.75", 0.42, 0.61, 0.29, 0.1),
    measured("3lc:s=2", 0.30, 0.61, 0.29, 0.0),
    measured("adacomp", 0.111, 0.63, 0.11, 1.2),
    measured("local-selection", 0.176, 0.59, 0.20, 1.3),
    measured("dryden", 0.098, 0.93, 0.10, 1.2),
};

}  // namespace

std::span<const MeasuredCodec> measured_codecs() { return kMeasured; }

const MeasuredCodec& measured_codec(std::string_view codec) {
  return measured_codec(*make_codec(codec));
}

const MeasuredCodec& measured_codec(const Codec& codec) {
  static const auto texts = [] {
    std::array<std::string, kMeasured.size()> full;
    std::ranges::transform(kMeasured, full.begin(), [](const MeasuredCodec& measured) {
      return make_codec(measured.codec)->text();
    });
    return full;
  }();
  const auto* const same = std::ranges::find(texts, codec.text());
  if (same != texts.end()) return kMeasured[static_cast<std::size_t>(same - texts.begin())];
  const std::string_view name = codec_name(codec.id());
  const auto* const found = std::ranges::find(kMeasured, name, &MeasuredCodec::codec);
  if (found != kMeasured.end()) return *found;
  fail(ErrorCode::kInvalidArgument, "codec {} was not measured; use one of the others", name);
}

}  // namespace tersewire
