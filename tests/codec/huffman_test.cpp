// Huffman codes: the best lengths under a limit, their bytes, and streams written and read back.
#include "../../src/codec/payload/huffman.h"

#include <gtest/gtest.h>

#include <functional>
#include <queue>
#include <random>

#include "../../src/codec/payload/huffman_writer.h"
#include "codec_test_support.h"

namespace tersewire {
namespace {

using test::bytes_of;
using Counts = std::vector<std::uint64_t>;
using Lengths = std::vector<std::uint8_t>;

Lengths lengths_of(const Counts& counts, unsigned limit) {
  Lengths lengths(counts.size(), 99);
  PackageMerge().find_lengths(counts, limit, lengths);
  return lengths;
}

// Bits of all symbols together.
std::uint64_t cost(const Counts& counts, const Lengths& lengths) {
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) bits += counts[i] * lengths[i];
  return bits;
}

// Huffman's own algorithm, without a limit: the cost is the sum of all inner nodes.
std::uint64_t huffman_cost(const Counts& counts) {
  std::priority_queue<std::uint64_t, Counts, std::greater<>> nodes;
  for (const std::uint64_t count : counts) {
    if (count > 0) nodes.push(count);
  }
  std::uint64_t bits = 0;
  while (nodes.size() > 1) {
    std::uint64_t sum = nodes.top();
    nodes.pop();
    sum += nodes.top();
    nodes.pop();
    bits += sum;
    nodes.push(sum);
  }
  return bits;
}

// Of all codes there are.
std::uint64_t smallest_cost(const Counts& counts, unsigned limit) {
  std::uint64_t smallest = ~std::uint64_t{0};
  const std::function<void(std::size_t, double, std::uint64_t)> choose =
      [&](std::size_t symbol, double left, std::uint64_t bits) {
        if (symbol == counts.size()) {
          smallest = std::min(smallest, bits);
          return;
        }
        for (unsigned length = 1; length <= limit; ++length) {
          const double share = std::ldexp(1.0, -static_cast<int>(length));
          if (share <= left) choose(symbol + 1, left - share, bits + counts[symbol] * length);
        }
      };
  choose(0, 1, 0);
  return smallest;
}

double kraft_sum(const Lengths& lengths) {
  double sum = 0;
  for (const int length : lengths) sum += length > 0 ? std::ldexp(1.0, -length) : 0;
  return sum;
}

TEST(PackageMerge, KnownAnswers) {
  EXPECT_EQ(lengths_of({1, 1}, 12), (Lengths{1, 1}));
  EXPECT_EQ(lengths_of({0, 5, 0, 1, 0}, 12), (Lengths{0, 1, 0, 1, 0}));
  EXPECT_EQ(lengths_of({8, 4, 2, 1, 1}, 12), (Lengths{1, 2, 3, 4, 4}));
  EXPECT_EQ(lengths_of({8, 4, 2, 1, 1}, 3), (Lengths{1, 3, 3, 3, 3}));
  EXPECT_EQ(lengths_of({3, 3, 3, 3}, 2), (Lengths{2, 2, 2, 2}));
  // 1 1 2 2: a package 1 + 1 weighs as much as a 2. The symbols go first, so all get two bits,
  // where 3 3 2 1 would cost the same.
  EXPECT_EQ(lengths_of({1, 1, 2, 2}, 12), (Lengths{2, 2, 2, 2}));
  // Of equal counts the earlier symbol is the rarer.
  EXPECT_EQ(lengths_of({1, 1, 1}, 12), (Lengths{2, 2, 1}));
}

TEST(PackageMerge, IsAsGoodAsHuffmanWhereTheLimitDoesNotBind) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    Counts counts(2 + random() % 200);
    for (std::uint64_t& count : counts) count = random() % 4 == 0 ? 0 : random() % 1000;
    counts[0] = counts[1] = 3;
    const Lengths lengths = lengths_of(counts, 16);
    EXPECT_EQ(cost(counts, lengths), huffman_cost(counts));
    EXPECT_EQ(kraft_sum(lengths), 1);
    for (std::size_t i = 0; i < counts.size(); ++i) EXPECT_EQ(lengths[i] > 0, counts[i] > 0);
  }
}

TEST(PackageMerge, IsTheBestUnderTheLimit) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 100; ++trial) {
    Counts counts(2 + random() % 5);
    for (std::uint64_t& count : counts) count = std::uint64_t{1} << (random() % 12);
    for (const unsigned limit : {3U, 4U}) {
      EXPECT_EQ(cost(counts, lengths_of(counts, limit)), smallest_cost(counts, limit));
    }
  }
}

TEST(PackageMerge, RespectsTheLimit) {
  Counts fibonacci{1, 1};
  while (fibonacci.size() < 50) fibonacci.push_back(fibonacci.end()[-1] + fibonacci.end()[-2]);
  for (const unsigned limit : {6U, 12U, 16U}) {
    const Lengths lengths = lengths_of(fibonacci, limit);
    EXPECT_EQ(*std::ranges::max_element(lengths), limit);
    EXPECT_EQ(kraft_sum(lengths), 1);
  }
  // As many symbols as there are codes.
  EXPECT_EQ(lengths_of(Counts(std::size_t{1} << 16, 7), 16), Lengths(std::size_t{1} << 16, 16));
}

TEST(Huffman, CodesAreCanonical) {
  // 10, 0, none, 110, 111; the first bit lowest.
  const Lengths lengths{2, 1, 0, 3, 3};
  std::vector<kernels::HuffmanCode> codes(lengths.size());
  assign_codes(lengths, codes);
  const std::vector<int> bits{0b01, 0b0, 0, 0b011, 0b111};
  for (std::size_t i = 0; i < codes.size(); ++i) {
    EXPECT_EQ(codes[i].bits, bits[i]);
    EXPECT_EQ(codes[i].length, lengths[i]);
  }
}

Lengths with_zeros(Lengths lengths, std::size_t size) {
  lengths.resize(size);
  return lengths;
}

TEST(Huffman, LengthsAreWrittenInRuns) {
  struct Case {
    Lengths lengths;
    std::vector<int> bytes;
  };
  const std::vector<Case> cases{{{1, 1}, {0x21}},
                                {{1, 2, 3, 3}, {0x01, 0x02, 0x23}},
                                // Runs of 7, of 8 and of 8 + 128.
                                {with_zeros({1, 1}, 9), {0x21, 0xC0}},
                                {with_zeros({1, 1}, 10), {0x21, 0xE0, 0}},
                                {with_zeros({1, 1}, 138), {0x21, 0xE0, 0x80, 1}},
                                {Lengths(16, 4), {0xE4, 8}}};
  for (const Case& c : cases) {
    Bytes out;
    append_lengths(out, c.lengths);
    EXPECT_EQ(out, bytes_of(c.bytes));
    ByteReader reader(out);
    EXPECT_EQ(read_lengths(reader, c.lengths.size()), c.lengths);
    EXPECT_EQ(reader.left(), 0U);
  }
  // Shorter runs than need be are read as well.
  const Bytes pieces = bytes_of({0x01, 0x01, 0, 0x20, 0});
  ByteReader reader(pieces);
  EXPECT_EQ(read_lengths(reader, 6), (Lengths{1, 1, 0, 0, 0, 0}));
}

TEST(Huffman, MalformedLengthsAreRejected) {
  const std::vector<std::vector<int>> malformed{
      {},                 // nothing
      {0x01},             // too few
      {0x41, 0},          // three codes of one bit
      {0x01, 0x40},       // one code of one bit
      {0xE0, 0},          // none
      {0x21, 0x11, 0},    // a length of 17
      {0x21, 0x1F, 0},    // and of 31
      {0x21, 0x40},       // past the last symbol
      {0x21, 0xE0, 0},    // likewise
      {0x21, 0xE0},       // a varint that is missing
      {0xE2, 0x80, 0},    // and one that is not in its shortest form
      {0xE2, 0xFF, 0x7F}  // and one far too large
  };
  for (const auto& bytes : malformed) {
    const Bytes payload = bytes_of(bytes);
    EXPECT_TRUE(test::fails_with(ErrorCode::kDataLoss, [&] {
      ByteReader reader(payload);
      read_lengths(reader, 4);
    })) << testing::PrintToString(bytes);
  }
}

// --- Streams

using Symbols = std::vector<std::uint16_t>;
using Streams = std::array<kernels::StreamReader, kernels::kStreams>;

constexpr std::size_t kPiece = 64;

// Symbols that become rarer with their number: by `ratio` from one to the next.
Symbols geometric(std::size_t n, std::size_t symbols, double ratio, unsigned seed) {
  std::mt19937 random(seed);
  std::geometric_distribution<std::size_t> draw(1 - ratio);
  Symbols drawn(n);
  for (std::uint16_t& symbol : drawn) {
    symbol = static_cast<std::uint16_t>(std::min(draw(random), symbols - 1));
  }
  drawn[0] = 0;
  drawn[1] = 1;
  return drawn;
}

Bytes written(HuffmanWriter& writer, const Symbols& symbols, std::size_t alphabet, unsigned limit,
              std::size_t part) {
  const std::size_t parts = (symbols.size() + part - 1) / part;
  const auto visit = [&](const auto& use) {
    for (std::size_t i = 0; i < symbols.size(); i += kPiece) {
      use(i / part, symbols.data() + i, std::min(kPiece, symbols.size() - i));
    }
  };
  writer.start(parts, alphabet);
  visit([&](std::size_t i, const std::uint16_t* at, std::size_t n) { writer.count(i, at, n); });
  writer.find_codes(limit);
  Bytes out = bytes_of({9});
  writer.append_streams(out);
  visit([&](std::size_t i, const std::uint16_t* at, std::size_t n) { writer.write(i, at, n); });
  writer.finish();
  EXPECT_EQ(out.size(), 1 + writer.bytes());
  out.erase(out.begin());
  return out;
}

// The same in the simplest way: a stream after the other, bit by bit.
Bytes written_plainly(const Symbols& symbols, const Lengths& lengths) {
  std::vector<kernels::HuffmanCode> codes(lengths.size());
  assign_codes(lengths, codes);
  std::array<Bytes, kernels::kStreams> streams;
  std::array<std::size_t, kernels::kStreams> bits{};
  for (std::size_t e = 0; e < symbols.size(); ++e) {
    const kernels::HuffmanCode code = codes[symbols[e]];
    for (unsigned i = 0; i < code.length; ++i, ++bits[e % 4]) {
      Bytes& stream = streams[e % 4];
      if (bits[e % 4] % 8 == 0) stream.push_back(std::byte{0});
      stream.back() |= static_cast<std::byte>((code.bits >> i & 1) << bits[e % 4] % 8);
    }
  }
  Bytes out;
  append_lengths(out, lengths);
  for (const Bytes& stream : streams) append_varint(out, stream.size());
  for (const Bytes& stream : streams) out.insert(out.end(), stream.begin(), stream.end());
  return out;
}

Streams streams_of(ByteReader& reader) {
  Streams streams{};
  for (auto& stream : streams) {
    stream.size = static_cast<std::size_t>(reader.varint(1 << 20, "size"));
  }
  for (auto& stream : streams) {
    stream.bytes = reinterpret_cast<const std::uint8_t*>(reader.take(stream.size, "stream").data());
  }
  return streams;
}

void expect_round_trip(const Symbols& symbols, std::size_t alphabet, unsigned limit) {
  SCOPED_TRACE(testing::Message() << symbols.size() << " of " << alphabet << ", limit " << limit);
  HuffmanWriter writer;
  const Bytes out = written(writer, symbols, alphabet, limit, symbols.size());
  for (const std::size_t parts : {2U, 7U}) {
    const std::size_t part = (symbols.size() / parts / kPiece + 1) * kPiece;
    EXPECT_TRUE(written(writer, symbols, alphabet, limit, part) == out) << part;
  }
  ByteReader reader(out);
  const Lengths lengths = read_lengths(reader, alphabet);
  EXPECT_TRUE(written_plainly(symbols, lengths) == out);
  const Streams streams = streams_of(reader);
  for (const std::size_t elems : {std::size_t{1}, std::size_t{1} << 20}) {
    // One code a step, and several.
    const HuffmanTables tables(lengths, elems);
    Streams skipped = streams;
    EXPECT_TRUE(kernels::skip_codes(tables.view(), skipped, symbols.size()));
    Streams at = streams;
    Symbols read(symbols.size());
    for (std::size_t i = 0; i < symbols.size(); i += kPiece) {
      kernels::read_codes(tables.view(), at, std::min(kPiece, symbols.size() - i), read.data() + i);
    }
    EXPECT_TRUE(read == symbols);
    for (std::size_t k = 0; k < kernels::kStreams; ++k) {
      EXPECT_EQ(at[k].position, skipped[k].position);
      EXPECT_EQ((at[k].position + 7) / 8, streams[k].size);
      Streams cut = streams;
      cut[k].size -= cut[k].size > 0 ? 1 : 0;
      EXPECT_EQ(kernels::skip_codes(tables.view(), cut, symbols.size()), streams[k].size == 0);
    }
  }
}

TEST(HuffmanStreams, RoundTrips) {
  for (const std::size_t n : {2U, 3U, 4U, 5U, 63U, 64U, 65U, 1000U, 4097U, 20'003U}) {
    expect_round_trip(geometric(n, 2, 0.5, 1), 2, 12);
    expect_round_trip(geometric(n, 64, 0.05, 2), 64, 12);
    expect_round_trip(geometric(n, 1024, 0.99, 3), 1024, 12);
    // Codes of more than 14 bits: fewer fit into a word.
    expect_round_trip(geometric(n, 1 << 15, 0.6, 4), 1 << 15, 16);
    expect_round_trip(geometric(n, 1 << 16, 0.9999, 5), 1 << 16, 16);
  }
}

}  // namespace
}  // namespace tersewire
