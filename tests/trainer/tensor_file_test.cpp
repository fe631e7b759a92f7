// Files of named arrays: what is written is read, and nothing else is believed.
#include "trainer/files/tensor_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "tersewire/error.h"

namespace tersewire {
namespace {

TensorFile sample() {
  return {.facts = {{"step", "7"}, {"text", "\"xxh64\":\"quoted\" and ümlaut"}},
          .arrays = {{"empty", {{0, 3}, {}}},
                     {"scalar", {{}, {1.5F}}},
                     {"model/fc1.weight", {{2, 3}, {1, -2, 3e-40F, 4, 5, -0.0F}}}}};
}

// A file with this header and so many bytes of zeros behind it.
Bytes with_header(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  Bytes bytes(sizeof(length) + header.size() + data_bytes);
  std::memcpy(bytes.data(), &length, sizeof(length));
  std::memcpy(bytes.data() + sizeof(length), header.data(), header.size());
  return bytes;
}

void expect_refused(const Bytes& bytes, const std::string& part,
                    ErrorCode code = ErrorCode::kDataLoss) {
  try {
    parse_tensor_file(bytes);
    ADD_FAILURE() << "accepted; expected " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(TensorFile, WhatIsWrittenIsRead) {
  EXPECT_EQ(parse_tensor_file(tensor_file_bytes(sample())), sample());
  EXPECT_EQ(parse_tensor_file(tensor_file_bytes({})), TensorFile{});
}

TEST(TensorFile, NotANumberStaysWhatItWas) {
  TensorFile file;
  file.arrays["nan"] = {{1}, {std::numeric_limits<float>::quiet_NaN()}};
  const TensorFile read = parse_tensor_file(tensor_file_bytes(file));
  EXPECT_EQ(std::memcmp(read.arrays.at("nan").values.data(), file.arrays["nan"].values.data(), 4),
            0);
}

TEST(TensorFile, TheFormatIsSafetensors) {
  TensorFile file;
  file.arrays["a"] = {{1, 2}, {1.0F, 2.0F}};
  const Bytes bytes = tensor_file_bytes(file);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  EXPECT_EQ(length % 8, 0U);
  ASSERT_EQ(bytes.size(), 8 + length + 8);
  const std::string header(reinterpret_cast<const char*>(bytes.data()) + 8, length);
  EXPECT_NE(header.find(R"("a":{"data_offsets":[0,8],"dtype":"F32","shape":[1,2]})"),
            std::string::npos)
      << header;
  EXPECT_NE(header.find(R"("__metadata__":{"xxh64":")"), std::string::npos) << header;
}

TEST(TensorFile, EveryFlippedBitAndEveryCutIsNoticed) {
  const Bytes whole = tensor_file_bytes(sample());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      Bytes damaged = whole;
      damaged[i] ^= std::byte{1} << bit;
      EXPECT_THROW(parse_tensor_file(damaged, true), Error) << "byte " << i << " bit " << bit;
    }
    EXPECT_THROW(parse_tensor_file(ByteView(whole).first(i), true), Error) << "cut at " << i;
  }
}

TEST(TensorFile, FilesOfOthersAreReadWithoutAChecksum) {
  const std::string header = R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},)"
                             R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  EXPECT_EQ(parse_tensor_file(with_header(header, 8)).arrays.size(), 2U);
}

TEST(TensorFile, WhatDoesNotFitIsRefused) {
  expect_refused({}, "0 bytes");
  Bytes long_header(8, std::byte{0xFF});
  expect_refused(long_header, "cannot hold a header");
  expect_refused(with_header("[]", 0), "not a JSON object");
  expect_refused(with_header("{", 0), "not a JSON object");
  expect_refused(with_header(R"({"a":3})", 0), "the entry of");
  expect_refused(with_header(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4), "no dtype");
  expect_refused(with_header(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4), "no shape");
  expect_refused(with_header(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4),
                 "not a number");
  expect_refused(with_header(R"({"a":{"dtype":"F32","shape":[1]}})", 4), "no data_offsets");
  expect_refused(with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4),
                 "the data_offsets of");
  expect_refused(with_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 4),
                 "the data_offsets of");
  expect_refused(
      with_header(R"({"a":{"dtype":"F32","shape":[1099511627776,2],"data_offsets":[0,4]}})", 4),
      "2^40");
  expect_refused(with_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 8),
                 "8 bytes follow");
  expect_refused(with_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                             R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                             4),
                 "the data_offsets of");
  expect_refused(with_header(R"({"__metadata__":{"a":1}})", 0), "not text");
  expect_refused(with_header(R"({"__metadata__":{"xxh64":"1"}})", 0), "checksum");
  expect_refused(with_header(R"({"a":{"dtype":"F16","shape":[2],"data_offsets":[0,2]}})", 2),
                 "the data_offsets of");
}

TEST(TensorFile, Values_of_other_types_are_read_as_floats) {
  Bytes bytes = with_header(R"({"half":{"dtype":"F16","shape":[5],"data_offsets":[0,10]},)"
                            R"("brain":{"dtype":"BF16","shape":[2],"data_offsets":[10,14]},)"
                            R"("long":{"dtype":"I64","shape":[1],"data_offsets":[14,22]},)"
                            R"("truth":{"dtype":"BOOL","shape":[2],"data_offsets":[22,24]}})",
                            24);
  const std::vector<std::uint8_t> values = {0x00, 0x3E, 0x00, 0xC0, 0x01, 0x00, 0x00, 0xFC,
                                            0xFF, 0x7B, 0xC0, 0x3F, 0xC0, 0xFF, 0xFE, 0xFF,
                                            0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01, 0x00};
  std::memcpy(bytes.data() + bytes.size() - values.size(), values.data(), values.size());
  const TensorFile file = parse_tensor_file(bytes);
  EXPECT_EQ(file.arrays.at("half").values,
            (std::vector<float>{1.5F, -2.0F, 0x1p-24F, -INFINITY, 65504.0F}));
  EXPECT_EQ(file.arrays.at("brain").values[0], 1.5F);
  EXPECT_TRUE(std::isnan(file.arrays.at("brain").values[1]));
  EXPECT_EQ(file.arrays.at("long").values, std::vector<float>{-2.0F});
  EXPECT_EQ(file.arrays.at("truth").values, (std::vector<float>{1.0F, 0.0F}));
  EXPECT_EQ(file.types.at("brain"), "BF16");
}

TEST(TensorFile, An_array_of_an_unknown_type_is_named_beside_the_others) {
  const std::string header = R"({"new":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[4,7]},)"
                             R"("old":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  const TensorFile file = parse_tensor_file(with_header(header, 7));
  EXPECT_EQ(file.arrays.size(), 1U);
  EXPECT_EQ(file.unread.at("new"), std::vector<std::uint64_t>{3});
  EXPECT_EQ(file.types.at("new"), "F8_E4M3");
}

}  // namespace
}  // namespace tersewire
