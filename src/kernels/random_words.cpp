#include "random_words.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "random_words.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace tersewire::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kRounds = 10;
constexpr std::size_t kBlockWords = 4;
constexpr std::uint32_t kFactor0 = 0xD2511F53;
constexpr std::uint32_t kFactor2 = 0xCD9E8D57;
constexpr std::uint32_t kKeyStep0 = 0x9E3779B9;
constexpr std::uint32_t kKeyStep2 = 0xBB67AE85;

// The keys of all rounds, those that words 0 and 2 meet, as wide as a lane is.
struct Keys {
  std::array<std::uint64_t, kRounds> of0{};
  std::array<std::uint64_t, kRounds> of2{};
};

HWY_INLINE Keys keys_of(std::uint64_t seed) {
  Keys keys;
  auto key0 = static_cast<std::uint32_t>(seed);
  auto key2 = static_cast<std::uint32_t>(seed >> 32);
  for (std::size_t round = 0; round < kRounds; ++round) {
    keys.of0[round] = key0;
    keys.of2[round] = key2;
    key0 += kKeyStep0;
    key2 += kKeyStep2;
  }
  return keys;
}

// Block j, one number at a time: the meaning that the vector code below accelerates.
HWY_INLINE std::array<std::uint32_t, kBlockWords> block_scalar(const RandomStream& stream,
                                                               const Keys& keys, std::uint64_t j) {
  auto word0 = static_cast<std::uint32_t>(j);
  auto word1 = static_cast<std::uint32_t>(j >> 32) + (stream.sender << 8);
  std::uint32_t word2 = stream.tensor;
  auto word3 = static_cast<std::uint32_t>(stream.step);
  for (std::size_t round = 0; round < kRounds; ++round) {
    const std::uint64_t product0 = std::uint64_t{kFactor0} * word0;
    const std::uint64_t product2 = std::uint64_t{kFactor2} * word2;
    word0 = static_cast<std::uint32_t>(product2 >> 32) ^ word1 ^
            static_cast<std::uint32_t>(keys.of0[round]);
    word1 = static_cast<std::uint32_t>(product2);
    word2 = static_cast<std::uint32_t>(product0 >> 32) ^ word3 ^
            static_cast<std::uint32_t>(keys.of2[round]);
    word3 = static_cast<std::uint32_t>(product0);
  }
  return {word0, word1, word2, word3};
}

#if HWY_TARGET == HWY_SCALAR

HWY_INLINE std::size_t whole_vectors(const RandomStream&, const Keys&, std::uint64_t, std::size_t,
                                     std::uint32_t*) {
  return 0;
}

#else

using U32 = hn::ScalableTag<std::uint32_t>;
using U64 = hn::ScalableTag<std::uint64_t>;
using VecU64 = hn::Vec<U64>;

// A block in each 64-bit lane, each of its words in the low half of one vector. What is in the high
// halves does not matter: a product takes low halves only, and no sum carries upwards.
struct Blocks {
  VecU64 word0;
  VecU64 word1;
  VecU64 word2;
  VecU64 word3;
};

// Blocks that are computed side by side, to hide each other's latency.
template <class Half>
struct Pair {
  Half first;
  Half second;
};

HWY_INLINE VecU64 product(VecU64 a, std::uint32_t factor) {
  return hn::MulEven(hn::BitCast(U32(), a), hn::Set(U32(), factor));
}

// The high halves where the low ones were. A shuffle, because shifts want the unit that multiplies.
HWY_INLINE VecU64 high_halves(VecU64 v) {
  return hn::BitCast(U64(), hn::Shuffle2301(hn::BitCast(U32(), v)));
}

HWY_INLINE void run_round(Blocks& b, VecU64 key0, VecU64 key2) {
  const VecU64 product0 = product(b.word0, kFactor0);
  const VecU64 product2 = product(b.word2, kFactor2);
  b.word0 = hn::Xor3(high_halves(product2), b.word1, key0);
  b.word1 = product2;
  b.word2 = hn::Xor3(high_halves(product0), b.word3, key2);
  b.word3 = product0;
}

template <class Half>
HWY_INLINE void run_round(Pair<Half>& pair, VecU64 key0, VecU64 key2) {
  run_round(pair.first, key0, key2);
  run_round(pair.second, key0, key2);
}

// The counters of the blocks from j[0] on; sets j behind them.
template <class B>
HWY_INLINE B start(const RandomStream& stream, VecU64& j) {
  if constexpr (std::is_same_v<B, Blocks>) {
    const U64 d;
    const VecU64 sender = hn::Set(d, std::uint64_t{stream.sender} << 8);
    const VecU64 own = j;
    j = hn::Add(j, hn::Set(d, hn::Lanes(d)));
    return {own, hn::Add(hn::ShiftRight<32>(own), sender), hn::Set(d, stream.tensor),
            hn::Set(d, stream.step)};
  } else {
    using Half = decltype(B::first);
    return {start<Half>(stream, j), start<Half>(stream, j)};
  }
}

// Writes the blocks' words in order and returns where they end.
HWY_INLINE std::uint32_t* store(const Blocks& b, std::uint32_t* out) {
  const U32 d;
  const VecU64 low = hn::Set(U64(), 0xFFFFFFFF);
  const VecU64 first = hn::Or(hn::And(b.word0, low), hn::ShiftLeft<32>(b.word1));
  const VecU64 second = hn::Or(hn::And(b.word2, low), hn::ShiftLeft<32>(b.word3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(first, second)), d, out);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(U64(), first, second)), d, out + hn::Lanes(d));
  return out + 2 * hn::Lanes(d);
}

template <class Half>
HWY_INLINE std::uint32_t* store(const Pair<Half>& pair, std::uint32_t* out) {
  return store(pair.second, store(pair.first, out));
}

// The blocks from j on, of one vector. Lanes 0, 2, 4 ... hold the first half of them and the others
// the second, because what even lanes hold is what InterleaveLower puts in a row.
HWY_INLINE VecU64 blocks_from(std::uint64_t j) {
  const U64 d;
  const VecU64 lane = hn::Iota(d, 0);
  const VecU64 odd = hn::Sub(hn::Zero(d), hn::And(lane, hn::Set(d, 1)));
  const VecU64 half = hn::And(odd, hn::Set(d, hn::Lanes(d) / 2));
  return hn::Add(hn::Set(d, j), hn::Add(hn::ShiftRight<1>(lane), half));
}

// As many draws as fill whole steps of four vectors. Returns how many that were.
HWY_INLINE std::size_t whole_vectors(const RandomStream& stream, const Keys& keys, std::uint64_t j,
                                     std::size_t n, std::uint32_t* HWY_RESTRICT out) {
  const U64 d;
  constexpr std::size_t kDraws = 4 * hn::MaxLanes(d) * kBlockWords;
  VecU64 at = blocks_from(j);
  const std::size_t whole = n / kDraws * kDraws;
  for (std::size_t i = 0; i < whole; i += kDraws) {
    auto blocks = start<Pair<Pair<Blocks>>>(stream, at);
    for (std::size_t round = 0; round < kRounds; ++round) {
      run_round(blocks, hn::Set(d, keys.of0[round]), hn::Set(d, keys.of2[round]));
    }
    store(blocks, out + i);
  }
  return whole;
}

#endif  // HWY_TARGET == HWY_SCALAR

void random_words(const RandomStream& stream, std::uint64_t first, std::size_t n,
                  std::uint32_t* out) {
  const Keys keys = keys_of(stream.seed);
  std::size_t i = whole_vectors(stream, keys, first / kBlockWords, n, out);
  for (; i < n; i += kBlockWords) {
    const auto block = block_scalar(stream, keys, (first + i) / kBlockWords);
    std::copy_n(block.begin(), std::min(kBlockWords, n - i), out + i);
  }
}

}  // namespace tersewire::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tersewire::kernels {

HWY_EXPORT(random_words);

void random_words(const RandomStream& stream, std::uint64_t first, std::size_t n,
                  std::uint32_t* out) {
  HWY_DYNAMIC_DISPATCH(random_words)(stream, first, n, out);
}

}  // namespace tersewire::kernels
#endif  // HWY_ONCE
