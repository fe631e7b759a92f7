#include "scaler_agreement.h"

#include <algorithm>
#include <cstring>

namespace tersewire {
namespace {

// parse_message() has seen to it that these are scalers.
std::vector<float> values_in(const Frame& frame) {
  std::vector<float> values(frame.payload.size() / sizeof(float));
  std::memcpy(values.data(), frame.payload.data(), frame.payload.size());
  return values;
}

}  // namespace

SharedBytes scalers_message(const Placement& placement, const MessageHeader& header,
                            const Scalers& scalers) {
  MessageWriter writer(header);
  for (std::size_t part = 0; part < scalers.size(); ++part) {
    if (scalers[part].empty()) continue;
    writer.add(frame_of(placement, part, {.codec = CodecId::kFp32},
                        std::as_bytes(std::span(scalers[part]))));
  }
  return shared(writer);
}

Scalers scalers_in(const Received& received, const Placement& placement, const Scalers& expected) {
  Scalers scalers(expected.size());
  for (const Frame& frame : received.message.frames) {
    scalers[part_in(placement, received.from, frame)] = values_in(frame);
  }
  for (std::size_t part = 0; part < expected.size(); ++part) {
    if (scalers[part].size() == expected[part].size()) continue;
    fail(ErrorCode::kDataLoss,
         "message from rank {}: it has {} scalers for {}, which has {}; start all nodes with the "
         "same arguments",
         received.from, scalers[part].size(), placement.name(part), expected[part].size());
  }
  return scalers;
}

SharedBytes ScalerAgreement::take(const Received& offer, const Placement& placement, int sender) {
  const std::uint64_t step = offer.message.header.step;
  const auto worker = static_cast<std::size_t>(offer.from);
  if (step != step_ || offered_[worker]) {
    fail(ErrorCode::kDataLoss, "offer from worker {}: it {}", worker, came_for(step, step_));
  }
  if (offers_ == 0) {
    start(offer, placement);
  } else {
    const Scalers offered = scalers_in(offer, placement, largest_);
    for (std::size_t part = 0; part < offered.size(); ++part) {
      std::ranges::transform(largest_[part], offered[part], largest_[part].begin(),
                             [](float a, float b) { return std::max(a, b); });
    }
  }
  offered_[worker] = true;
  if (++offers_ < offered_.size()) return nullptr;
  ++step_;
  offers_ = 0;
  offered_.assign(offered_.size(), false);
  return scalers_message(
      placement,
      {.kind = MessageKind::kAgreement, .sender = static_cast<std::uint32_t>(sender), .step = step},
      largest_);
}

void ScalerAgreement::start(const Received& offer, const Placement& placement) {
  largest_.assign(placement.parts.size(), {});
  for (const Frame& frame : offer.message.frames) {
    const std::size_t part = part_in(placement, offer.from, frame);
    check_length(offer.from, placement.name(part), frame,
                 sizeof(float) * std::max<std::size_t>(placement.parts[part].elems, 1));
    largest_[part] = values_in(frame);
  }
}

}  // namespace tersewire
