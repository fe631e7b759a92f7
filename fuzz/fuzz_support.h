// What the fuzz targets share: reading choices off an input, and stopping where something is wrong.
#pragma once

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "tersewire/error.h"

namespace tersewire::fuzz {

// Ends the process unless `ok`: what a fuzzer takes for a finding.
inline void require(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

// Takes choices off the front of an input. One that has ended gives zeros.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t bytes) : rest_(data, bytes) {}

  template <typename T>
  requires std::is_trivially_copyable_v<T> T take() {
    T value{};
    const std::size_t bytes = std::min(sizeof(T), rest_.size());
    if (bytes > 0) std::memcpy(&value, rest_.data(), bytes);
    rest_ = rest_.subspan(bytes);
    return value;
  }
  [[nodiscard]] std::span<const std::uint8_t> rest() const { return rest_; }
  // In memory of just its size, so that AddressSanitizer sees a read past its end.
  [[nodiscard]] std::vector<std::byte> copy_of_rest() const {
    const auto bytes = std::as_bytes(rest_);
    return {bytes.begin(), bytes.end()};
  }

 private:
  std::span<const std::uint8_t> rest_;
};

// A message off the front of an input of such: its length, in a byte, and as much of it as there
// is.
inline std::span<const std::byte> take_message(std::span<const std::byte>& rest) {
  const auto length = std::to_integer<std::size_t>(rest[0]);
  const auto message = rest.subspan(1, std::min(length, rest.size() - 1));
  rest = rest.subspan(1 + message.size());
  return message;
}

// Takes all that comes, which is what is expected, in its order. False where a message is refused.
template <typename End, typename Expected>
bool takes_expected(End& end, Expected& expected) {
  try {
    while (const auto message = end.receive(std::chrono::milliseconds(0))) {
      require(!expected.empty() && *message->bytes == expected.front(), "not what was sent");
      expected.pop_front();
    }
    return true;
  } catch (const Error& error) {
    require(error.code() == ErrorCode::kDataLoss, "not the refusal of a message");
    return false;
  }
}

// Whether `task` ends without an Error. Every other exception is a finding and passes through.
template <typename Task>
bool succeeds(Task&& task) {
  try {
    std::forward<Task>(task)();
    return true;
  } catch (const Error& error) {
    require(error.what()[0] != '\0', "an Error has a sentence");
    return false;
  }
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

// Equal as numbers: -0 is 0, and a NaN is any other NaN.
inline bool same_values(std::span<const float> a, std::span<const float> b) {
  return std::ranges::equal(
      a, b, [](float x, float y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

// The same bits but for NaNs, whose sign and payload arithmetic leaves to the machine.
inline bool same_bits_or_nan(std::span<const float> a, std::span<const float> b) {
  return std::ranges::equal(a, b, [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y) ||
           (std::isnan(x) && std::isnan(y));
  });
}

inline bool all_finite(std::span<const float> values) {
  return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

// Values of many magnitudes, both zeros, and NaN.
inline std::vector<float> arbitrary_values(std::size_t n) {
  std::vector<float> values(n);
  std::uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = std::bit_cast<float>((state & 0xBF800000u) | 0x00345678u);
    if (state % 7 == 0) value = -0.0F;
    if (state % 7 == 1) value = 0.0F;
    if (state % 101 == 2) value = std::numeric_limits<float>::quiet_NaN();
  }
  return values;
}

}  // namespace tersewire::fuzz
