// Codecs: how a tensor becomes bytes and comes back.
//
// A Codec is immutable and may be shared between threads. It makes one Encoder for each tensor and
// direction, which owns the residual and belongs to one thread at a time. Decoding needs no state.
//
// Everything here computes in the default floating point mode, whatever the calling thread's is
// (denormals flushed to zero, another rounding, traps), and leaves the caller's unchanged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tersewire/bytes.h"
#include "tersewire/tensor.h"
#include "tersewire/thread_pool.h"

namespace tersewire {

// A codec's number on the wire (spec/wire-format.md, "Frame"). codec_descriptions() says which of
// them this version can make.
enum class CodecId : std::uint8_t {
  kContributors = 0,
  kFp32 = 1,
  kThreeLc = 2,
  kTernGrad = 3,
  kStoch3 = 4,
  kLevels = 5,
  kQsgd = 6,
  kInceptionn = 7,
  kAdaComp = 8,
  kLocalSelection = 9,
  kDryden = 10,
  kTopK = 11,
  kInt8 = 12,
  kMqe1Bit = 13,
  kSignSgd = 14,
  kOlandRaj = 15,
  kTruncate = 16,
  kFp16 = 17,
  kBf16 = 18
};
inline constexpr CodecId kLastCodecId = CodecId::kBf16;

// The kind of error a codec makes, and so which of a training job's data it may carry.
struct CodecTraits {
  enum class Error : std::uint8_t {
    kNone,
    kBounded,   // for each value, regardless of the others
    kUnbiased,  // random, and correct on average
    kScaled,    // depends on the largest value, or on the mean of all
    kUnsent     // all values except the few that are sent
  };

  Error error = Error::kNone;
  bool fits_sums = false;     // partial sums, re-encoded at every hop of a ring
  bool fits_weights = false;  // whole weights, each of which must arrive nearly unchanged
  // Whether values below a bound, which stays fixed however small values become, are sent as zeros:
  // without a residual model deltas, which are small, would be lost for ever.
  bool loses_small_changes = false;
  // Whether senders may agree on its scalers, under which their pushes add up exactly
  // (Encoder::local_scalers(), decode_levels_add()).
  bool shares_scalers = false;
  // Whether threads share all of the encoding of one array, so encoding two arrays at once gains
  // nothing more: no step in it needs the one before, as writing positions of values does.
  bool splits = false;
  // Whether means that servers send teach more without a residual, where the optimizer divides by
  // the size of gradients (adaptive_pull_codec()).
  bool adaptive_means_without_residual = false;
};

// For any codec that has payloads, including those that can only be read; kDataLoss for another
// number.
const CodecTraits& codec_traits(CodecId codec);

// The data that an encoder is for. Stochastic codecs derive their random numbers from (seed,
// sender, tensor, step, the element's position in the tensor) only: bytes do not depend on threads
// or on the order of tensors, nor a value's number on how its tensor is split into parts.
struct EncoderContext {
  std::uint64_t seed = 0;                // the job's
  std::uint32_t sender = 0;              // rank of the node that encodes, below 2^24
  std::uint32_t tensor = 0;              // the tensor's number in its job
  std::uint64_t first_elem = 0;          // where the encoder's values begin in it: a multiple of 4
  TensorKind kind = TensorKind::kOther;  // adacomp derives its bin length from it
};

// The result of encode().
struct Encoded {
  CodecId codec;  // fp32 if the tensor was not finite
  // The tensor, its sum with the residual, or what that would leave in the residual held a NaN or
  // an infinity.
  bool not_finite = false;
};

// The compression context of one tensor in one direction (3LC, section 3).
class Encoder {
 public:
  virtual ~Encoder() = default;

  [[nodiscard]] virtual std::size_t elems() const noexcept = 0;

  // Encodes residual + input, appends the payload to `out`, and keeps in the residual what the
  // payload leaves out.
  //   input   elems() values, any alignment; must not alias the residual or `out`
  //   step    the training step: stochastic codecs repeat their random numbers if it repeats
  //   pool    threads to use; none: the calling thread alone. The bytes do not depend on it.
  // An input with a NaN or an infinity, or whose sum with the residual has one or would leave one
  // in it, is appended uncompressed (codec fp32) and leaves the residual unchanged; with
  // non-finite=reject kInvalidArgument is thrown instead. Throws kInvalidArgument if input has
  // another length. After an exception residual and `out` are as before the call.
  // Cost: two passes over input and residual; allocates only if `out` must grow.
  virtual Encoded encode(std::span<const float> input, std::uint64_t step, Bytes& out,
                         ThreadPool* pool = nullptr) = 0;

  // The same for doubles. Codecs that store only floats round each value to float first, in a copy,
  // and throw kInvalidArgument, naming the value, if a finite one overflows.
  virtual Encoded encode_f64(std::span<const double> input, std::uint64_t step, Bytes& out,
                             ThreadPool* pool = nullptr);

  // The first half of encoding under scalers that all senders share (TernGrad, section 3.1): this
  // tensor's own scalers: one, or one per bucket; none for codecs that have nothing to agree on. A
  // tensor that is not finite offers infinity. Changes nothing.
  virtual std::vector<float> local_scalers(std::span<const float> input,
                                           ThreadPool* pool = nullptr);
  // The second half: encodes under `agreed`, the largest of all senders' offers for each. If one of
  // them is infinite, the input is appended uncompressed (codec fp32). Throws kInvalidArgument if
  // the codec has nothing to agree on, for another count, or for a scaler below this tensor's own.
  // Otherwise like encode().
  virtual Encoded encode_under(std::span<const float> agreed, std::span<const float> input,
                               std::uint64_t step, Bytes& out, ThreadPool* pool = nullptr);

  // Gives the encoder the gradient of the loss with respect to the values that it will encode:
  // oland-raj with bits-from=gradient derives the number of bits from its root mean square; other
  // codecs ignore it, whatever it is. It stays in effect until the next one, and is not part of the
  // residual: observe again after a restart. Throws kInvalidArgument if its length is not elems()
  // or it is not finite.
  virtual void observe_gradient(std::span<const float> gradient);

  // Adds an unused payload of this encoder back to the residual. Without a residual, and for
  // payloads of fp32, there is nothing to add back. What overflows becomes the largest float.
  // Throws like decode_add.
  void give_back(CodecId codec, ByteView payload);

  // Whether what it encodes is the difference between its input and what it sent so far (ef=21:
  // Richtarik, Sokolov, Fatkhullin, "EF21", 2021), so that a receiver adds up what it decodes; the
  // exchanges do. A payload of fp32 is the value itself, and leaves what was sent as it was.
  [[nodiscard]] virtual bool sends_differences() const noexcept { return false; }

  // The residual (error accumulation buffer): elems() values, or none if error accumulation is off.
  // It is all of an encoder's state, apart from an observed gradient; saving it and writing it back
  // resumes exactly, with the next step's number. Encoding never leaves a NaN or an infinity in it.
  virtual std::span<float> residual() noexcept = 0;
};

class Codec {
 public:
  virtual ~Codec() = default;

  [[nodiscard]] virtual CodecId id() const noexcept = 0;
  [[nodiscard]] const CodecTraits& traits() const { return codec_traits(id()); }
  // The full text that makes this codec, with every parameter: "3lc:s=1.75,layout=neighbours,...".
  [[nodiscard]] virtual std::string text() const = 0;
  // Whether its encoders must observe a gradient before each array (Encoder::observe_gradient()).
  [[nodiscard]] virtual bool needs_gradient() const { return false; }
  // Whether its encoders keep a residual (Encoder::residual()), and whether what they encode are
  // differences (Encoder::sends_differences()). Cost: makes an encoder for one value.
  [[nodiscard]] bool keeps_residual() const;
  [[nodiscard]] bool sends_differences() const;
  // What the learning rate of Adam and of others that divide by the size of gradients is to be
  // multiplied by, so that gradients which travel in this codec change a model as they would in
  // fp32: a lead, or ternary values of noise, make them larger, and steps smaller (evidence/adamw,
  // "Rates under Adam"). 1 for codecs that do not gain by it, or with which it was not measured.
  [[nodiscard]] virtual double adaptive_rate_gain() const { return 1; }
  // No payload for `elems` values is longer, including raw payloads of tensors that are not finite.
  [[nodiscard]] virtual std::size_t max_encoded_bytes(std::size_t elems) const = 0;
  // The context matters to stochastic codecs and to those that depend on the tensor's kind. Throws
  // kInvalidArgument for a sender that is not below 2^24, and a first element that is not a
  // multiple of 4.
  [[nodiscard]] virtual std::unique_ptr<Encoder> make_encoder(
      std::size_t elems, const EncoderContext& context = {}) const = 0;
};

// Makes a codec from its text, NAME or NAME:KEY=VALUE,KEY=VALUE. Throws kInvalidArgument, naming
// the wrong part and what is allowed.
std::shared_ptr<const Codec> make_codec(std::string_view text);

// The text of the codec for means that servers send (Job::pull_codec), where `push_codec` is that
// of pushes and the optimizer divides by the size of gradients, as Adam does: what a residual
// delivers late makes its steps smaller (evidence/adamw, "Means without a residual"). 3lc gets
// ef=off, unless the text says ef, a lead or mode=paper; other codecs stay the same. Throws
// kInvalidArgument for what is not a codec's text; make_codec() checks the rest.
std::string adaptive_pull_codec(std::string_view push_codec);

// Appends the payload of codec `levels` for the average of workers' ternary gradients (TernGrad,
// section 3.1): element e decodes to sums[e] * (its scaler / workers).
//   sums          sums of the workers' digits, each from -workers to workers
//   workers       1 to 65535
//   scalers       the workers' shared scalers, finite and not negative: one for each bucket of
//                 bucket_elems (at most 2^40) values, the last may be short; one in all if
//                 bucket_elems is 0
//   dense         levels as digits of 64-bit numbers, which takes up to a fifth less space than bit
//                 fields and more time
// The largest finite float is sent as the one below it, so that no product overflows. Throws
// kInvalidArgument if a requirement is not met; `out` is then as before.
// Cost: one pass over sums, one more to check them; allocates only if `out` must grow.
void append_levels(std::span<const std::int32_t> sums, std::uint32_t workers,
                   std::span<const float> scalers, std::uint64_t bucket_elems, bool dense,
                   Bytes& out);

// Overwrites `out` with the payload's values. No payload holds their number: the caller must know
// it. The whole payload is checked first: if it is not one for out.size() values, kDataLoss is
// thrown and `out` is unchanged. That reveals every wrong number only for fp32, fp16, bf16, int8
// and truncate, which spend a byte or more on each value; payloads of positions (3lc, adacomp,
// local-selection, dryden, topk) pass for many numbers, all others for a few more or fewer.
// Any thread. Cost: one pass over `out`.
void decode(CodecId codec, ByteView payload, std::span<float> out, ThreadPool* pool = nullptr);

// The same into doubles. Codecs whose values are floats decode into a copy, then widen it.
void decode_f64(CodecId codec, ByteView payload, std::span<double> out, ThreadPool* pool = nullptr);

// Adds weight times the payload's values to `out`, the product rounded to float first; a 3lc digit
// of 0 leaves its element untouched (spec/wire-format.md, "Values"). Otherwise like decode().
void decode_add(CodecId codec, ByteView payload, float weight, std::span<float> out,
                ThreadPool* pool = nullptr);

// Checks what decode() would check, for `elems` values, and writes nothing: for a receiver that
// checks before it allocates. Which wrong numbers of values it finds, decode() says.
void check_payload(CodecId codec, ByteView payload, std::size_t elems);

// Adds the digits -1, 0 and 1 of a payload of codec terngrad or stoch3 to `levels`, one for each of
// its values: exact where decode_add() rounds. With frames under the same scalers append_levels()
// takes the sums. The caller ensures that no level leaves its range. Throws kInvalidArgument for
// other codecs; otherwise like decode(). Any thread. Cost: one pass over `levels`.
void decode_levels_add(CodecId codec, ByteView payload, std::span<std::int32_t> levels);

// The scalers in a payload of codec terngrad or stoch3, which frames must share for their digits to
// be added.
struct PayloadScalers {
  std::uint64_t bucket_elems;  // 0: one scaler for the whole tensor
  std::vector<float> scalers;  // finite, not negative

  bool operator==(const PayloadScalers&) const = default;
};
// The scalers of a payload for `elems` values. Checks them and what precedes them, not the digits.
// Throws like decode_levels_add(). Any thread.
PayloadScalers payload_scalers(CodecId codec, ByteView payload, std::size_t elems);

// One parameter of a codec's text, or one found in a payload.
struct CodecParameter {
  std::string key;
  std::string value;    // in a listing: the default
  std::string range;    // in a listing: the allowed values
  std::string meaning;  // in a listing: one line
  // In a listing: the value in the codec's paper, if another default does better; or empty.
  std::string published = {};
};

// The parameters that a payload itself carries (m, s, layout, ...), for people. Throws like decode
// if the payload's head is malformed.
std::vector<CodecParameter> payload_parameters(CodecId codec, ByteView payload);

// A codec that make_codec() makes, for listings.
struct CodecDescription {
  CodecId id;
  std::string name;
  std::string summary;
  std::vector<CodecParameter> parameters;
};
const std::vector<CodecDescription>& codec_descriptions();

// The codec's name: "fp32", "3lc", ... Throws kDataLoss for an unknown number.
std::string_view codec_name(CodecId id);

}  // namespace tersewire
