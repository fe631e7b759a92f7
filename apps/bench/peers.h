// Compressors that a user would reach for instead of a codec of ours, for comparison.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tersewire/bytes.h"

namespace tersewire::bench {

// One compressor with its settings. One thread at a time.
class Peer {
 public:
  virtual ~Peer() = default;

  [[nodiscard]] virtual std::string name() const = 0;
  // Overwrites `out`, whose memory is kept from call to call.
  virtual void encode(std::span<const float> input, Bytes& out) = 0;
  virtual void decode(ByteView payload, std::span<float> out) = 0;
};

// snappy, lz4, zstd -1 and -3 (lossless), and zfp with an absolute error of at most 2^-10. None
// where this was built without Debian's libsnappy-dev, liblz4-dev, libzstd-dev and libzfp-dev.
std::vector<std::unique_ptr<Peer>> make_peers();

}  // namespace tersewire::bench
