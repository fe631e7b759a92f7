// Codecs: how a tensor becomes bytes and comes back.
//
// A Codec is immutable and may be shared between threads. It makes one Encoder for each tensor and
// direction, which owns the residual and belongs to one thread at a time. Decoding needs no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tersewire/bytes.h"
#include "tersewire/thread_pool.h"

namespace tersewire {

// A codec's number on the wire (spec/wire-format.md, "Frame").
enum class CodecId : std::uint8_t { kContributors = 0, kFp32 = 1, kThreeLc = 2 };

// What encode() made.
struct Encoded {
  CodecId codec;            // fp32 where the tensor was not finite
  bool not_finite = false;  // the tensor (or its sum with the residual) held a NaN or an infinity
};

// The compression context of one tensor in one direction (3LC, section 3).
class Encoder {
 public:
  virtual ~Encoder() = default;

  [[nodiscard]] virtual std::size_t elems() const noexcept = 0;

  // Encodes residual + input, appends the payload to `out`, and keeps in the residual what the
  // payload does not say.
  //   input   elems() values, any alignment; must not alias the residual or `out`
  //   pool    threads to use; none: the calling thread alone. The bytes do not depend on it.
  // An input with a NaN or an infinity, or whose sum with the residual has one, is appended as it
  // is (codec fp32) and leaves the residual as it was; with non-finite=reject kInvalidArgument is
  // thrown instead. Throws kInvalidArgument where input has another length. After an exception
  // residual and `out` are as before the call.
  // Cost: two passes over input and residual; allocates only where `out` must grow.
  virtual Encoded encode(std::span<const float> input, Bytes& out, ThreadPool* pool = nullptr) = 0;

  // Adds a payload that this encoder made, and that nobody used, back to the residual. Without a
  // residual, and for payloads of fp32, there is nothing to add back. Throws like decode_add.
  void give_back(CodecId codec, ByteView payload);

  // The residual (error accumulation buffer): elems() values, or none where error accumulation is
  // off. It is all the state that an encoder has; saving it and writing it back resumes exactly.
  virtual std::span<float> residual() noexcept = 0;
};

class Codec {
 public:
  virtual ~Codec() = default;

  [[nodiscard]] virtual CodecId id() const noexcept = 0;
  // The full text that makes this codec, every parameter said: "3lc:s=1.75,layout=neighbours,...".
  [[nodiscard]] virtual std::string text() const = 0;
  // No payload for `elems` values is longer, raw ones of tensors that are not finite included.
  [[nodiscard]] virtual std::size_t max_encoded_bytes(std::size_t elems) const = 0;
  [[nodiscard]] virtual std::unique_ptr<Encoder> make_encoder(std::size_t elems) const = 0;
};

// Makes a codec from its text, NAME or NAME:KEY=VALUE,KEY=VALUE. Throws kInvalidArgument that names
// the part that is wrong and what would be right.
std::shared_ptr<const Codec> make_codec(std::string_view text);

// Overwrites `out` with the payload's values. The payload is checked whole first: where it is
// malformed or does not hold exactly out.size() values, kDataLoss is thrown and `out` is unchanged.
// Any thread. Cost: one pass over `out`.
void decode(CodecId codec, ByteView payload, std::span<float> out, ThreadPool* pool = nullptr);

// Adds weight times the payload's values to `out`, the product rounded to float first; a 3lc digit
// of 0 leaves its element untouched (spec/wire-format.md, "Values"). Otherwise like decode().
void decode_add(CodecId codec, ByteView payload, float weight, std::span<float> out,
                ThreadPool* pool = nullptr);

// Checks what decode() would check, for `elems` values, and writes nothing: for a receiver that
// wants to know before it allocates.
void check_payload(CodecId codec, ByteView payload, std::size_t elems);

// One parameter of a codec's text, or one found in a payload.
struct CodecParameter {
  std::string key;
  std::string value;    // in a listing: the default
  std::string range;    // in a listing: what it may be
  std::string meaning;  // in a listing: one line
};

// The parameters that a payload itself carries (m, s, layout, ...), for people. Throws like decode
// where the payload's head is malformed.
std::vector<CodecParameter> payload_parameters(CodecId codec, ByteView payload);

// What there is, for listings.
struct CodecDescription {
  CodecId id;
  std::string name;
  std::string summary;
  std::vector<CodecParameter> parameters;
};
const std::vector<CodecDescription>& codec_descriptions();

// The codec's name, "fp32" or "3lc". Throws kDataLoss for a number that no codec has.
std::string_view codec_name(CodecId id);

}  // namespace tersewire
