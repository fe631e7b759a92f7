// The list of codecs: the one place in this folder that names them all.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "adacomp.h"
#include "codec_entry.h"
#include "dryden.h"
#include "errors.h"
#include "float_mode.h"
#include "fp32.h"
#include "half.h"
#include "inceptionn.h"
#include "int8.h"
#include "levels.h"
#include "oland_raj.h"
#include "qsgd.h"
#include "signs.h"
#include "stoch3.h"
#include "terngrad.h"
#include "tersewire/codec.h"
#include "three_lc.h"
#include "topk.h"
#include "truncate.h"

namespace tersewire {
namespace {

using EntryOf = const CodecEntry& (*)();

// In the order of their numbers.
constexpr std::array kCodecs{
    EntryOf{fp32_codec},       EntryOf{three_lc_codec}, EntryOf{terngrad_codec},
    EntryOf{stoch3_codec},     EntryOf{levels_codec},   EntryOf{qsgd_codec},
    EntryOf{inceptionn_codec}, EntryOf{adacomp_codec},  EntryOf{local_selection_codec},
    EntryOf{dryden_codec},     EntryOf{topk_codec},     EntryOf{int8_codec},
    EntryOf{mqe1bit_codec},    EntryOf{signsgd_codec},  EntryOf{oland_raj_codec},
    EntryOf{truncate_codec},   EntryOf{fp16_codec},     EntryOf{bf16_codec}};

const CodecEntry* find_entry(CodecId id) {
  const auto found =
      std::ranges::find_if(kCodecs, [&](EntryOf entry) { return entry().description.id == id; });
  return found != kCodecs.end() ? &(*found)() : nullptr;
}

// Of those that can be made.
const CodecEntry* find_entry(std::string_view name) {
  const auto found = std::ranges::find_if(kCodecs, [&](EntryOf entry) {
    return entry().make != nullptr && entry().description.name == name;
  });
  return found != kCodecs.end() ? &(*found)() : nullptr;
}

// For a payload's codec.
const CodecEntry& entry_of(CodecId id) {
  const CodecEntry* entry = find_entry(id);
  if (entry != nullptr) return *entry;
  fail(ErrorCode::kDataLoss, "a frame of codec number {} holds no tensor", static_cast<int>(id));
}

// For a payload of ternary digits under scalers.
const CodecEntry& ternary_entry_of(CodecId id) {
  const CodecEntry& entry = entry_of(id);
  if (entry.decode_levels_add != nullptr) return entry;
  fail(ErrorCode::kInvalidArgument,
       "payloads of codec {} hold no ternary digits under scalers; use {}", entry.description.name,
       codecs_with(&CodecTraits::shares_scalers));
}

// Unless the text says ef itself.
void keep_residual(SettingText& parsed, std::string_view text) {
  if (parsed.set_default("ef", "on") != "off") return;
  fail(ErrorCode::kInvalidArgument,
       "codec '{}' would never send model deltas below its bound, and a model that moves in small "
       "steps would stand still; omit ef=off, or use another codec for them",
       text);
}

bool of_local_updates(StateChange carried) {
  return carried == StateChange::kLocalSteps || carried == StateChange::kLocalUpdates;
}

// Model deltas are differences already, and means of followed gradients are late with another.
void send_no_differences(SettingText& parsed, std::string_view text, StateChange carried) {
  const std::string ef = parsed.take_word("ef");
  if (ef == "21" && of_local_updates(carried)) {
    fail(ErrorCode::kInvalidArgument,
         "codec '{}' follows gradients, and local updates send none; omit ef=21", text);
  }
  if (!ef.empty()) parsed.set_default("ef", ef == "21" ? "on" : ef);
}

bool has_lead(const CodecEntry& entry) {
  return std::ranges::any_of(entry.description.parameters,
                             [](const CodecParameter& known) { return known.key == "lead"; });
}

}  // namespace

const CodecTraits& codec_traits(CodecId codec) { return entry_of(codec).traits; }

bool fits(const CodecTraits& traits, StateChange carried) {
  switch (carried) {
    case StateChange::kSums:
      return traits.fits_sums;
    case StateChange::kWeights:
      return traits.fits_weights;
    default:
      return true;
  }
}

std::string codecs_with(bool CodecTraits::*trait) {
  std::vector<std::string_view> names;
  for (const EntryOf entry : kCodecs) {
    if (entry().make == nullptr || !(entry().traits.*trait)) continue;
    names.push_back(entry().description.name);
  }
  const std::string_view last = names.back();
  names.pop_back();
  return fmt::format("{} or {}", fmt::join(names, ", "), last);
}

const std::vector<CodecDescription>& codec_descriptions() {
  static const std::vector<CodecDescription> descriptions = [] {
    std::vector<CodecDescription> made;
    for (const EntryOf entry : kCodecs) {
      if (entry().make != nullptr) made.push_back(entry().description);
    }
    return made;
  }();
  return descriptions;
}

std::shared_ptr<const Codec> make_codec(std::string_view text) {
  return make_codec_for(text, StateChange::kGradients);
}

std::shared_ptr<const Codec> make_codec_for(std::string_view text, StateChange carried) {
  const DefaultFloatMode mode;
  SettingText parsed(text, "codec");
  if (const CodecEntry* const entry = find_entry(parsed.name())) {
    const bool deltas = carried == StateChange::kModelDeltas || of_local_updates(carried);
    if (entry->traits.loses_small_changes && deltas) keep_residual(parsed, text);
    if (carried == StateChange::kLocalUpdates && has_lead(*entry)) parsed.set_default("lead", "1");
    if (carried != StateChange::kGradients && has_lead(*entry)) {
      send_no_differences(parsed, text, carried);
    }
    auto codec = entry->make(parsed);
    parsed.finish(keys_of(entry->description.parameters));
    return codec;
  }
  std::vector<std::string> names;
  for (const CodecDescription& codec : codec_descriptions()) names.push_back(codec.name);
  parsed.refuse_name(names);
}

std::string adaptive_pull_codec(std::string_view push_codec) {
  SettingText text(push_codec, "codec");
  const CodecEntry* const entry = find_entry(text.name());
  if (entry == nullptr || !entry->traits.adaptive_means_without_residual) {
    return std::string(push_codec);
  }
  SettingText given = text;
  const bool says_so = !given.take_word("ef").empty() || !given.take_word("lead").empty();
  if (says_so || given.take_word("mode") == "paper") return std::string(push_codec);
  text.set_default("ef", "off");
  return text.text();
}

std::string_view codec_name(CodecId id) {
  const CodecEntry* entry = find_entry(id);
  if (entry != nullptr) return entry->description.name;
  fail(ErrorCode::kDataLoss, "unknown codec number {}", static_cast<int>(id));
}

void decode(CodecId codec, ByteView payload, std::span<float> out, ThreadPool* pool) {
  const DefaultFloatMode mode;
  entry_of(codec).decode(payload, out, pool);
}

void decode_f64(CodecId codec, ByteView payload, std::span<double> out, ThreadPool* pool) {
  const DefaultFloatMode mode;
  const CodecEntry& entry = entry_of(codec);
  if (entry.decode_f64 != nullptr) return entry.decode_f64(payload, out, pool);
  Floats values(out.size());
  entry.decode(payload, values, pool);
  std::ranges::copy(values, out.begin());
}

void decode_add(CodecId codec, ByteView payload, float weight, std::span<float> out,
                ThreadPool* pool) {
  const DefaultFloatMode mode;
  entry_of(codec).decode_add(payload, weight, out, pool);
}

void check_payload(CodecId codec, ByteView payload, std::size_t elems) {
  const DefaultFloatMode mode;
  entry_of(codec).check(payload, elems);
}

void decode_levels_add(CodecId codec, ByteView payload, std::span<std::int32_t> levels) {
  const DefaultFloatMode mode;
  ternary_entry_of(codec).decode_levels_add(payload, levels);
}

PayloadScalers payload_scalers(CodecId codec, ByteView payload, std::size_t elems) {
  const DefaultFloatMode mode;
  return ternary_entry_of(codec).scalers(payload, elems);
}

std::vector<CodecParameter> payload_parameters(CodecId codec, ByteView payload) {
  const DefaultFloatMode mode;
  const CodecEntry* entry = find_entry(codec);
  if (entry == nullptr || entry->parameters == nullptr) return {};
  return entry->parameters(payload);
}

}  // namespace tersewire
