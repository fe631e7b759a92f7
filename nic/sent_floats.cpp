#include "nic/sent_floats.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace tersewire::nic {
namespace {

constexpr std::size_t kWorthANotice = 256;
constexpr std::size_t kGlooHeadBytes = 48;
constexpr std::uint64_t kGlooSendsMemory = 1;  // its last operation that has a payload

std::uintptr_t address(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

}  // namespace

iovec gloo_payload(std::span<const iovec> pieces) {
  if (pieces.size() != 2 || pieces[0].iov_len != kGlooHeadBytes) return {};
  std::uint64_t bytes = 0;
  std::uint64_t operation = 0;
  std::memcpy(&bytes, pieces[0].iov_base, sizeof(bytes));
  std::memcpy(&operation, static_cast<const char*>(pieces[0].iov_base) + sizeof(bytes),
              sizeof(operation));
  const bool is_one = bytes == kGlooHeadBytes + pieces[1].iov_len && operation <= kGlooSendsMemory;
  return is_one ? pieces[1] : iovec{};
}

void FloatRegions::add(const void* begin, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  regions_.push_back({address(begin), address(begin) + bytes});
}

void FloatRegions::remove(const void* begin) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(regions_.rbegin(), regions_.rend(), [&](const Region& region) {
    return region.begin == address(begin);
  });
  if (found != regions_.rend()) regions_.erase(std::next(found).base());
}

std::vector<SentFloats> FloatRegions::find(std::span<const iovec> pieces, std::uint64_t offset,
                                           const iovec& message) const {
  std::vector<SentFloats> floats;
  std::vector<Region> regions{
      {address(message.iov_base), address(message.iov_base) + message.iov_len}};
  {
    const std::lock_guard lock(mutex_);
    if (regions_.empty() && message.iov_len == 0) return floats;
    regions.insert(regions.end(), regions_.begin(), regions_.end());
  }
  for (const iovec& piece : pieces) {
    const std::uintptr_t begin = address(piece.iov_base);
    const std::uintptr_t end = begin + piece.iov_len;
    for (const Region& region : regions) {
      std::uintptr_t from = std::max(begin, region.begin);
      from += (region.begin - from) % sizeof(float);  // the first whole float
      const std::uintptr_t to = std::min(end, region.end);
      if (from >= to || to - from < kWorthANotice) continue;
      const std::uint64_t at = offset + (from - begin);
      floats.push_back({at, at + (to - from) / sizeof(float) * sizeof(float)});
      break;
    }
    offset += piece.iov_len;
  }
  return floats;
}

}  // namespace tersewire::nic
