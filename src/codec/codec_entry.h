// What the registry knows of a codec: all that can be done with its number or its name.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "codec_traits.h"
#include "encoder_options.h"
#include "tersewire/codec.h"

namespace tersewire {

// Functions as those of tersewire/codec.h, for payloads of this codec.
struct CodecEntry {
  CodecDescription description;
  CodecTraits traits = {};
  // Takes the codec's own parameters from the text; the registry refuses what it leaves there.
  // Null: payloads of this codec are only read, and no text makes it.
  std::shared_ptr<const Codec> (*make)(SettingText& text);
  void (*check)(ByteView payload, std::size_t elems);
  void (*decode)(ByteView payload, std::span<float> out, ThreadPool* pool);
  void (*decode_add)(ByteView payload, float weight, std::span<float> out, ThreadPool* pool);
  // Null: a payload carries none.
  std::vector<CodecParameter> (*parameters)(ByteView payload) = nullptr;
  // Null: the values are floats, and are widened.
  void (*decode_f64)(ByteView payload, std::span<double> out, ThreadPool* pool) = nullptr;
  // Null: payloads of this codec hold no ternary digits.
  void (*decode_levels_add)(ByteView payload, std::span<std::int32_t> levels) = nullptr;
  PayloadScalers (*scalers)(ByteView payload, std::size_t elems) = nullptr;
};

template <typename T>
std::shared_ptr<const Codec> make_from_text(SettingText& text) {
  return std::make_shared<T>(text);
}

}  // namespace tersewire
