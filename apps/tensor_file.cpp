#include "apps/tensor_file.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tersewire/error.h"

namespace tersewire {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little,
              "values are copied as they lie in memory");

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kAlignment = 8;
constexpr std::size_t kMaxHeaderBytes = std::size_t{100} << 20;
constexpr std::uint64_t kMaxElems = std::uint64_t{1} << 40;
constexpr const char* kMetadata = "__metadata__";
constexpr const char* kChecksum = "xxh64";
constexpr const char* kNoChecksum = "0000000000000000";

template <typename... Args>
[[noreturn]] void malformed(fmt::format_string<Args...> what, Args&&... args) {
  throw Error(ErrorCode::kDataLoss,
              fmt::format("no safetensors file, or a damaged one: {}; use another copy of it",
                          fmt::format(what, std::forward<Args>(args)...)));
}

std::string_view text_of(ByteView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Of the whole file, in which the checksum's own place holds zeros.
std::string checksum_of(ByteView file, std::size_t place) {
  XXH64_state_t state;
  XXH64_reset(&state, 0);
  const std::size_t length = std::strlen(kNoChecksum);
  XXH64_update(&state, file.data(), place);
  XXH64_update(&state, kNoChecksum, length);
  const ByteView rest = file.subspan(place + length);
  XXH64_update(&state, rest.data(), rest.size());
  return fmt::format("{:016x}", XXH64_digest(&state));
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
    if (!side.is_number_unsigned()) malformed("'{}' has a side that is no number", name);
    shape.push_back(side.get<std::uint64_t>());
    if (shape.back() != 0 && elems > kMaxElems / shape.back()) {
      malformed("'{}' claims more than 2^40 values", name);
    }
    elems *= shape.back();
  }
  return shape;
}

// `used` bytes of the data belong to other arrays: none may lie twice in it, which would let a
// small file claim much memory.
TensorFile::Array array_in(const std::string& name, const json& entry, ByteView data,
                           std::uint64_t used) {
  if (!entry.is_object()) malformed("'{}' is not described", name);
  const auto type = entry.find("dtype");
  if (type == entry.end() || !type->is_string()) malformed("'{}' has no type", name);
  if (type->get_ref<const std::string&>() != "F32") {
    throw Error(ErrorCode::kUnimplemented,
                fmt::format("'{}' holds {} and only F32 is read here; convert it", name,
                            type->get_ref<const std::string&>()));
  }
  std::uint64_t elems = 0;
  TensorFile::Array array{.shape = shape_in(name, entry, elems), .values = {}};
  const auto offsets = entry.find("data_offsets");
  if (offsets == entry.end() || !offsets->is_array() || offsets->size() != 2 ||
      !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned()) {
    malformed("'{}' has no place", name);
  }
  const auto begin = (*offsets)[0].get<std::uint64_t>();
  const auto end = (*offsets)[1].get<std::uint64_t>();
  if (begin > end || end > data.size() || end - begin != elems * sizeof(float) ||
      end - begin > data.size() - used) {
    malformed("'{}' does not lie where it says", name);
  }
  array.values.resize(elems);
  if (elems > 0) std::memcpy(array.values.data(), data.data() + begin, end - begin);
  return array;
}

std::map<std::string, std::string> facts_in(const json& metadata) {
  std::map<std::string, std::string> facts;
  if (!metadata.is_object()) malformed("its facts are no object");
  for (const auto& [name, value] : metadata.items()) {
    if (!value.is_string()) malformed("fact '{}' is no text", name);
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
  const std::size_t place = kLengthBytes + checksum_place(header);
  const std::string checksum = checksum_of(bytes, place);
  std::memcpy(bytes.data() + place, checksum.data(), checksum.size());
  return bytes;
}

TensorFile parse_tensor_file(ByteView bytes, bool with_checksum) {
  std::uint64_t length = 0;
  if (bytes.size() < kLengthBytes) malformed("it has {} bytes", bytes.size());
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > kMaxHeaderBytes || length > bytes.size() - kLengthBytes) {
    malformed("its {} bytes cannot hold a header of {}", bytes.size(), length);
  }
  const std::string_view text = text_of(bytes.subspan(kLengthBytes, length));
  const json header = json::parse(text, nullptr, false);
  if (!header.is_object()) malformed("its header is no JSON object");
  const ByteView data = bytes.subspan(kLengthBytes + length);
  TensorFile file;
  std::uint64_t used = 0;
  for (const auto& [name, entry] : header.items()) {
    if (name == kMetadata) {
      file.facts = facts_in(entry);
      continue;
    }
    const auto& array = file.arrays[name] = array_in(name, entry, data, used);
    used += array.values.size() * sizeof(float);
  }
  if (used != data.size()) malformed("its arrays take {} bytes and {} follow", used, data.size());
  const auto checksum = file.facts.extract(kChecksum);
  if (with_checksum && !checksum) malformed("it has no checksum");
  if (checksum) {
    const std::size_t place = kLengthBytes + checksum_place(text);
    if (checksum.mapped().size() != std::strlen(kNoChecksum) ||
        checksum.mapped() != checksum_of(bytes, place)) {
      malformed("its checksum is not that of its bytes");
    }
  }
  return file;
}

}  // namespace tersewire
