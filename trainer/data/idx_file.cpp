#include "trainer/data/idx_file.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "tersewire/error.h"

namespace tersewire::trainer {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{1} << 16;
constexpr std::size_t kMaxDims = 4;
constexpr unsigned kUnsignedByteType = 0x08;

[[noreturn]] void refuse(const std::string& name, std::uint64_t offset, const std::string& what) {
  throw Error(ErrorCode::kDataLoss, name + ", offset " + std::to_string(offset) + ": " + what);
}

// Where the parser gets its bytes from; it knows no more than this of files and memory.
class Source {
 public:
  explicit Source(std::string name) : name_(std::move(name)) {}
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  virtual ~Source() = default;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }

  // Fills `out` as far as there is data and returns how many bytes there were.
  std::size_t read(std::span<std::uint8_t> out) {
    const std::size_t count = read_some(out);
    offset_ += count;
    return count;
  }

 private:
  virtual std::size_t read_some(std::span<std::uint8_t> out) = 0;

  std::string name_;
  std::uint64_t offset_ = 0;
};

class MemorySource : public Source {
 public:
  MemorySource(std::span<const std::byte> data, const std::string& name)
      : Source(name), rest_(data) {}

 private:
  std::size_t read_some(std::span<std::uint8_t> out) override {
    const std::size_t count = std::min(out.size(), rest_.size());
    if (count > 0) std::memcpy(out.data(), rest_.data(), count);
    rest_ = rest_.subspan(count);
    return count;
  }

  std::span<const std::byte> rest_;
};

struct GzClose {
  void operator()(gzFile_s* file) const noexcept { gzclose_r(file); }
};

class FileSource : public Source {
 public:
  explicit FileSource(const std::string& path) : Source(path), file_(gzopen(path.c_str(), "rb")) {
    if (file_ == nullptr) {
      throw Error(ErrorCode::kNotFound,
                  path + " cannot be opened: check that it exists and that you may read it");
    }
  }

 private:
  // `out` is never longer than a chunk, so that its length fits zlib's int.
  std::size_t read_some(std::span<std::uint8_t> out) override {
    const int count = gzread(file_.get(), out.data(), static_cast<unsigned>(out.size()));
    if (count < 0 || static_cast<std::size_t>(count) < out.size()) check_end();
    return static_cast<std::size_t>(std::max(count, 0));
  }

  // A short read is the end of the data, unless zlib says otherwise.
  void check_end() {
    int code = Z_OK;
    const char* text = gzerror(file_.get(), &code);
    if (code == Z_OK || code == Z_STREAM_END) return;
    std::string reason = code == Z_BUF_ERROR ? "the compressed data ends early" : text;
    if (reason.starts_with(name() + ": ")) reason.erase(0, name().size() + 2);
    refuse(name(), offset(), "cannot be read (" + reason + "); fetch the file again");
  }

  std::unique_ptr<gzFile_s, GzClose> file_;
};

std::uint32_t read_u32(Source& source) {
  std::array<std::uint8_t, 4> bytes{};
  const std::uint64_t offset = source.offset();
  if (source.read(bytes) < bytes.size()) {
    refuse(source.name(), offset, "the header ends early; fetch the file again");
  }
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 |
         std::uint32_t{bytes[2]} << 8 | std::uint32_t{bytes[3]};
}

std::size_t read_rank(Source& source) {
  const std::uint32_t magic = read_u32(source);
  if (magic >> 16 != 0) {
    refuse(source.name(), 0,
           "an IDX file starts with two zero bytes, but this one does not; give "
           "an IDX file, plain or gzipped");
  }
  const unsigned type = (magic >> 8) & 0xFFU;
  if (type != kUnsignedByteType) {
    refuse(source.name(), 2,
           "element type " + std::to_string(type) +
               " is not supported; give a file of unsigned bytes (type 8)");
  }
  const std::size_t rank = magic & 0xFFU;
  if (rank == 0 || rank > kMaxDims) {
    refuse(source.name(), 3,
           std::to_string(rank) +
               " dimensions are not supported; give a file "
               "with 1 to 4");
  }
  return rank;
}

std::vector<std::uint32_t> read_dims(Source& source) {
  std::vector<std::uint32_t> dims(read_rank(source));
  std::uint64_t total = 1;
  for (std::uint32_t& dim : dims) {
    const std::uint64_t offset = source.offset();
    dim = read_u32(source);
    if (dim == 0) refuse(source.name(), offset, "a dimension is 0; give a file that holds data");
    // Neither factor exceeds 2^32, so the product cannot wrap.
    total *= dim;
    if (total > kMaxIdxBytes) {
      refuse(source.name(), offset,
             "the header claims more than " + std::to_string(kMaxIdxBytes) +
                 " bytes; fetch the file again or give a smaller one");
    }
  }
  return dims;
}

std::size_t product(const std::vector<std::uint32_t>& dims) {
  std::size_t total = 1;
  for (const std::uint32_t dim : dims) total *= dim;
  return total;
}

// Chunk by chunk: a header that lies about its length costs no more memory than a chunk.
std::vector<std::uint8_t> read_payload(Source& source, std::size_t total) {
  std::vector<std::uint8_t> bytes;
  while (bytes.size() < total) {
    const std::size_t done = bytes.size();
    const std::size_t wanted = std::min(kChunkBytes, total - done);
    bytes.resize(done + wanted);
    const std::size_t got = source.read(std::span(bytes).subspan(done));
    if (got < wanted) {
      refuse(source.name(), source.offset(),
             "the data ends after " + std::to_string(done + got) + " of the " +
                 std::to_string(total) + " bytes that the header claims; fetch the file again");
    }
  }
  return bytes;
}

IdxArray parse(Source& source) {
  IdxArray array;
  array.dims = read_dims(source);
  array.bytes = read_payload(source, product(array.dims));
  std::array<std::uint8_t, 1> extra{};
  const std::uint64_t end = source.offset();
  if (source.read(extra) != 0) {
    refuse(source.name(), end,
           "bytes follow the data that the header claims; fetch the file again");
  }
  return array;
}

}  // namespace

IdxArray parse_idx(std::span<const std::byte> data, const std::string& name) {
  MemorySource source(data, name);
  return parse(source);
}

IdxArray read_idx_file(const std::string& path) {
  FileSource source(path);
  return parse(source);
}

}  // namespace tersewire::trainer
