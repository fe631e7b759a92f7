#include "apps/files/npy_file.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "tersewire/error.h"

namespace tersewire {
namespace {

static_assert(std::endian::native == std::endian::little,
              "values are copied as they lie in memory");

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kHeadBytes = kMagic.size() + 2;  // and the version
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kMaxRank = 32;
constexpr std::uint64_t kMaxElems = std::uint64_t{1} << 40;

constexpr const char* kAdvice =
    "save it as numpy.save(FILE, numpy.ascontiguousarray(a).astype('<f4'))";

template <typename... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> sentence, Args&&... args) {
  throw Error(code, fmt::format(sentence, std::forward<Args>(args)...));
}

// Reads the header: the text of a Python dictionary, of which only what numpy.save() writes is
// understood.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text) : text_(text) {}

  void read() {
    expect('{');
    while (!take('}')) {
      read_entry();
      if (take(',')) continue;
      expect('}');
      break;
    }
    skip_spaces();
    if (at_ != text_.size()) malformed("nothing more");
    if (!descr_ || !fortran_order_ || !shape_) malformed("'descr', 'fortran_order' and 'shape'");
  }

  [[nodiscard]] const std::string& descr() const { return *descr_; }
  [[nodiscard]] bool fortran_order() const { return *fortran_order_; }
  [[nodiscard]] const std::vector<std::uint64_t>& shape() const { return *shape_; }

 private:
  void read_entry() {
    const std::string key = read_string();
    expect(':');
    if (key == "descr" && !descr_) {
      descr_ = read_descr();
    } else if (key == "fortran_order" && !fortran_order_) {
      fortran_order_ = read_bool();
    } else if (key == "shape" && !shape_) {
      shape_ = read_shape();
    } else {
      malformed("'descr', 'fortran_order' and 'shape', once each");
    }
  }

  std::string read_descr() {
    skip_spaces();
    // A list describes records.
    if (at_ < text_.size() && text_[at_] == '[') {
      fail(ErrorCode::kInvalidArgument,
           "it holds records, and only float32 and float64 can be encoded; save one field of them");
    }
    return read_string();
  }

  std::string read_string() {
    skip_spaces();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') malformed("a quoted text");
    const std::size_t begin = ++at_;
    at_ = text_.find(quote, begin);
    if (at_ == std::string_view::npos) {
      at_ = text_.size();
      malformed("a closing quote");
    }
    const std::string_view content = text_.substr(begin, at_++ - begin);
    for (const char c : content) {
      if (c < ' ' || c > '~' || c == '\\') malformed("plain text between quotes");
    }
    return std::string(content);
  }

  bool read_bool() {
    skip_spaces();
    for (const auto& [word, value] : {std::pair{"True", true}, std::pair{"False", false}}) {
      if (text_.substr(at_).starts_with(word)) {
        at_ += std::strlen(word);
        return value;
      }
    }
    malformed("True or False");
  }

  std::vector<std::uint64_t> read_shape() {
    std::vector<std::uint64_t> shape;
    expect('(');
    while (!take(')')) {
      if (shape.size() == kMaxRank) {
        fail(ErrorCode::kInvalidArgument, "it has more than {} dimensions; reshape it to fewer",
             kMaxRank);
      }
      shape.push_back(read_dimension());
      if (take(',')) continue;
      // "(3)" is no tuple.
      if (shape.size() == 1) malformed("a comma after a single dimension");
      expect(')');
      break;
    }
    return shape;
  }

  std::uint64_t read_dimension() {
    skip_spaces();
    const std::size_t begin = at_;
    std::uint64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      value = 10 * value + static_cast<std::uint64_t>(text_[at_] - '0');
      if (value > kMaxElems) {
        fail(ErrorCode::kInvalidArgument, "a dimension is above 2^40; split the array");
      }
    }
    if (at_ == begin || (text_[begin] == '0' && at_ > begin + 1)) malformed("a dimension");
    return value;
  }

  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) {
      ++at_;
    }
  }

  bool take(char c) {
    skip_spaces();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void expect(char c) {
    if (!take(c)) malformed(std::string_view(&c, 1));
  }

  [[noreturn]] void malformed(std::string_view expected) const {
    fail(ErrorCode::kDataLoss,
         "its .npy header should have {} at character {}; save the array again with numpy.save()",
         expected, at_);
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::optional<std::string> descr_;
  std::optional<bool> fortran_order_;
  std::optional<std::vector<std::uint64_t>> shape_;
};

template <typename T>
T read_value(ByteView bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

[[noreturn]] void fail_cut() {
  fail(ErrorCode::kDataLoss, "it ends within its .npy header; copy or save it again");
}

// Splits off magic, version and header; `rest` becomes what follows.
std::string_view split_header(ByteView bytes, ByteView& rest) {
  if (bytes.size() < kHeadBytes || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    fail(ErrorCode::kDataLoss, "it is not an .npy file; save the array with numpy.save()");
  }
  const auto major = std::to_integer<unsigned>(bytes[kMagic.size()]);
  const auto minor = std::to_integer<unsigned>(bytes[kMagic.size() + 1]);
  if (major < 1 || major > 3 || minor != 0) {
    fail(ErrorCode::kDataLoss, "it is of .npy version {}.{}; save it as 1.0, 2.0 or 3.0", major,
         minor);
  }
  rest = bytes.subspan(kHeadBytes);
  const std::size_t length_bytes = major == 1 ? sizeof(std::uint16_t) : sizeof(std::uint32_t);
  if (rest.size() < length_bytes) fail_cut();
  const std::size_t length =
      major == 1 ? read_value<std::uint16_t>(rest) : read_value<std::uint32_t>(rest);
  rest = rest.subspan(length_bytes);
  if (rest.size() < length) fail_cut();
  const std::string_view header(reinterpret_cast<const char*>(rest.data()), length);
  rest = rest.subspan(length);
  return header;
}

ElementType element_type_of(const std::string& descr) {
  if (descr == "<f4") return ElementType::kFloat32;
  if (descr == "<f8") return ElementType::kFloat64;
  if (descr == ">f4" || descr == ">f8") {
    fail(ErrorCode::kInvalidArgument, "it is big-endian ('{}'); {}", descr, kAdvice);
  }
  fail(ErrorCode::kInvalidArgument,
       "it holds '{}', and only float32 and float64 can be encoded; {}", descr, kAdvice);
}

std::size_t elems_of(const std::vector<std::uint64_t>& shape) {
  // A zero hides no overflow: the others' product counts all the same.
  std::uint64_t nonzero = 1;
  bool empty = false;
  for (const std::uint64_t dim : shape) {
    empty = empty || dim == 0;
    if (dim == 0) continue;
    if (nonzero > kMaxElems / dim) {
      fail(ErrorCode::kInvalidArgument,
           "its dimensions multiply to more than 2^40; split the array");
    }
    nonzero *= dim;
  }
  return empty ? 0 : static_cast<std::size_t>(nonzero);
}

std::size_t bytes_of(ElementType type) {
  return type == ElementType::kFloat32 ? sizeof(float) : sizeof(double);
}

}  // namespace

NpyArray parse_npy(ByteView bytes) {
  NpyArray array;
  HeaderReader header(split_header(bytes, array.data));
  header.read();
  array.element_type = element_type_of(header.descr());
  array.shape = header.shape();
  // With one dimension or none both orders are the same.
  if (header.fortran_order() && array.shape.size() > 1) {
    fail(ErrorCode::kInvalidArgument, "it is in Fortran order; {}", kAdvice);
  }
  array.elems = elems_of(array.shape);
  const std::size_t expected = array.elems * bytes_of(array.element_type);
  if (array.data.size() != expected) {
    fail(ErrorCode::kDataLoss, "its values take {} bytes where its shape needs {}; save it again",
         array.data.size(), expected);
  }
  return array;
}

Floats npy_floats(const NpyArray& array) {
  Floats values(array.elems);
  if (array.elems == 0) return values;
  if (array.element_type == ElementType::kFloat32) {
    std::memcpy(values.data(), array.data.data(), array.data.size());
    return values;
  }
  for (std::size_t i = 0; i < array.elems; ++i) {
    const auto value = read_value<double>(array.data.subspan(i * sizeof(double)));
    values[i] = static_cast<float>(value);
    if (std::isinf(values[i]) && std::isfinite(value)) {
      fail(ErrorCode::kInvalidArgument,
           "value {} is {}, beyond the {} that a 32-bit float holds; scale the array", i, value,
           std::numeric_limits<float>::max());
    }
  }
  return values;
}

Doubles npy_doubles(const NpyArray& array) {
  if (array.element_type == ElementType::kFloat32) {
    const Floats values = npy_floats(array);
    return {values.begin(), values.end()};
  }
  Doubles values(array.elems);
  if (array.elems > 0) std::memcpy(values.data(), array.data.data(), array.data.size());
  return values;
}

Bytes npy_header(ElementType element_type, std::span<const std::uint64_t> shape) {
  std::string dims;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    dims += fmt::format("{}{}", i > 0 ? ", " : "", shape[i]);
  }
  if (shape.size() == 1) dims += ",";
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                                 element_type == ElementType::kFloat32 ? "<f4" : "<f8", dims);
  const std::size_t head = kHeadBytes + sizeof(std::uint16_t);
  // The last character is a newline, and the values begin at a multiple of 64.
  const std::size_t total = (head + text.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  text.resize(total - head - 1, ' ');
  text += '\n';
  const auto length = static_cast<std::uint16_t>(text.size());
  Bytes bytes(total);
  std::memcpy(bytes.data(), kMagic.data(), kMagic.size());
  bytes[kMagic.size()] = std::byte{1};
  bytes[kMagic.size() + 1] = std::byte{0};
  std::memcpy(bytes.data() + kHeadBytes, &length, sizeof(length));
  std::memcpy(bytes.data() + head, text.data(), text.size());
  return bytes;
}

}  // namespace tersewire
