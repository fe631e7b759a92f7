#include "nic/sent_floats.h"

#include <algorithm>

namespace tersewire::nic {
namespace {

constexpr std::size_t kWorthANotice = 256;

std::uintptr_t address(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

}  // namespace

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

std::vector<SentFloats> FloatRegions::find(std::span<const iovec> pieces,
                                           std::uint64_t offset) const {
  std::vector<SentFloats> floats;
  const std::lock_guard lock(mutex_);
  if (regions_.empty()) return floats;
  for (const iovec& piece : pieces) {
    const std::uintptr_t begin = address(piece.iov_base);
    const std::uintptr_t end = begin + piece.iov_len;
    for (const Region& region : regions_) {
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
