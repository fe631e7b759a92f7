#include "grpc_record.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "byte_io.h"
#include "ends.h"
#include "errors.h"
#include "host_and_port.h"

namespace tersewire {
namespace {

std::uint32_t checksum_of(RecordHead head, ByteView data) {
  head.checksum = 0;
  const XXH64_hash_t of_head = XXH3_64bits(&head, sizeof(head));
  if (data.empty()) return static_cast<std::uint32_t>(of_head);
  return static_cast<std::uint32_t>(XXH3_64bits_withSeed(data.data(), data.size(), of_head));
}

void check_kind(const RecordHead& head) {
  if (head.kind > kLastRecordKind) {
    fail(ErrorCode::kDataLoss,
         "a record of kind {} is unknown to this version; run one version everywhere",
         static_cast<unsigned>(head.kind));
  }
  const bool is_data = head.kind == RecordKind::kData || head.kind == RecordKind::kCopy;
  const bool of_pair = head.kind <= RecordKind::kResume || is_data;
  const bool takes_data = is_data || head.kind == RecordKind::kHello ||
                          head.kind == RecordKind::kRoster || head.kind == RecordKind::kAbort ||
                          head.kind == RecordKind::kMember || head.kind == RecordKind::kList ||
                          head.kind >= RecordKind::kTraffic;
  const bool places = head.position != 0 || head.total != 0 || head.offset != 0;
  const bool states = head.received != 0 || head.taken != 0;
  if ((head.bytes > 0 && !takes_data) || (places && !is_data) || (states && !of_pair)) {
    fail(ErrorCode::kDataLoss,
         "a record of kind {} has fields that such records do not have; run one version everywhere",
         static_cast<unsigned>(head.kind));
  }
}

void check_checksum(const Record& record, bool secure) {
  if (record.head.checksum == (secure ? 0 : checksum_of(record.head, record.data))) return;
  fail(ErrorCode::kDataLoss,
       "a record's checksum is wrong: it was altered on its way, or one end speaks TLS and the "
       "other does not; use certificates on every node");
}

std::string text_of(ByteView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void check_address(const std::string& address) {
  if (address.empty() || is_peer_address(address)) return;
  fail(ErrorCode::kDataLoss,
       "{} bytes are not HOST:PORT, where a node is reached directly; run one version everywhere",
       address.size());
}

}  // namespace

RecordHead sealed(RecordHead head, ByteView data, bool secure) {
  head.bytes = static_cast<std::uint32_t>(data.size());
  head.checksum = secure ? 0 : checksum_of(head, data);
  return head;
}

RecordHead sealed_copy(RecordHead head, ByteView data, bool secure) {
  head.kind = RecordKind::kData;
  head = sealed(head, data, secure);
  head.kind = RecordKind::kCopy;
  return head;
}

Record copied(const Record& copy, ByteView data, bool secure) {
  Record record{.head = copy.head, .data = data};
  record.head.kind = RecordKind::kData;
  if (copy.head.bytes != data.size() || data.empty()) {
    fail(ErrorCode::kDataLoss,
         "a copy of {} bytes follows a record with {}; run one version everywhere", copy.head.bytes,
         data.size());
  }
  check_checksum(record, secure);
  return record;
}

Record take_record(ByteView& batch, bool secure) {
  if (batch.size() < kRecordHeadBytes) {
    fail(ErrorCode::kDataLoss,
         "{} bytes are too few for a record, whose head has {}; run one version everywhere",
         batch.size(), kRecordHeadBytes);
  }
  Record record;
  std::memcpy(&record.head, batch.data(), kRecordHeadBytes);
  const RecordHead& head = record.head;
  if (head.version != 1) {
    fail(ErrorCode::kDataLoss, "a record is of version {}, not of 1; run one version everywhere",
         head.version);
  }
  if (head.reserved != 0) {
    fail(ErrorCode::kDataLoss,
         "a record has {} in its reserved field, not 0; run one version everywhere", head.reserved);
  }
  check_kind(head);
  if (head.kind == RecordKind::kCopy) {
    batch = batch.subspan(kRecordHeadBytes);
    return record;
  }
  if (head.bytes > kMostRecordBytes || head.bytes > batch.size() - kRecordHeadBytes) {
    fail(ErrorCode::kDataLoss,
         "a record announces {} bytes, and {} follow; run one version "
         "everywhere",
         head.bytes, batch.size() - kRecordHeadBytes);
  }
  record.data = batch.subspan(kRecordHeadBytes, head.bytes);
  check_checksum(record, secure);
  batch = batch.subspan(kRecordHeadBytes + head.bytes);
  return record;
}

Bytes hello_data(const Hello& hello) {
  Bytes data;
  append_value(data, hello.incarnation);
  append_value(data, hello.ranks);
  append(data, hello.address.data(), hello.address.size());
  return data;
}

Hello parse_hello(ByteView data) {
  ByteReader reader(data);
  Hello hello;
  hello.incarnation = reader.read<std::uint64_t>("a hello's number");
  hello.ranks = reader.read<std::uint32_t>("a hello's number of ranks");
  hello.address = text_of(reader.take(reader.left(), "a hello's address"));
  check_address(hello.address);
  return hello;
}

Bytes roster_data(const std::vector<std::uint32_t>& ages) {
  Bytes data;
  append(data, ages.data(), ages.size() * sizeof(ages[0]));
  return data;
}

std::vector<std::uint32_t> parse_roster(ByteView data, std::size_t ranks) {
  if (data.size() != ranks * sizeof(std::uint32_t)) {
    fail(ErrorCode::kDataLoss,
         "the hub's roster has {} bytes for {} ranks; start hub and nodes for the same job",
         data.size(), ranks);
  }
  std::vector<std::uint32_t> ages(ranks);
  std::memcpy(ages.data(), data.data(), data.size());
  return ages;
}

bool is_peer_address(const std::string& text) {
  if (text.size() > kMostAddressBytes) return false;
  HostAndPort place;
  try {
    place = host_and_port(text);
  } catch (const Error&) {
    return false;
  }
  const bool is_v6 = place.host.find(':') != std::string::npos;
  return place.port > 0 && std::ranges::all_of(place.host, [&](char c) {
           const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                                 (c >= '0' && c <= '9') || c == '.';
           return is_plain || c == (is_v6 ? ':' : '-');
         });
}

Bytes addresses_data(const std::vector<PeerAddress>& peers) {
  constexpr std::size_t kWithout = sizeof(std::uint64_t) + sizeof(std::uint8_t);
  std::size_t room = kMostRecordBytes - std::min(kMostRecordBytes, peers.size() * kWithout);
  Bytes data;
  for (const PeerAddress& peer : peers) {
    const std::size_t bytes = peer.address.size() <= room ? peer.address.size() : 0;
    room -= bytes;
    append_value(data, peer.incarnation);
    append_value(data, static_cast<std::uint8_t>(bytes));
    append(data, peer.address.data(), bytes);
  }
  return data;
}

std::vector<PeerAddress> parse_addresses(ByteView data, std::size_t ranks) {
  ByteReader reader(data);
  std::vector<PeerAddress> peers;
  while (reader.left() > 0 && peers.size() < ranks) {
    PeerAddress peer;
    peer.incarnation = reader.read<std::uint64_t>("the number of a rank's process");
    const auto bytes = reader.read<std::uint8_t>("the length of its address");
    peer.address = text_of(reader.take(bytes, "its address"));
    check_address(peer.address);
    peers.push_back(std::move(peer));
  }
  if (peers.size() != ranks || reader.left() > 0) {
    fail(ErrorCode::kDataLoss,
         "the hub's addresses of {} ranks are {} bytes; start hub and nodes for the same job",
         ranks, data.size());
  }
  return peers;
}

Bytes direct_data(const DirectReport& report) {
  Bytes data;
  append_value(data, report.sent_bytes);
  append_value(data, report.received_bytes);
  append(data, report.trouble.data(), std::min(report.trouble.size(), kMostReasonBytes));
  return data;
}

DirectReport parse_direct(ByteView data) {
  ByteReader reader(data);
  DirectReport report;
  report.sent_bytes = reader.read<std::uint64_t>("bytes sent directly");
  report.received_bytes = reader.read<std::uint64_t>("bytes received directly");
  report.trouble = text_of(reader.take(reader.left(), "a sentence"));
  if (report.trouble.size() > kMostReasonBytes) {
    fail(ErrorCode::kDataLoss, "a sentence has {} bytes, more than {}; run one version everywhere",
         report.trouble.size(), kMostReasonBytes);
  }
  return report;
}

}  // namespace tersewire
