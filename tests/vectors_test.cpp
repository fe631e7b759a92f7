// The library against every message of spec/vectors, on every SIMD target.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tersewire/codec.h"
#include "tersewire/error.h"
#include "tersewire/message.h"
#include "tersewire/simd.h"
#include "tersewire/thread_pool.h"

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

// The names of a folder's files with this extension.
std::set<std::string> names(const char* folder, const char* extension) {
  std::set<std::string> found;
  for (const auto& entry : fs::directory_iterator(kVectors / folder)) {
    if (entry.path().extension() == extension) found.insert(entry.path().stem().string());
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

std::vector<float> floats_from_hex(const std::string& hex) {
  const Bytes bytes = from_hex(hex);
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// As bits, so that NaNs and the zeros' signs count, and a difference is readable.
std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits(values.size());
  std::ranges::transform(values, bits.begin(), std::bit_cast<std::uint32_t, float>);
  return bits;
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
  void expect_rejected(const std::string& name, const json& why);

  ThreadPool pool_{3};
};

void Vectors::expect_values(const Frame& frame, const json& expected) {
  const auto elems = expected.at("elems").get<std::size_t>();
  if (frame.description) {
    EXPECT_EQ(frame.description->elems(), elems);
  }
  const auto values = floats_from_hex(expected.at("values"));
  ASSERT_EQ(values.size(), elems) << "the vector contradicts itself";
  EXPECT_NO_THROW(check_payload(frame.codec, frame.payload, elems));
  EXPECT_THROW(check_payload(frame.codec, frame.payload, elems + 5), Error);
  for (ThreadPool* const pool : {static_cast<ThreadPool*>(nullptr), &pool_}) {
    std::vector<float> out(elems, 7.0F);
    decode(frame.codec, frame.payload, out, pool);
    EXPECT_EQ(bits_of(out), bits_of(values)) << "decode";
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
  EXPECT_EQ(static_cast<unsigned>(frame.codec), expected.at("codec").get<unsigned>());
  EXPECT_EQ(frame.description.has_value(), (flags & 1u) != 0);
  EXPECT_EQ(frame.not_finite, (flags & 2u) != 0);
  const json& description = expected.at("description");
  ASSERT_EQ(frame.description.has_value(), !description.is_null());
  if (frame.description) {
    EXPECT_EQ(static_cast<unsigned>(frame.description->element_type),
              description.at("type").get<unsigned>());
    EXPECT_EQ(frame.description->dims, description.at("dims").get<std::vector<std::uint64_t>>());
  }
  if (frame.codec != CodecId::kContributors) return expect_values(frame, expected);
  EXPECT_TRUE(std::ranges::equal(frame.payload, from_hex(expected.at("bitmap"))));
  EXPECT_NO_THROW(check_contributors(frame.payload, message.at("workers").get<std::size_t>()));
}

TEST_P(Vectors, AcceptedDecodeToWhatTheyHold) {
  const auto messages = names("accepted", ".tw");
  ASSERT_FALSE(messages.empty());
  ASSERT_EQ(messages, names("accepted", ".json"));
  for (const std::string& name : messages) {
    SCOPED_TRACE("spec/vectors/accepted/" + name);
    const Bytes bytes = read_file(kVectors / "accepted" / (name + ".tw"));
    const json expected = read_json(kVectors / "accepted" / (name + ".json"));
    Message message;
    ASSERT_NO_THROW(message = parse_message(bytes));
    EXPECT_EQ(static_cast<unsigned>(message.header.kind), expected.at("kind").get<unsigned>());
    EXPECT_EQ(message.header.sender, expected.at("sender").get<std::uint32_t>());
    EXPECT_EQ(message.header.step, expected.at("step").get<std::uint64_t>());
    const json& frames = expected.at("frames");
    ASSERT_EQ(message.frames.size(), frames.size());
    for (std::size_t i = 0; i < frames.size(); ++i) {
      SCOPED_TRACE("frame " + std::to_string(i));
      ASSERT_NO_THROW(expect_frame(message.frames[i], frames[i], expected));
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
    std::vector<float> sums = before;
    EXPECT_EQ(rejects([&] { decode_add(frame.codec, frame.payload, 1.0F, sums, use); }), rejected);
    if (rejected) {
      EXPECT_EQ(sums, before) << "decode_add changed its output";
    }
  }
  return rejected;
}

void Vectors::expect_rejected(const std::string& name, const json& why) {
  const Bytes bytes = read_file(kVectors / "rejected" / (name + ".tw"));
  std::optional<Message> message;
  if (rejects([&] { message = parse_message(bytes); })) return;
  bool rejected = false;
  for (const Frame& frame : message->frames) {
    const bool contributors = frame.codec == CodecId::kContributors;
    const json& told = why.at(contributors ? "workers" : "elems");
    if (!frame.description && told.is_null()) break;  // it should not have come this far
    const std::size_t number =
        frame.description ? frame.description->elems() : told.get<std::size_t>();
    rejected |= contributors ? rejects([&] { check_contributors(frame.payload, number); })
                             : rejects_values(frame, number, pool_);
  }
  EXPECT_TRUE(rejected) << "it was accepted, though: " << why.at("reason");
}

TEST_P(Vectors, RejectedAreRejectedAndChangeNothing) {
  const json reasons = read_json(kVectors / "rejected" / "reasons.json");
  std::set<std::string> listed;
  for (const auto& [name, why] : reasons.items()) listed.insert(name);
  ASSERT_FALSE(listed.empty());
  ASSERT_EQ(listed, names("rejected", ".tw"));
  for (const auto& [name, why] : reasons.items()) {
    SCOPED_TRACE("spec/vectors/rejected/" + name);
    ASSERT_NO_THROW(expect_rejected(name, why));
  }
}

INSTANTIATE_TEST_SUITE_P(EverySimdTarget, Vectors, testing::ValuesIn(simd_targets()),
                         [](const auto& target) { return target.param; });

}  // namespace
}  // namespace tersewire
