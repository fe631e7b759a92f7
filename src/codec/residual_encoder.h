// What every encoder has in common: the residual and the contract for values that are not finite.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "encode_call.h"
#include "encoder_options.h"
#include "partition.h"
#include "tersewire/codec.h"

namespace tersewire {

// What a single pass over a tensor made of it.
struct OnePass {
  CodecId codec;
  std::uint32_t largest;  // magnitude, as survey() returns it
};

// Keeps the residual, finds the largest magnitude of residual + input, and lets the codec encode
// what is finite.
class ResidualEncoder : public Encoder {
 public:
  ResidualEncoder(std::size_t elems, const EncoderContext& context, const EncoderOptions& options);

  [[nodiscard]] std::size_t elems() const noexcept final { return elems_; }
  std::span<float> residual() noexcept final { return residual_; }
  [[nodiscard]] bool sends_differences() const noexcept final { return differences_; }
  Encoded encode(std::span<const float> input, std::uint64_t step, Bytes& out,
                 ThreadPool* pool) final;

 protected:
  [[nodiscard]] const EncoderContext& context() const noexcept { return context_; }
  // That of the encode() under way, for a survey that draws random numbers.
  [[nodiscard]] std::uint64_t step() const noexcept { return step_; }
  // The random words of elements [first, first + n) in this step; `first` is a multiple of 4.
  void random_words(std::uint64_t step, std::size_t first, std::size_t n, std::uint32_t* out) const;
  // Null where none is kept.
  [[nodiscard]] float* residual_data() noexcept {
    return residual_.empty() ? nullptr : residual_.data();
  }

  // The first pass: the largest |input + residual| as its bit pattern; kernels::kNotFinite or above
  // where a sum is not finite. A codec that needs more than the maximum gathers it here, in the
  // same pass over memory, and keeps it in members until encode_finite().
  virtual std::uint32_t survey(const float* input, const float* residual, ThreadPool* pool);

  // How many times the input counts in both passes.
  [[nodiscard]] float lead() const noexcept { return lead_; }

  // Throws kInvalidArgument where this is not the tensor's length.
  void check_length(std::size_t elems) const;
  // Appends the input as it is, for a tensor that is not finite, or leaves a residual that is not
  // (`not_finite`, refused with non-finite=reject), or that another sender's keeps from being
  // encoded.
  Encoded append_raw(std::span<const float> input, bool not_finite, Bytes& out) const;

 private:
  // The second pass: appends the payload for residual + input and updates the residual. What may
  // throw comes before the residual is touched; bytes that it leaves in `out` are taken off.
  virtual CodecId encode_finite(const EncodeCall& call, Bytes& out) = 0;

  // Both passes in one, for codecs that need nothing from the first; called where no residual is
  // kept. Appends the payload; where the tensor turns out not to be finite, it is taken off again.
  // Nothing (the default): there is no such way.
  virtual std::optional<OnePass> encode_at_once(const EncodeCall& call, Bytes& out);

  // Whether both passes count the lead, and the second takes it back: two passes over memory less.
  [[nodiscard]] virtual bool counts_lead() const noexcept { return false; }

  [[nodiscard]] const float* with_lead(std::span<const float> input, ThreadPool* pool) const;
  void take_lead_back(std::span<const float> input, ThreadPool* pool);
  // How the input differs from what was sent so far, in memory that lasts likewise.
  [[nodiscard]] const float* difference_to(std::span<const float> input) const;
  // `as_given` is sent where the tensor is not finite.
  Encoded encode_call(EncodeCall call, std::span<const float> as_given, Bytes& out);
  // Runs `change`, which makes the new residual for values of this magnitude. False: it would hold
  // an infinity, and is as before.
  template <typename Change>
  bool keeps_finite(float largest, const Change& change);

  std::size_t elems_;
  EncoderContext context_;
  bool reject_not_finite_;
  float lead_;
  bool differences_;
  std::uint64_t step_ = 0;
  std::vector<float> residual_;  // of differences: what was sent so far, negated
};

}  // namespace tersewire
