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

SharedBytes scalers_message(const MessageHeader& header, const Scalers& scalers) {
  MessageWriter writer(header);
  for (std::size_t tensor = 0; tensor < scalers.size(); ++tensor) {
    if (scalers[tensor].empty()) continue;
    writer.add(
        frame_of(tensor, {.codec = CodecId::kFp32}, std::as_bytes(std::span(scalers[tensor]))));
  }
  return shared(writer);
}

Scalers scalers_in(const Received& received, const Scalers& expected) {
  Scalers scalers(expected.size());
  for (const Frame& frame : received.message.frames) {
    if (frame.tensor >= scalers.size()) {
      fail(ErrorCode::kDataLoss, "message from rank {}: there is no tensor number {}",
           received.from, frame.tensor);
    }
    scalers[frame.tensor] = values_in(frame);
  }
  for (std::size_t tensor = 0; tensor < expected.size(); ++tensor) {
    if (scalers[tensor].size() == expected[tensor].size()) continue;
    fail(ErrorCode::kDataLoss,
         "message from rank {}: it has {} scalers for tensor number {}, which has {}; start all "
         "nodes with the same arguments",
         received.from, scalers[tensor].size(), tensor, expected[tensor].size());
  }
  return scalers;
}

SharedBytes ScalerAgreement::take(const Received& offer, std::size_t tensors, int sender) {
  const std::uint64_t step = offer.message.header.step;
  const auto worker = static_cast<std::size_t>(offer.from);
  if (step != step_ || offered_[worker]) {
    fail(ErrorCode::kDataLoss, "offer from worker {}: it came for step {} while step {} is open",
         worker, step, step_);
  }
  if (offers_ == 0) {
    start(offer, tensors);
  } else {
    const Scalers offered = scalers_in(offer, largest_);
    for (std::size_t tensor = 0; tensor < tensors; ++tensor) {
      std::ranges::transform(largest_[tensor], offered[tensor], largest_[tensor].begin(),
                             [](float a, float b) { return std::max(a, b); });
    }
  }
  offered_[worker] = true;
  if (++offers_ < offered_.size()) return nullptr;
  ++step_;
  offers_ = 0;
  offered_.assign(offered_.size(), false);
  return scalers_message(
      {.kind = MessageKind::kAgreement, .sender = static_cast<std::uint32_t>(sender), .step = step},
      largest_);
}

void ScalerAgreement::start(const Received& offer, std::size_t tensors) {
  largest_.assign(tensors, {});
  for (const Frame& frame : offer.message.frames) {
    if (frame.tensor >= tensors) {
      fail(ErrorCode::kDataLoss, "offer from worker {}: there is no tensor number {}", offer.from,
           frame.tensor);
    }
    largest_[frame.tensor] = values_in(frame);
  }
}

}  // namespace tersewire
