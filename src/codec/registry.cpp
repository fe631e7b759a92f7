// The list of codecs: the one place in this folder that names them all.
#include <algorithm>

#include "codec_text.h"
#include "errors.h"
#include "fp32.h"
#include "tersewire/codec.h"
#include "three_lc.h"

namespace tersewire {

const std::vector<CodecDescription>& codec_descriptions() {
  static const std::vector<CodecDescription> descriptions{Fp32Codec::description(),
                                                          ThreeLcCodec::description()};
  return descriptions;
}

std::shared_ptr<const Codec> make_codec(std::string_view text) {
  CodecText parsed(text);
  if (parsed.name() == "fp32") return std::make_shared<Fp32Codec>(parsed);
  if (parsed.name() == "3lc") return std::make_shared<ThreeLcCodec>(parsed);
  std::vector<std::string> names;
  for (const CodecDescription& codec : codec_descriptions()) names.push_back(codec.name);
  fail(ErrorCode::kInvalidArgument, "there is no codec '{}'; use {}", parsed.name(),
       fmt::join(names, " or "));
}

std::string_view codec_name(CodecId id) {
  for (const CodecDescription& codec : codec_descriptions()) {
    if (codec.id == id) return codec.name;
  }
  fail(ErrorCode::kDataLoss, "there is no codec number {}", static_cast<int>(id));
}

void decode(CodecId codec, ByteView payload, std::span<float> out, ThreadPool* pool) {
  if (codec == CodecId::kFp32) return Fp32Codec::decode(payload, out);
  if (codec == CodecId::kThreeLc) return ThreeLcCodec::decode(payload, out, pool);
  fail(ErrorCode::kDataLoss, "a frame of codec number {} holds no tensor", static_cast<int>(codec));
}

void decode_add(CodecId codec, ByteView payload, float weight, std::span<float> out,
                ThreadPool* pool) {
  if (codec == CodecId::kFp32) return Fp32Codec::decode_add(payload, weight, out);
  if (codec == CodecId::kThreeLc) return ThreeLcCodec::decode_add(payload, weight, out, pool);
  fail(ErrorCode::kDataLoss, "a frame of codec number {} holds no tensor", static_cast<int>(codec));
}

void check_payload(CodecId codec, ByteView payload, std::size_t elems) {
  if (codec == CodecId::kFp32) return Fp32Codec::check(payload, elems);
  if (codec == CodecId::kThreeLc) return ThreeLcCodec::check(payload, elems);
  fail(ErrorCode::kDataLoss, "a frame of codec number {} holds no tensor", static_cast<int>(codec));
}

std::vector<CodecParameter> payload_parameters(CodecId codec, ByteView payload) {
  if (codec == CodecId::kThreeLc) return ThreeLcCodec::parameters(payload);
  return {};
}

}  // namespace tersewire
