// Which codec the fuzz targets of codecs are at, and the settings that they try.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "tersewire/codec.h"

namespace tersewire::fuzz {

// The codec that the environment variable FUZZ_CODEC names.
inline CodecId codec_of_environment() {
  const char* name = std::getenv("FUZZ_CODEC");
  for (int id = 1; name != nullptr && id <= static_cast<int>(kLastCodecId); ++id) {
    if (codec_name(static_cast<CodecId>(id)) == name) return static_cast<CodecId>(id);
  }
  std::fprintf(stderr, "set FUZZ_CODEC to a codec's name\n");
  std::exit(2);
}

// The parameters of a codec that are worth trying, each as its values.
inline std::vector<std::vector<std::string>> tried_parameters(CodecId codec) {
  switch (codec) {
    case CodecId::kThreeLc:
      return {{"block=256", "block=64", "block=4096", "mode=paper", "mode=paper,layout=partitions",
               "mode=paper,zre=off,layout=partitions"},
              {"s=1.25", "s=1", "s=1.99"}};
    case CodecId::kTernGrad:
      return {{"clip=2.5", "clip=off", "clip=0.3"},
              {"pack=2bit", "pack=base243", "pack=zre"},
              {"bucket=100000", "bucket=1", "bucket=7", "bucket=512"}};
    case CodecId::kQsgd:
      return {{"levels=7", "levels=1", "levels=2", "levels=127", "levels=65535"},
              {"bucket=512", "bucket=1", "bucket=9", "bucket=100000"}};
    case CodecId::kInceptionn:
      return {{"bound=2^-10", "bound=2^-1", "bound=2^-2", "bound=2^-7", "bound=2^-15"},
              {"mode=bounded", "mode=paper"}};
    case CodecId::kAdaComp:
      return {{"bin=500", "bin=1", "bin=7", "bin=50", "bin=64", "bin=100000"},
              {"factor=2", "factor=1", "factor=3.5"}};
    case CodecId::kLocalSelection:
      return {{"bin=500", "bin=1", "bin=7", "bin=50", "bin=64", "bin=100000"}};
    case CodecId::kDryden:
    case CodecId::kTopK:
      return {{"fraction=0.05", "fraction=1", "fraction=0.003", "fraction=0.5"}};
    case CodecId::kOlandRaj:
      return {{"c=6", "c=0", "c=12", "bits=1", "bits=8", "bits=16"}};
    case CodecId::kTruncate:
      return {{"bits=16", "bits=22", "bits=24"}};
    default:
      return {};
  }
}

inline bool has_lead(CodecId codec) {
  return std::ranges::any_of(codec_descriptions(), [&](const CodecDescription& known) {
    const auto is_lead = [](const CodecParameter& each) { return each.key == "lead"; };
    return known.id == codec && std::ranges::any_of(known.parameters, is_lead);
  });
}

// A codec's text; every digit of `choice` picks the value of a parameter.
inline std::string chosen_text(CodecId codec, std::uint32_t choice) {
  std::string text(codec_name(codec));
  char separator = ':';
  for (const auto& values : tried_parameters(codec)) {
    text += separator + values[choice % values.size()];
    choice /= static_cast<std::uint32_t>(values.size());
    separator = ',';
  }
  if (codec != CodecId::kFp32) {
    text += separator + std::string(choice % 2 == 0 ? "ef=on" : "ef=off");
    separator = ',';
  }
  if (has_lead(codec) && choice % 2 == 0 && choice / 8 % 4 != 0) {
    text += std::array{"", ",lead=1", ",lead=1.5625", ",lead=7.3"}.at(choice / 8 % 4);
  }
  return text + separator + (choice / 2 % 4 == 3 ? "non-finite=reject" : "non-finite=send");
}

}  // namespace tersewire::fuzz
