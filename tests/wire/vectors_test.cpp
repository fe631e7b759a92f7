// The library against every vector of spec/vectors, on every SIMD target.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "tersewire/codec.h"
#include "tersewire/error.h"
#include "tersewire/message.h"
#include "tersewire/simd.h"
#include "tersewire/thread_pool.h"
#include "tersewire/tw_file.h"

namespace tersewire {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const fs::path kVectors = fs::path(TERSEWIRE_SPEC_DIR) / "vectors";

// No rejected frame is decoded that claims more elements; a check is enough for those.
constexpr std::size_t kMaxDecoded = std::size_t{1} << 20;

Bytes read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << path;
  const std::vector<char> chars{std::istreambuf_iterator<char>(file), {}};
  Bytes bytes(chars.size());
  if (!chars.empty()) std::memcpy(bytes.data(), chars.data(), chars.size());
  return bytes;
}

json read_json(const fs::path& path) { return json::parse(std::ifstream(path)); }

// The vectors of a file of one a line.
std::vector<json> read_vectors(const fs::path& path) {
  std::ifstream file(path);
  std::vector<json> vectors;
  for (std::string line; std::getline(file, line);) vectors.push_back(json::parse(line));
  EXPECT_FALSE(vectors.empty()) << path;
  return vectors;
}

// The names of the codecs in the folder encoded, and "levels".
std::set<std::string> encoded_names() {
  std::set<std::string> found;
  for (const auto& entry : fs::directory_iterator(kVectors / "encoded")) {
    if (entry.path().extension() == ".json") found.insert(entry.path().stem().string());
  }
  return found;
}

Bytes from_hex(const std::string& hex) {
  Bytes bytes(hex.size() / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  }
  return bytes;
}

template <typename T>
std::vector<T> values_of(ByteView bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

std::vector<float> floats_from_hex(const std::string& hex) {
  return values_of<float>(from_hex(hex));
}

// As bits, so that NaNs and the zeros' signs count, and a difference is readable.
template <typename T>
auto bits_of(const std::vector<T>& values) {
  using Word = std::conditional_t<sizeof(T) == sizeof(float), std::uint32_t, std::uint64_t>;
  std::vector<Word> bits(values.size());
  std::ranges::transform(values, bits.begin(), std::bit_cast<Word, T>);
  return bits;
}

// The same with all NaNs alike, for what is said to become some NaN.
template <typename T>
auto bits_but_for_nans(std::vector<T> values) {
  for (T& value : values) {
    if (std::isnan(value)) value = std::numeric_limits<T>::quiet_NaN();
  }
  return bits_of(values);
}

bool is_half(CodecId codec) { return codec == CodecId::kFp16 || codec == CodecId::kBf16; }

auto decoded_bits(CodecId codec, const std::vector<float>& values) {
  return is_half(codec) ? bits_but_for_nans(values) : bits_of(values);
}

// Whether a payload for n elements cannot be one for n + 8 elements as well.
bool length_follows(CodecId codec, ByteView payload) {
  switch (codec) {
    case CodecId::kThreeLc:  // in blocks what is sent has positions too
      return payload[8] != std::byte{8};
    case CodecId::kLevels:  // dense words are padded
    case CodecId::kQsgd:
    case CodecId::kAdaComp:  // what is sent has positions
    case CodecId::kLocalSelection:
    case CodecId::kDryden:
    case CodecId::kTopK:
    case CodecId::kOlandRaj:  // one value may stand for all
      return false;
    default:
      return true;
  }
}

class Vectors : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    force_simd_target(GetParam());
    ASSERT_EQ(simd_target(), GetParam());
  }
  void TearDown() override { force_simd_target("best"); }

  void expect_frame(const Frame& frame, const json& expected, const json& message);
  void expect_values(const Frame& frame, const json& expected);
  void expect_rejected(const json& vector);
  void expect_encoded(const json& encoded, const Bytes& input, ThreadPool* pool);

  ThreadPool pool_{3};
};

void Vectors::expect_values(const Frame& frame, const json& expected) {
  const auto elems = expected.at("elems").get<std::size_t>();
  EXPECT_EQ(frame.elems().value_or(elems), elems);
  const auto values = floats_from_hex(expected.at("values"));
  ASSERT_EQ(values.size(), elems) << "the vector contradicts itself";
  EXPECT_NO_THROW(check_payload(frame.codec, frame.payload, elems));
  if (length_follows(frame.codec, frame.payload)) {
    EXPECT_THROW(check_payload(frame.codec, frame.payload, elems + 8), Error);
  }
  std::vector<double> wide(values.begin(), values.end());
  if (expected.contains("values_f64")) {
    wide = values_of<double>(from_hex(expected.at("values_f64")));
  }
  for (ThreadPool* const pool : {static_cast<ThreadPool*>(nullptr), &pool_}) {
    std::vector<float> out(elems, 7.0F);
    decode(frame.codec, frame.payload, out, pool);
    EXPECT_EQ(decoded_bits(frame.codec, out), decoded_bits(frame.codec, values)) << "decode";
    std::vector<double> wide_out(elems, 7.0);
    decode_f64(frame.codec, frame.payload, wide_out, pool);
    EXPECT_EQ(bits_but_for_nans(wide_out), bits_but_for_nans(wide)) << "decode_f64";
    if (expected.at("add").is_null()) continue;
    const json& add = expected.at("add");
    const float weight = floats_from_hex(add.at("weight")).at(0);
    std::vector<float> sums = floats_from_hex(add.at("into"));
    decode_add(frame.codec, frame.payload, weight, sums, pool);
    EXPECT_EQ(bits_of(sums), bits_of(floats_from_hex(add.at("result")))) << "decode_add";
  }
}

void Vectors::expect_frame(const Frame& frame, const json& expected, const json& message) {
  const auto flags = expected.at("flags").get<unsigned>();
  EXPECT_EQ(frame.tensor, expected.at("tensor").get<std::uint32_t>());
  EXPECT_EQ(frame.part, expected.at("part").get<std::uint32_t>());
  EXPECT_EQ(static_cast<unsigned>(frame.codec), expected.at("codec").get<unsigned>());
  EXPECT_EQ(frame.description.has_value(), (flags & 1u) != 0);
  EXPECT_EQ(frame.not_finite, (flags & 2u) != 0);
  const json& description = expected.at("description");
  ASSERT_EQ(frame.description.has_value(), !description.is_null());
  if (frame.description) {
    EXPECT_EQ(static_cast<unsigned>(frame.description->element_type),
              description.at("type").get<unsigned>());
    EXPECT_EQ(frame.description->dims, description.at("dims").get<std::vector<std::uint64_t>>());
    EXPECT_EQ(frame.description->part_values, description.value("part_values", 0U));
  }
  if (frame.codec != CodecId::kContributors) return expect_values(frame, expected);
  EXPECT_TRUE(std::ranges::equal(frame.payload, from_hex(expected.at("bitmap"))));
  EXPECT_NO_THROW(check_contributors(frame.payload, message.at("workers").get<std::size_t>()));
}

// Of a message, or of all parts of a file or a state.
struct Parsed {
  MessageHeader header;
  std::vector<Frame> frames;
};

Parsed parse(ByteView bytes) {
  if (!is_file_or_state(message_kind(bytes))) {
    const Message message = parse_message(bytes);
    return {message.header, {message.frames.begin(), message.frames.end()}};
  }
  const std::vector<Message> parts = parse_tw_file(bytes);
  Parsed parsed{parts.front().header, {}};
  for (const Message& part : parts) parsed.frames.push_back(part.frames.front());
  return parsed;
}

TEST_P(Vectors, AcceptedDecodeToWhatTheyHold) {
  for (const json& expected : read_vectors(kVectors / "accepted.jsonl")) {
    SCOPED_TRACE("accepted vector " + expected.at("name").get<std::string>());
    const Bytes bytes = from_hex(expected.at("hex"));
    Parsed message;
    ASSERT_NO_THROW(message = parse(bytes));
    EXPECT_EQ(static_cast<unsigned>(message.header.kind), expected.at("kind").get<unsigned>());
    EXPECT_EQ(message.header.sender, expected.at("sender").get<std::uint32_t>());
    EXPECT_EQ(message.header.step, expected.at("step").get<std::uint64_t>());
    const json& frames = expected.at("frames");
    ASSERT_EQ(message.frames.size(), frames.size());
    for (std::size_t i = 0; i < frames.size(); ++i) {
      SCOPED_TRACE("frame " + std::to_string(i));
      EXPECT_NO_THROW(expect_frame(message.frames[i], frames[i], expected));
    }
  }
}

// Whether `task` throws an Error; one for bad data, with a sentence.
bool rejects(const std::function<void()>& task) {
  try {
    task();
    return false;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDataLoss) << error.what();
    EXPECT_STRNE(error.what(), "");
    return true;
  }
}

// Whether every way to read the frame's values rejects it; they must agree.
bool rejects_values(const Frame& frame, std::size_t elems, ThreadPool& pool) {
  const bool rejected = rejects([&] { check_payload(frame.codec, frame.payload, elems); });
  if (elems > kMaxDecoded) return rejected;
  const std::vector<float> before(elems, -123.25F);
  for (ThreadPool* const use : {static_cast<ThreadPool*>(nullptr), &pool}) {
    std::vector<float> out = before;
    EXPECT_EQ(rejects([&] { decode(frame.codec, frame.payload, out, use); }), rejected);
    if (rejected) {
      EXPECT_EQ(out, before) << "decode changed its output";
    }
    const std::vector<double> wide_before(elems, -123.25);
    std::vector<double> wide = wide_before;
    EXPECT_EQ(rejects([&] { decode_f64(frame.codec, frame.payload, wide, use); }), rejected);
    if (rejected) {
      EXPECT_EQ(wide, wide_before) << "decode_f64 changed its output";
    }
    std::vector<float> sums = before;
    EXPECT_EQ(rejects([&] { decode_add(frame.codec, frame.payload, 1.0F, sums, use); }), rejected);
    if (rejected) {
      EXPECT_EQ(sums, before) << "decode_add changed its output";
    }
  }
  return rejected;
}

void Vectors::expect_rejected(const json& vector) {
  const Bytes bytes = from_hex(vector.at("hex"));
  std::optional<Parsed> message;
  if (rejects([&] { message = parse(bytes); })) return;
  bool rejected = false;
  for (const Frame& frame : message->frames) {
    const bool contributors = frame.codec == CodecId::kContributors;
    const json& told = vector.at(contributors ? "workers" : "elems");
    if (!frame.description && told.is_null()) break;  // it should not have come this far
    const std::size_t number = frame.elems() ? *frame.elems() : told.get<std::size_t>();
    rejected |= contributors ? rejects([&] { check_contributors(frame.payload, number); })
                             : rejects_values(frame, number, pool_);
  }
  EXPECT_TRUE(rejected) << "it was accepted, though: " << vector.at("reason");
}

TEST_P(Vectors, RejectedAreRejectedAndChangeNothing) {
  for (const json& vector : read_vectors(kVectors / "rejected.jsonl")) {
    SCOPED_TRACE("rejected vector " + vector.at("name").get<std::string>());
    ASSERT_NO_THROW(expect_rejected(vector));
  }
}

// Where two payloads differ first, for people; the payloads are too long to print.
testing::AssertionResult same_bytes(const Bytes& made, const Bytes& expected) {
  const auto [ours, theirs] = std::ranges::mismatch(made, expected);
  if (ours == made.end() && theirs == expected.end()) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "payloads of " << made.size() << " and " << expected.size()
         << " bytes differ from byte " << (ours - made.begin()) << " on";
}

Bytes input_of(const json& encoded, const Bytes& long_input) {
  if (encoded.at("long").is_null()) return from_hex(encoded.at("input"));
  const auto bytes = encoded.at("long").get<std::size_t>() * sizeof(float);
  return {long_input.begin(), long_input.begin() + static_cast<std::ptrdiff_t>(bytes)};
}

EncoderContext context_of(const json& encoded) {
  return {.seed = encoded.at("seed"),
          .sender = encoded.at("sender"),
          .tensor = encoded.at("tensor"),
          .first_elem = encoded.at("first")};
}

Encoded encode_as_told(Encoder& encoder, const json& encoded, ByteView input, Bytes& out,
                       ThreadPool* pool) {
  const auto step = encoded.at("step").get<std::uint64_t>();
  if (encoded.at("type") == "f64") {
    return encoder.encode_f64(values_of<double>(input), step, out, pool);
  }
  const auto values = values_of<float>(input);
  if (encoded.at("agreed").is_null()) return encoder.encode(values, step, out, pool);
  return encoder.encode_under(floats_from_hex(encoded.at("agreed")), values, step, out, pool);
}

void Vectors::expect_encoded(const json& encoded, const Bytes& input, ThreadPool* pool) {
  const bool wide = encoded.at("type") == "f64";
  const std::size_t elems = input.size() / (wide ? sizeof(double) : sizeof(float));
  const auto codec = make_codec(encoded.at("codec").get<std::string>());
  const auto encoder = codec->make_encoder(elems, context_of(encoded));
  if (!encoded.at("residual").is_null()) {
    std::ranges::copy(floats_from_hex(encoded.at("residual")), encoder->residual().begin());
  }
  if (!encoded.at("gradient").is_null()) {
    encoder->observe_gradient(floats_from_hex(encoded.at("gradient")));
  }
  Bytes out;
  const Encoded made = encode_as_told(*encoder, encoded, input, out, pool);
  EXPECT_EQ(static_cast<unsigned>(made.codec), encoded.at("made").get<unsigned>());
  EXPECT_EQ(made.not_finite, encoded.at("not_finite").get<bool>());
  EXPECT_TRUE(same_bytes(out, from_hex(encoded.at("payload"))));
  if (!wide) {
    EXPECT_LE(out.size(), codec->max_encoded_bytes(elems));
  }
  const auto residual = encoder->residual();
  const json& after = encoded.at("residual_after");
  EXPECT_EQ(bits_of(std::vector(residual.begin(), residual.end())),
            bits_of(floats_from_hex(after.is_null() ? "" : after.get<std::string>())))
      << "residual";
}

TEST_P(Vectors, EncodersMakeTheSameBytes) {
  const Bytes long_input = read_file(kVectors / "encoded" / "long.f32");
  auto codecs = encoded_names();
  ASSERT_EQ(codecs.erase("levels"), 1U);
  ASSERT_EQ(codecs.size(), codec_descriptions().size());
  for (const std::string& name : codecs) {
    for (const json& encoded : read_json(kVectors / "encoded" / (name + ".json"))) {
      SCOPED_TRACE(name + ": " + encoded.at("name").get<std::string>());
      const Bytes input = input_of(encoded, long_input);
      EXPECT_NO_THROW(expect_encoded(encoded, input, nullptr));
      EXPECT_NO_THROW(expect_encoded(encoded, input, &pool_));
    }
  }
}

TEST_P(Vectors, LevelsArePackedTheSame) {
  for (const json& packed : read_json(kVectors / "encoded" / "levels.json")) {
    SCOPED_TRACE(packed.at("name").get<std::string>());
    const auto sums = values_of<std::int32_t>(from_hex(packed.at("sums")));
    Bytes out;
    append_levels(sums, packed.at("workers"), floats_from_hex(packed.at("scalers")),
                  packed.at("bucket"), packed.at("dense"), out);
    EXPECT_TRUE(same_bytes(out, from_hex(packed.at("payload"))));
  }
}

INSTANTIATE_TEST_SUITE_P(EverySimdTarget, Vectors, testing::ValuesIn(simd_targets()),
                         [](const auto& target) { return target.param; });

}  // namespace
}  // namespace tersewire
