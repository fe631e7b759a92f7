// .npy files: what is read, what is refused, what is written.
#include "apps/files/npy_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tersewire/error.h"
#include "tests/support/trickle.h"

namespace tersewire {
namespace {

Bytes bytes_of(std::string_view text) {
  Bytes bytes(text.size());
  if (!text.empty()) std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

std::string_view text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A file of the given version with this header, its length filled in, and these values.
std::string file_of(std::string_view header, std::string_view data, int version = 1) {
  std::string file = "\x93NUMPY";
  file += static_cast<char>(version);
  file += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) {
    file += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  }
  file += header;
  file += data;
  return file;
}

std::string header_of(std::string_view descr, std::string_view order, std::string_view shape) {
  return "{'descr': '" + std::string(descr) + "', 'fortran_order': " + std::string(order) +
         ", 'shape': " + std::string(shape) + ", }\n";
}

template <typename T>
std::string data_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// A file's header and values, read from memory in pieces of `piece` values.
template <typename Values>
struct Read {
  NpyHeader header;
  Values values;
};
template <typename Values = Floats>
Read<Values> read(std::string_view file, bool says_left = true, std::size_t piece = 1000) {
  const Bytes bytes = bytes_of(file);
  Trickle source(bytes, says_left ? bytes.size() + 1 : 3, says_left);
  NpyReader reader(source);
  Read<Values> found{reader.header(), {}};
  Values values;
  for (std::size_t at = 0; at < found.header.elems; at += values.size()) {
    reader.read(std::min(piece, found.header.elems - at), values);
    found.values.insert(found.values.end(), values.begin(), values.end());
  }
  reader.expect_end();
  return found;
}

// Expects an Error of this code whose sentence holds `part`, also where nobody knows how many
// bytes there are.
void expect_refused(const std::string& file, ErrorCode code, const std::string& part,
                    const std::string& part_of_stream) {
  for (const bool says_left : {true, false}) {
    const std::string& expected = says_left ? part : part_of_stream;
    try {
      read(file, says_left);
      ADD_FAILURE() << "accepted: " << file;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
    }
  }
}
void expect_refused(const std::string& file, ErrorCode code, const std::string& part) {
  expect_refused(file, code, part, part);
}

TEST(NpyFile, ReadsFloat32) {
  const std::string file =
      file_of(header_of("<f4", "False", "(2, 3)"), data_of<float>({1, 2, 3, 4, 5, -0.F}));
  for (const std::size_t piece : {1, 4, 6, 100}) {
    const auto [header, values] = read(file, piece % 4 == 0, piece);
    EXPECT_EQ(header.element_type, ElementType::kFloat32);
    EXPECT_EQ(header.shape, (std::vector<std::uint64_t>{2, 3}));
    EXPECT_EQ(header.elems, 6U);
    EXPECT_EQ(values, (Floats{1, 2, 3, 4, 5, 0})) << piece;
    EXPECT_TRUE(std::signbit(values[5]));
  }
}

TEST(NpyFile, KeepsTheBitsOfFloat32) {
  const std::uint32_t nan = 0xFFA12345;
  const Floats values =
      read(file_of(header_of("<f4", "False", "(1,)"), data_of<std::uint32_t>({nan}))).values;
  std::uint32_t bits;
  std::memcpy(&bits, values.data(), sizeof(bits));
  EXPECT_EQ(bits, nan);
}

TEST(NpyFile, RoundsFloat64) {
  const double largest = std::numeric_limits<float>::max();
  const auto [header, values] = read(
      file_of(header_of("<f8", "False", "(4,)"),
              data_of<double>({0.1, largest, -std::numeric_limits<double>::infinity(), 1e-300})));
  EXPECT_EQ(header.element_type, ElementType::kFloat64);
  EXPECT_EQ(values[0], 0.1F);
  EXPECT_EQ(values[1], std::numeric_limits<float>::max());
  EXPECT_TRUE(std::isinf(values[2]));
  EXPECT_EQ(values[3], 0.0F);
}

TEST(NpyFile, KeepsDoubles) {
  const std::string file =
      file_of(header_of("<f8", "False", "(2,)"), data_of<double>({0.1, 1e300}));
  for (const bool says_left : {true, false}) {
    EXPECT_EQ(read<Doubles>(file, says_left, 1).values, (Doubles{0.1, 1e300}));
  }
}

TEST(NpyFile, RefusesFloat64BeyondFloat32) {
  expect_refused(file_of(header_of("<f8", "False", "(2,)"), data_of<double>({1, -1e39})),
                 ErrorCode::kInvalidArgument, "value 1 is -1e+39");
  const std::string longer =
      file_of(header_of("<f8", "False", "(5,)"), data_of<double>({1, 2, 3, 4, 1e300}));
  EXPECT_THROW(read(longer, true, 2), Error);
  try {
    read(longer, false, 2);
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("value 4 is"), std::string::npos) << error.what();
  }
}

TEST(NpyFile, ReadsEveryVersionAndFormOfHeader) {
  const std::string data = data_of<float>({7});
  const std::string forms[] = {
      file_of(header_of("<f4", "False", "(1,)"), data, 2),
      file_of(header_of("<f4", "False", "(1,)"), data, 3),
      file_of("{\"shape\":(1 ,1,),'fortran_order':False,\n'descr':\"<f4\"}   \n", data),
      file_of(header_of("<f4", "True", "(1,)"), data),
      file_of(header_of("<f4", "True", "()"), data),
      file_of(header_of("<f4", "False", "(1L, 1L)"), data),  // Python 2's
  };
  for (const std::string& form : forms) {
    EXPECT_EQ(read(form).values.at(0), 7.0F) << form;
  }
}

TEST(NpyFile, ReadsEmptyArrays) {
  const auto [header, values] = read(file_of(header_of("<f4", "False", "(3, 0, 5)"), ""));
  EXPECT_EQ(header.elems, 0U);
  EXPECT_TRUE(values.empty());
}

TEST(NpyFile, RefusesWhatIsNoNpyFile) {
  expect_refused("", ErrorCode::kDataLoss, "not an .npy file");
  expect_refused("PK\x03\x04 a zipped one", ErrorCode::kDataLoss, "not an .npy file");
  expect_refused(file_of("{}", "", 4), ErrorCode::kDataLoss, "version 4.0");
}

TEST(NpyFile, RefusesEveryTruncation) {
  const std::string file = file_of(header_of("<f4", "False", "(2,)"), data_of<float>({1, 2}));
  for (std::size_t n = 0; n < file.size(); ++n) {
    expect_refused(file.substr(0, n), ErrorCode::kDataLoss, "");
  }
  expect_refused(file + '\0', ErrorCode::kDataLoss, "9 bytes where its shape needs 8",
                 "bytes follow the 2 values");
}

TEST(NpyFile, RefusesOtherTypesAndOrders) {
  const std::string data = data_of<float>({1, 2, 3, 4});
  const auto refused = [&](std::string_view descr, std::string_view part) {
    expect_refused(file_of(header_of(descr, "False", "(2, 2)"), data), ErrorCode::kInvalidArgument,
                   std::string(part));
  };
  refused(">f4", "big-endian");
  refused("<i4", "'<i4'");
  refused("<f2", "float32 and float64");
  refused("|O", "'|O'");
  expect_refused(file_of(header_of("<f4", "True", "(2, 2)"), data), ErrorCode::kInvalidArgument,
                 "Fortran");
  expect_refused(
      file_of("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (4,), }", data),
      ErrorCode::kInvalidArgument, "records");
}

TEST(NpyFile, RefusesMalformedHeaders) {
  const char* shapes[] = {"(3)",  "(-1,)",  "(,)",    "(1,,)",  "3",      "(03,)", "(1",
                          "[1,]", "(1 1,)", "(1LL,)", "(1.0,)", "(1,)*2", "None"};
  for (const char* shape : shapes) {
    expect_refused(file_of(header_of("<f4", "False", shape), data_of<float>({1})),
                   ErrorCode::kDataLoss, "header");
  }
  const char* headers[] = {
      "",
      "{",
      "{}",
      "{'descr': '<f4', 'fortran_order': False}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}",
      "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
      "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}",
      "{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}",
      "{'descr': '<f4\\x00', 'fortran_order': False, 'shape': (1,)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} + {}",
      "{'descr: '<f4', 'fortran_order': False, 'shape': (1,)}",
  };
  for (const char* header : headers) {
    expect_refused(file_of(header, data_of<float>({1})), ErrorCode::kDataLoss, "header");
  }
}

// A few bytes may promise terabytes: memory is taken for what has come.
TEST(NpyFile, TakesNoMemoryForWhatIsOnlyPromised) {
  const std::string file = file_of(header_of("<f4", "False", "(1099511627776,)"), "1234");
  expect_refused(file, ErrorCode::kDataLoss, "4 bytes where its shape needs 4398046511104");
  std::string header = file_of("", "", 2);
  for (int i = 0; i < 4; ++i) header[8 + i] = '\xff';
  expect_refused(header, ErrorCode::kDataLoss, "4294967295 bytes");
}

TEST(NpyFile, RefusesShapesThatNoFrameHolds) {
  const auto refused = [](const std::string& shape, const std::string& part) {
    expect_refused(file_of(header_of("<f4", "False", shape), ""), ErrorCode::kInvalidArgument,
                   part);
  };
  refused("(1099511627776, 1099511627776)", "2^40");
  refused("(0, 1099511627776, 2)", "2^40");
  refused("(99999999999999999999999999,)", "2^40");
  std::string shape = "(";
  for (int i = 0; i < 33; ++i) shape += "1, ";
  refused(shape + ")", "32 dimensions");
}

// numpy.save(FILE, numpy.zeros((3, 4), '<f8')) of NumPy 1.24, without the values.
TEST(NpyFile, WritesTheHeaderThatNumpyWrites) {
  const std::vector<std::uint64_t> shape{3, 4};
  std::string expected("\x93NUMPY\x01\x00\x76\x00", 10);
  expected += "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }";
  expected.resize(127, ' ');
  expected += '\n';
  EXPECT_EQ(npy_header(ElementType::kFloat64, shape), bytes_of(expected));
}

TEST(NpyFile, ReadsWhatItWrites) {
  const std::vector<std::vector<std::uint64_t>> shapes{
      {}, {0}, {1}, {1099511627776, 0}, std::vector<std::uint64_t>(32, 1)};
  for (const auto& shape : shapes) {
    Bytes bytes = npy_header(ElementType::kFloat32, shape);
    EXPECT_EQ(bytes.size() % 64, 0U);
    std::size_t elems = 1;
    for (const std::uint64_t dim : shape) elems *= dim;
    bytes.resize(bytes.size() + elems * sizeof(float));
    const auto [header, values] = read(text_of(bytes));
    EXPECT_EQ(header.shape, shape);
    EXPECT_EQ(values.size(), elems);
  }
}

// Whatever is changed, the answer is an array or an Error.
TEST(NpyFile, SurvivesChangedBytes) {
  const std::string file = file_of(header_of("<f4", "False", "(2,)"), data_of<float>({1, 2}));
  const unsigned seed = 4711;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  int refused = 0;
  constexpr int kTries = 20000;
  for (int i = 0; i < kTries; ++i) {
    Bytes bytes = bytes_of(file);
    for (int changes = 0; changes < 3; ++changes) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    try {
      EXPECT_EQ(read(text_of(bytes), i % 2 == 0).values.size(), 2U);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, kTries / 2);
}

}  // namespace
}  // namespace tersewire
