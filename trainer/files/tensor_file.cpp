#include "trainer/files/tensor_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tersewire/error.h"

namespace tersewire {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little,
              "values are copied as they lie in memory");

constexpr std::size_t kHeaderLengthBytes = 8;
constexpr std::size_t kAlignment = 8;
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxHeaderBytes = std::size_t{100} << 20;
constexpr std::uint64_t kMaxElems = std::uint64_t{1} << 40;
constexpr const char* kMetadata = "__metadata__";
constexpr const char* kChecksum = "xxh64";
constexpr const char* kNoChecksum = "0000000000000000";

template <typename... Args>
[[noreturn]] void malformed(fmt::format_string<Args...> what, Args&&... args) {
  throw Error(ErrorCode::kDataLoss,
              fmt::format("not a safetensors file, or a damaged one: {}; use another copy of it",
                          fmt::format(what, std::forward<Args>(args)...)));
}

std::string_view text_of(ByteView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Of the whole file, in which the checksum's own place holds zeros.
std::string checksum_of(std::size_t size, const PieceOfFile& piece, std::size_t place) {
  XXH64_state_t state;
  XXH64_reset(&state, 0);
  const auto add = [&](std::size_t begin, std::size_t end) {
    for (std::size_t at = begin; at < end;) {
      const ByteView bytes = piece(at, std::min(kPieceBytes, end - at));
      XXH64_update(&state, bytes.data(), bytes.size());
      at += bytes.size();
    }
  };
  const std::size_t length = std::strlen(kNoChecksum);
  add(0, place);
  XXH64_update(&state, kNoChecksum, length);
  add(place + length, size);
  return fmt::format("{:016x}", XXH64_digest(&state));
}

PieceOfFile pieces_of(ByteView file) {
  return [file](std::size_t begin, std::size_t count) { return file.subspan(begin, count); };
}

std::string header_of(const TensorFile& file) {
  json header = json::object();
  header[kMetadata] = file.facts;
  header[kMetadata][kChecksum] = kNoChecksum;
  std::uint64_t offset = 0;
  for (const auto& [name, array] : file.arrays) {
    const std::uint64_t end = offset + array.values.size() * sizeof(float);
    header[name] = {{"dtype", "F32"}, {"shape", array.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump(-1, ' ', true, json::error_handler_t::replace);
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  return text;
}

// Where the checksum's digits are in a header, as its key and colon precede them.
std::size_t checksum_place(std::string_view header) {
  const std::string before = fmt::format("\"{}\":\"", kChecksum);
  const std::size_t found = header.find(before);
  if (found == std::string_view::npos) malformed("its checksum is not where it belongs");
  return found + before.size();
}

void append(Bytes& bytes, const void* from, std::size_t count) {
  const auto* first = static_cast<const std::byte*>(from);
  bytes.insert(bytes.end(), first, first + count);
}

// Also the elements of an array of this shape.
std::vector<std::uint64_t> shape_in(const std::string& name, const json& entry,
                                    std::uint64_t& elems) {
  const auto found = entry.find("shape");
  if (found == entry.end() || !found->is_array()) malformed("'{}' has no shape", name);
  std::vector<std::uint64_t> shape;
  elems = 1;
  for (const json& side : *found) {
    if (!side.is_number_unsigned()) malformed("'{}' has a dimension that is not a number", name);
    shape.push_back(side.get<std::uint64_t>());
    if (shape.back() != 0 && elems > kMaxElems / shape.back()) {
      malformed("'{}' claims more than 2^40 values", name);
    }
    elems *= shape.back();
  }
  return shape;
}

template <typename Value>
float value_at(const std::byte* bytes) {
  Value value;
  std::memcpy(&value, bytes, sizeof(value));
  return static_cast<float>(value);
}

float half_at(const std::byte* bytes) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, bytes, sizeof(bits));
  const int exponent = bits >> 10 & 0x1F;
  const auto fraction = static_cast<float>(bits & 0x3FF);
  float value = std::numeric_limits<float>::infinity();
  if (exponent < 0x1F) {
    value = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(fraction + 1024, exponent - 25);
  } else if (fraction != 0) {
    value = std::numeric_limits<float>::quiet_NaN();
  }
  return bits >> 15 == 0 ? value : -value;
}

float brain_float_at(const std::byte* bytes) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, bytes, sizeof(bits));
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

// Of the format's types those whose values can be read.
struct StoredType {
  std::string_view name;
  std::size_t bytes;
  float (*value_at)(const std::byte* bytes);
};

constexpr std::array kTypes = std::to_array<StoredType>({
    {"F32", 4, value_at<float>},
    {"F64", 8, value_at<double>},
    {"F16", 2, half_at},
    {"BF16", 2, brain_float_at},
    {"I8", 1, value_at<std::int8_t>},
    {"I16", 2, value_at<std::int16_t>},
    {"I32", 4, value_at<std::int32_t>},
    {"I64", 8, value_at<std::int64_t>},
    {"U8", 1, value_at<std::uint8_t>},
    {"U16", 2, value_at<std::uint16_t>},
    {"U32", 4, value_at<std::uint32_t>},
    {"U64", 8, value_at<std::uint64_t>},
    {"BOOL", 1, value_at<std::uint8_t>},
});

const StoredType* type_named(std::string_view name) {
  const auto found = std::ranges::find(kTypes, name, &StoredType::name);
  return found == kTypes.end() ? nullptr : &*found;
}

// `used` bytes of the data belong to other arrays: none may lie twice in it, which would let a
// small file claim much memory.
TensorFileIndex::Place place_in(const std::string& name, const json& entry, std::size_t data_bytes,
                                std::uint64_t used) {
  if (!entry.is_object()) malformed("the entry of '{}' is not an object", name);
  const auto type = entry.find("dtype");
  if (type == entry.end() || !type->is_string()) malformed("'{}' has no dtype", name);
  const StoredType* known = type_named(type->get_ref<const std::string&>());
  std::uint64_t elems = 0;
  std::vector<std::uint64_t> shape = shape_in(name, entry, elems);
  const auto offsets = entry.find("data_offsets");
  if (offsets == entry.end() || !offsets->is_array() || offsets->size() != 2 ||
      !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned()) {
    malformed("'{}' has no data_offsets", name);
  }
  const auto begin = (*offsets)[0].get<std::uint64_t>();
  const auto end = (*offsets)[1].get<std::uint64_t>();
  if (begin > end || end > data_bytes || end - begin > data_bytes - used ||
      (known != nullptr && end - begin != elems * known->bytes)) {
    malformed("the data_offsets of '{}' do not fit its shape and the file", name);
  }
  return {.shape = std::move(shape),
          .type = type->get<std::string>(),
          .elems = elems,
          .begin = begin,
          .bytes = end - begin};
}

std::map<std::string, std::string> facts_in(const json& metadata) {
  std::map<std::string, std::string> facts;
  if (!metadata.is_object()) malformed("its metadata is not an object");
  for (const auto& [name, value] : metadata.items()) {
    if (!value.is_string()) malformed("metadata '{}' is not text", name);
    facts[name] = value.get<std::string>();
  }
  return facts;
}

}  // namespace

Bytes tensor_file_bytes(const TensorFile& file) {
  const std::string header = header_of(file);
  const std::uint64_t length = header.size();
  Bytes bytes;
  append(bytes, &length, sizeof(length));
  append(bytes, header.data(), header.size());
  for (const auto& [name, array] : file.arrays) {
    append(bytes, array.values.data(), array.values.size() * sizeof(float));
  }
  const std::size_t place = kHeaderLengthBytes + checksum_place(header);
  const std::string checksum = checksum_of(bytes.size(), pieces_of(bytes), place);
  std::memcpy(bytes.data() + place, checksum.data(), checksum.size());
  return bytes;
}

TensorFileIndex index_tensor_file(std::size_t size, const PieceOfFile& piece, bool with_checksum) {
  std::uint64_t length = 0;
  if (size < kHeaderLengthBytes) malformed("it has {} bytes", size);
  std::memcpy(&length, piece(0, kHeaderLengthBytes).data(), kHeaderLengthBytes);
  if (length > kMaxHeaderBytes || length > size - kHeaderLengthBytes) {
    malformed("its {} bytes cannot hold a header of {}", size, length);
  }
  const std::string text(text_of(piece(kHeaderLengthBytes, length)));
  const json header = json::parse(text, nullptr, false);
  if (!header.is_object()) malformed("its header is not a JSON object");
  const std::size_t data_begin = kHeaderLengthBytes + length;
  const std::size_t data_bytes = size - data_begin;
  TensorFileIndex index;
  std::uint64_t used = 0;
  for (const auto& [name, entry] : header.items()) {
    if (name == kMetadata) {
      index.facts = facts_in(entry);
      continue;
    }
    auto& place = index.arrays[name] = place_in(name, entry, data_bytes, used);
    place.begin += data_begin;
    used += place.bytes;
    if (with_checksum && place.type != "F32") malformed("'{}' holds {}, not F32", name, place.type);
  }
  if (used != data_bytes)
    malformed("its arrays take {} bytes, but {} bytes follow its header", used, data_bytes);
  const auto checksum = index.facts.extract(kChecksum);
  if (with_checksum && !checksum) malformed("it has no checksum");
  if (checksum) {
    const std::size_t place = kHeaderLengthBytes + checksum_place(text);
    if (checksum.mapped().size() != std::strlen(kNoChecksum) ||
        checksum.mapped() != checksum_of(size, piece, place)) {
      malformed("its checksum does not match its bytes");
    }
  }
  return index;
}

TensorFile parse_tensor_file(ByteView bytes, bool with_checksum) {
  TensorFileIndex index = index_tensor_file(bytes.size(), pieces_of(bytes), with_checksum);
  TensorFile file{.facts = std::move(index.facts), .arrays = {}};
  for (auto& [name, place] : index.arrays) {
    const StoredType* type = type_named(place.type);
    if (place.type != "F32") file.types[name] = place.type;
    if (type == nullptr) {
      file.unread[name] = std::move(place.shape);
      continue;
    }
    auto& array = file.arrays[name] = {std::move(place.shape), std::vector<float>(place.elems)};
    const std::byte* from = bytes.data() + place.begin;
    for (float& value : array.values) {
      value = type->value_at(from);
      from += type->bytes;
    }
  }
  return file;
}

}  // namespace tersewire
