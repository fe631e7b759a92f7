// Records, as nodes and hub of the transport grpc exchange them (spec/relay-format.md). No gRPC
// here.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tersewire/bytes.h"

namespace tersewire {

enum class RecordKind : std::uint8_t {
  kData = 0,
  kState = 1,
  kResume = 2,
  kHello = 3,
  kRoster = 4,
  kAlive = 5,
  kAbort = 6,
  kGoodbye = 7,
  kMember = 8,
  kList = 9,
  kTraffic = 10,
  kCopy = 11,
  kAddresses = 12,
  kDirect = 13,
};
inline constexpr RecordKind kLastRecordKind = RecordKind::kDirect;

inline constexpr std::uint32_t kHubRank = 0xffffffff;
// Of a job whose members stay.
inline constexpr std::uint32_t kOnlyGeneration = 1;
inline constexpr std::size_t kRecordHeadBytes = 64;
inline constexpr std::size_t kMostRecordBytes = std::size_t{1} << 18;
inline constexpr std::size_t kMostBatchBytes = std::size_t{1} << 19;
// What a sender makes of these on a link of unknown speed (BatchLimit), and of records on any,
// which the hub does not divide.
inline constexpr std::size_t kLeastBatchBytes = std::size_t{1} << 16;
inline constexpr std::size_t kSentRecordBytes = kLeastBatchBytes;

// As it lies on the wire.
struct RecordHead {
  std::uint8_t version = 1;
  RecordKind kind = RecordKind::kAlive;
  std::uint16_t reserved = 0;
  std::uint32_t generation = kOnlyGeneration;
  std::uint32_t from = kHubRank;
  std::uint32_t to = kHubRank;
  std::uint32_t bytes = 0;
  std::uint32_t checksum = 0;
  std::uint64_t position = 0;
  std::uint64_t total = 0;
  std::uint64_t offset = 0;
  std::uint64_t received = 0;
  std::uint64_t taken = 0;
};
static_assert(sizeof(RecordHead) == kRecordHeadBytes);

struct Record {
  RecordHead head;
  ByteView data;
};

// The head of a record with this data, its `bytes` and `checksum` set; `secure`: over TLS.
RecordHead sealed(RecordHead head, ByteView data, bool secure);

// Takes the first record off a batch, of whatever generation. Throws kDataLoss for what is none;
// the batch is then of no further use. A copy's checksum is looked at by copied(). Cost: a checksum
// where not `secure`.
Record take_record(ByteView& batch, bool secure);

// The head of a copy, which stands for a data record with this head and the data of the data record
// before it in its batch. Nothing follows it; a node sends it to the hub in place of the same data.
RecordHead sealed_copy(RecordHead head, ByteView data, bool secure);

// The data record that a copy behind these data stands for. Throws kDataLoss where it is not
// theirs.
Record copied(const Record& copy, ByteView data, bool secure);

// What a hello says.
struct Hello {
  std::uint64_t incarnation = 0;
  std::uint32_t ranks = 0;
  std::string address = {};  // where its peers reach it directly; empty: nowhere
};
Bytes hello_data(const Hello& hello);
// Throws kDataLoss.
Hello parse_hello(ByteView data);

// What a roster says of a rank: milliseconds since the hub heard it, at most kLongestAge, or one of
// these.
inline constexpr std::uint32_t kNotHere = 0xffffffff;
inline constexpr std::uint32_t kHasLeft = 0xfffffffe;
inline constexpr std::uint32_t kLongestAge = 0xfffffffd;
Bytes roster_data(const std::vector<std::uint32_t>& ages);
// Throws kDataLoss where there are not as many as ranks.
std::vector<std::uint32_t> parse_roster(ByteView data, std::size_t ranks);

inline constexpr std::size_t kMostAddressBytes = 100;
// Whether it is HOST:PORT, an IPv6 address in brackets, and nothing else.
bool is_peer_address(const std::string& text);

// What the hub tells its nodes of a rank.
struct PeerAddress {
  std::uint64_t incarnation = 0;  // of who may speak for it directly; 0: nobody may
  std::string address = {};
};
// For at most so many ranks. Leaves out addresses that have no room in a record.
inline constexpr std::size_t kMostPlaces = kMostRecordBytes / 9;
Bytes addresses_data(const std::vector<PeerAddress>& peers);
// Throws kDataLoss where there are not as many as ranks, or one is no address.
std::vector<PeerAddress> parse_addresses(ByteView data, std::size_t ranks);

// What a node tells the hub of its direct streams.
struct DirectReport {
  std::uint64_t sent_bytes = 0;  // in records of kind 0, so far
  std::uint64_t received_bytes = 0;
  std::string trouble = {};  // a sentence, where there is something to say
};
Bytes direct_data(const DirectReport& report);
// Throws kDataLoss.
DirectReport parse_direct(ByteView data);

}  // namespace tersewire
