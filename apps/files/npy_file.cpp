#include "apps/files/npy_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
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
constexpr std::size_t kMaxTextBytes = std::numeric_limits<std::uint16_t>::max();
constexpr std::size_t kFirstValues = std::size_t{1} << 20;  // memory for them is no risk
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
    // Python 2 wrote its long numbers as 3L.
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;
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

[[noreturn]] void fail_cut() {
  fail(ErrorCode::kDataLoss, "it ends within its .npy header; copy or save it again");
}

// Fills `out` as far as the source brings something; returns how many bytes that is.
std::size_t read_some(ByteSource& source, std::span<std::byte> out) {
  std::size_t got = 0;
  while (got < out.size()) {
    const std::size_t more = source.read(out.subspan(got));
    if (more == 0) break;
    got += more;
  }
  return got;
}

template <typename T>
T read_length(ByteSource& source) {
  T length;
  if (read_some(source, std::as_writable_bytes(std::span(&length, 1))) < sizeof(T)) fail_cut();
  return length;
}

// Reads magic, version and the header's text.
std::string read_header(ByteSource& source) {
  std::array<std::byte, kHeadBytes> head;
  if (read_some(source, head) < head.size() ||
      std::memcmp(head.data(), kMagic.data(), kMagic.size()) != 0) {
    fail(ErrorCode::kDataLoss, "it is not an .npy file; save the array with numpy.save()");
  }
  const auto major = std::to_integer<unsigned>(head[kMagic.size()]);
  const auto minor = std::to_integer<unsigned>(head[kMagic.size() + 1]);
  if (major < 1 || major > 3 || minor != 0) {
    fail(ErrorCode::kDataLoss, "it is of .npy version {}.{}; save it as 1.0, 2.0 or 3.0", major,
         minor);
  }
  const std::size_t length =
      major == 1 ? read_length<std::uint16_t>(source) : read_length<std::uint32_t>(source);
  if (length > kMaxTextBytes) {
    fail(ErrorCode::kDataLoss, "its .npy header says that it has {} bytes; save the array again",
         length);
  }
  std::string text(length, '\0');
  if (read_some(source, std::as_writable_bytes(std::span(text))) < length) fail_cut();
  return text;
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

NpyReader::NpyReader(ByteSource& source) : source_(source) {
  const std::string text = read_header(source);
  HeaderReader header(text);
  header.read();
  header_.element_type = element_type_of(header.descr());
  header_.shape = header.shape();
  // With one dimension or none both orders are the same.
  if (header.fortran_order() && header_.shape.size() > 1) {
    fail(ErrorCode::kInvalidArgument, "it is in Fortran order; {}", kAdvice);
  }
  header_.elems = elems_of(header_.shape);
  if (const auto left = source.left()) check_bytes(*left);
}

void NpyReader::check_bytes(std::uint64_t bytes) const {
  const std::uint64_t expected = header_.elems * bytes_of(header_.element_type);
  if (bytes == expected) return;
  fail(ErrorCode::kDataLoss, "its values take {} bytes where its shape needs {}; save it again",
       bytes, expected);
}

template <typename Values>
void NpyReader::read_as_they_are(std::size_t count, Values& values) {
  constexpr std::size_t kElemBytes = sizeof(typename Values::value_type);
  const bool is_there = source_.left().has_value();  // and was found to be enough
  values.clear();
  while (values.size() < count) {
    const std::size_t begin = values.size();
    values.resize(is_there ? count : std::min(count, std::max(2 * begin, kFirstValues)));
    const auto room = std::as_writable_bytes(std::span(values).subspan(begin));
    const std::size_t got = read_some(source_, room);
    if (got < room.size()) check_bytes((read_ + begin) * kElemBytes + got);
  }
  read_ += count;
}

void NpyReader::read(std::size_t count, Floats& values) {
  if (header_.element_type == ElementType::kFloat32) return read_as_they_are(count, values);
  const std::size_t begin = read_;
  Doubles doubles;
  read_as_they_are(count, doubles);
  values.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(doubles[i]);
    if (std::isinf(values[i]) && std::isfinite(doubles[i])) {
      fail(ErrorCode::kInvalidArgument,
           "value {} is {}, beyond the {} that a 32-bit float holds; scale the array", begin + i,
           doubles[i], std::numeric_limits<float>::max());
    }
  }
}

void NpyReader::read(std::size_t count, Doubles& values) { read_as_they_are(count, values); }

void NpyReader::expect_end() {
  std::byte more;
  if (source_.read(std::span(&more, 1)) == 0) return;
  fail(ErrorCode::kDataLoss, "bytes follow the {} values that its shape needs; save it again",
       header_.elems);
}

Bytes npy_header(ElementType element_type, std::span<const std::uint64_t> shape) {
  std::string dims;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    dims += fmt::format("{}{}", i > 0 ? ", " : "", shape[i]);
  }
  if (shape.size() == 1) dims += ',';
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
