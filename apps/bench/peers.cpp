#include "apps/bench/peers.h"

#include <fmt/format.h>
#include <lz4.h>
#include <snappy.h>
#include <zfp.h>
#include <zstd.h>

#include <stdexcept>

namespace tersewire::bench {
namespace {

void require(bool ok, const char* what) {
  if (ok) return;
  throw std::runtime_error(
      fmt::format("{}; omit --peers, or install another release of that library", what));
}

class Snappy final : public Peer {
 public:
  [[nodiscard]] std::string name() const override { return "snappy"; }
  void encode(std::span<const float> input, Bytes& out) override {
    std::size_t bytes = snappy::MaxCompressedLength(input.size_bytes());
    out.resize(bytes);
    snappy::RawCompress(reinterpret_cast<const char*>(input.data()), input.size_bytes(),
                        reinterpret_cast<char*>(out.data()), &bytes);
    out.resize(bytes);
  }
  void decode(ByteView payload, std::span<float> out) override {
    require(snappy::RawUncompress(reinterpret_cast<const char*>(payload.data()), payload.size(),
                                  reinterpret_cast<char*>(out.data())),
            "snappy cannot decode its own output");
  }
};

class Lz4 final : public Peer {
 public:
  [[nodiscard]] std::string name() const override { return "lz4"; }
  void encode(std::span<const float> input, Bytes& out) override {
    if (input.size_bytes() > LZ4_MAX_INPUT_SIZE) {
      throw std::runtime_error("lz4 takes at most 2 GB at once; use fewer values");
    }
    const int bytes = static_cast<int>(input.size_bytes());
    out.resize(static_cast<std::size_t>(LZ4_compressBound(bytes)));
    const int written = LZ4_compress_default(reinterpret_cast<const char*>(input.data()),
                                             reinterpret_cast<char*>(out.data()), bytes,
                                             static_cast<int>(out.size()));
    require(written > 0 || bytes == 0, "lz4 could not compress");
    out.resize(static_cast<std::size_t>(written));
  }
  void decode(ByteView payload, std::span<float> out) override {
    const int read = LZ4_decompress_safe(
        reinterpret_cast<const char*>(payload.data()), reinterpret_cast<char*>(out.data()),
        static_cast<int>(payload.size()), static_cast<int>(out.size_bytes()));
    require(read >= 0, "lz4 cannot decode its own output");
  }
};

class Zstd final : public Peer {
 public:
  explicit Zstd(int level) : level_(level) {}
  [[nodiscard]] std::string name() const override { return "zstd -" + std::to_string(level_); }
  void encode(std::span<const float> input, Bytes& out) override {
    out.resize(ZSTD_compressBound(input.size_bytes()));
    const std::size_t written =
        ZSTD_compress(out.data(), out.size(), input.data(), input.size_bytes(), level_);
    require(ZSTD_isError(written) == 0, "zstd could not compress");
    out.resize(written);
  }
  void decode(ByteView payload, std::span<float> out) override {
    const std::size_t read =
        ZSTD_decompress(out.data(), out.size_bytes(), payload.data(), payload.size());
    require(ZSTD_isError(read) == 0, "zstd cannot decode its own output");
  }

 private:
  int level_;
};

class Zfp final : public Peer {
 public:
  [[nodiscard]] std::string name() const override { return "zfp 2^-10"; }

  void encode(std::span<const float> input, Bytes& out) override {
    // zfp asks for a pointer that it may write to, and does not when it compresses.
    const Field field(const_cast<float*>(input.data()), input.size());
    out.resize(zfp_stream_maximum_size(stream_.get(), field.get()));
    const BitStream bits(out.data(), out.size(), stream_.get());
    const std::size_t written = zfp_compress(stream_.get(), field.get());
    require(written > 0 || input.empty(), "zfp could not compress");
    out.resize(written);
  }
  void decode(ByteView payload, std::span<float> out) override {
    const Field field(out.data(), out.size());
    const BitStream bits(const_cast<std::byte*>(payload.data()), payload.size(), stream_.get());
    require(zfp_decompress(stream_.get(), field.get()) > 0 || out.empty(),
            "zfp cannot decode its own output");
  }

 private:
  static constexpr double kTolerance = 1.0 / 1024;

  class Field {
   public:
    Field(float* values, std::size_t n) : field_(zfp_field_1d(values, zfp_type_float, n)) {}
    ~Field() { zfp_field_free(field_); }
    Field(const Field&) = delete;
    Field& operator=(const Field&) = delete;
    [[nodiscard]] zfp_field* get() const { return field_; }

   private:
    zfp_field* field_;
  };

  class BitStream {
   public:
    BitStream(void* bytes, std::size_t n, zfp_stream* zfp) : bits_(stream_open(bytes, n)) {
      zfp_stream_set_bit_stream(zfp, bits_);
      zfp_stream_rewind(zfp);
    }
    ~BitStream() { stream_close(bits_); }
    BitStream(const BitStream&) = delete;
    BitStream& operator=(const BitStream&) = delete;

   private:
    bitstream* bits_;
  };

  struct Close {
    void operator()(zfp_stream* stream) const { zfp_stream_close(stream); }
  };
  static std::unique_ptr<zfp_stream, Close> open() {
    std::unique_ptr<zfp_stream, Close> stream(zfp_stream_open(nullptr));
    zfp_stream_set_accuracy(stream.get(), kTolerance);
    return stream;
  }

  std::unique_ptr<zfp_stream, Close> stream_ = open();
};

}  // namespace

std::vector<std::unique_ptr<Peer>> make_peers() {
  std::vector<std::unique_ptr<Peer>> peers;
  peers.push_back(std::make_unique<Snappy>());
  peers.push_back(std::make_unique<Lz4>());
  peers.push_back(std::make_unique<Zstd>(1));
  peers.push_back(std::make_unique<Zstd>(3));
  peers.push_back(std::make_unique<Zfp>());
  return peers;
}

}  // namespace tersewire::bench
