// Fetches a file whose size and SHA-256 are known.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace tersewire::apps {

// A file somewhere else, and what it must be.
struct RemoteFile {
  std::string url;          // http or https, as are all addresses that it may lead to
  std::uint64_t bytes = 0;  // not one more is written
  std::string sha256;       // 64 lowercase hexadecimal digits
};

// Told how many of a file's bytes are there, in the thread that downloads; fewer than before where
// a download has to start over. Must not throw.
using BytesProgress = std::function<void(std::uint64_t bytes)>;

// Seconds in which less than 1 kB/s arrives, or no connection is made, before a download ends.
inline constexpr long kStallSeconds = 60;

// Fetches `remote` to `target`, over what is there. It is written to TARGET.part and gets its name
// when the SHA-256 of the whole is right. Where there is such a part already only the rest is
// fetched; where the server cannot do that, or the whole is wrong then, the download starts over.
//
// Throws an Error, one sentence that names the file or the address, where the network, the server
// or the disk fails: TARGET.part is kept and the next call goes on with it. Throws kDataLoss where
// the file is not the expected one: TARGET.part is removed. One thread a target.
void download(const RemoteFile& remote, const std::string& target, const BytesProgress& progress,
              long stall_seconds = kStallSeconds);

}  // namespace tersewire::apps
