#include "grpc_record.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <memory>

#include "byte_io.h"
#include "errors.h"

namespace tersewire {
namespace {

std::uint32_t checksum_of(RecordHead head, ByteView data) {
  head.checksum = 0;
  const XXH64_hash_t of_head = XXH3_64bits(&head, sizeof(head));
  if (data.empty()) return static_cast<std::uint32_t>(of_head);
  return static_cast<std::uint32_t>(XXH3_64bits_withSeed(data.data(), data.size(), of_head));
}

void check_kind(const RecordHead& head) {
  if (head.kind > RecordKind::kCopy) {
    fail(ErrorCode::kDataLoss, "a record of kind {} means nothing; run one version everywhere",
         static_cast<unsigned>(head.kind));
  }
  const bool is_data = head.kind == RecordKind::kData || head.kind == RecordKind::kCopy;
  const bool of_pair = head.kind <= RecordKind::kResume || is_data;
  const bool takes_data = is_data || head.kind == RecordKind::kHello ||
                          head.kind == RecordKind::kRoster || head.kind == RecordKind::kAbort ||
                          head.kind == RecordKind::kMember || head.kind == RecordKind::kList ||
                          head.kind == RecordKind::kTraffic;
  const bool places = head.position != 0 || head.total != 0 || head.offset != 0;
  const bool states = head.received != 0 || head.taken != 0;
  if ((head.bytes > 0 && !takes_data) || (places && !is_data) || (states && !of_pair)) {
    fail(ErrorCode::kDataLoss,
         "a record of kind {} has fields that such records have not; run one version everywhere",
         static_cast<unsigned>(head.kind));
  }
}

void check_checksum(const Record& record, bool secure) {
  if (record.head.checksum == (secure ? 0 : checksum_of(record.head, record.data))) return;
  fail(ErrorCode::kDataLoss,
       "a record's checksum is wrong: it was altered on its way, or one end speaks TLS and the "
       "other does not; use certificates on every node");
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
         "a copy of {} bytes stands behind a record with {}; run one version everywhere",
         copy.head.bytes, data.size());
  }
  check_checksum(record, secure);
  return record;
}

Record take_record(ByteView& batch, bool secure) {
  if (batch.size() < kRecordHeadBytes) {
    fail(ErrorCode::kDataLoss,
         "{} bytes are no record, whose head has {}; run one version "
         "everywhere",
         batch.size(), kRecordHeadBytes);
  }
  Record record;
  std::memcpy(&record.head, batch.data(), kRecordHeadBytes);
  const RecordHead& head = record.head;
  if (head.version != 1 || head.reserved != 0) {
    fail(ErrorCode::kDataLoss, "a record is of version {}, not of 1; run one version everywhere",
         head.version);
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
  return data;
}

Hello parse_hello(ByteView data) {
  ByteReader reader(data);
  Hello hello;
  hello.incarnation = reader.read<std::uint64_t>("a hello's number");
  hello.ranks = reader.read<std::uint32_t>("a hello's number of ranks");
  if (reader.left() > 0) {
    fail(ErrorCode::kDataLoss, "a hello has {} bytes too many; run one version everywhere",
         reader.left());
  }
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

}  // namespace tersewire
