#include "nic/card.h"

#include <algorithm>
#include <cstring>

#include "tersewire/setting_text.h"

namespace tersewire::nic {
namespace {

constexpr std::size_t kMaxConnections = 65536;
constexpr std::chrono::seconds kForgotten{60};  // unused for so long, where there is no more room
constexpr std::size_t kMaxStretches = 256;      // of floats in a connection; the first go
constexpr std::uint32_t kNoticeMagic = 0x434E5754;

bool is_blind(std::string_view codec) {
  return SettingText(make_codec(codec)->text(), "codec").take_word("mode") == "paper";
}

ConnectionId leaving_connection(const PacketHeaders& headers) {
  return {headers.source, headers.destination, headers.source_port, headers.destination_port};
}
ConnectionId arriving_connection(const PacketHeaders& headers) {
  return {headers.destination, headers.source, headers.destination_port, headers.source_port};
}

template <typename T>
T take_field(ByteView& bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  bytes = bytes.subspan(sizeof(T));
  return value;
}

}  // namespace

std::optional<FloatsNotice> parse_notice(ByteView bytes) {
  if (bytes.size() != kNoticeBytes || take_field<std::uint32_t>(bytes) != kNoticeMagic) return {};
  FloatsNotice notice;
  notice.connection.local_address = take_field<std::uint32_t>(bytes);
  notice.connection.remote_address = take_field<std::uint32_t>(bytes);
  notice.connection.local_port = take_field<std::uint16_t>(bytes);
  notice.connection.remote_port = take_field<std::uint16_t>(bytes);
  notice.begin = take_field<std::uint64_t>(bytes);
  notice.end = take_field<std::uint64_t>(bytes);
  if (notice.end < notice.begin) return {};
  return notice;
}

Card::Card(std::string_view codec) : compressor_(codec), blind_(is_blind(codec)) {}

std::size_t Card::Hash::operator()(const ConnectionId& id) const {
  const std::uint64_t addresses = std::uint64_t{id.local_address} << 32 | id.remote_address;
  const std::uint64_t ports = std::uint64_t{id.local_port} << 16 | id.remote_port;
  return static_cast<std::size_t>((addresses ^ ports * 0x9E3779B97F4A7C15U) * 0xBF58476D1CE4E5B9U >>
                                  16);
}

std::int32_t Card::Connection::ahead(std::uint32_t sequence) const {
  return static_cast<std::int32_t>(sequence - *first_sequence - static_cast<std::uint32_t>(place));
}

Card::Connection* Card::find(const ConnectionId& id) {
  const auto found = connections_.find(id);
  return found == connections_.end() ? nullptr : &found->second;
}

Card::Connection* Card::find_or_add(const ConnectionId& id, Instant now) {
  if (connections_.size() >= kMaxConnections && !connections_.contains(id)) {
    if (now - forgot_ < kForgotten / 2) return nullptr;  // it takes a while
    forgot_ = now;
    std::erase_if(connections_,
                  [&](const auto& entry) { return now - entry.second.used > kForgotten; });
    if (connections_.size() >= kMaxConnections) return nullptr;
  }
  Connection& connection = connections_[id];
  connection.used = now;
  return &connection;
}

// Packets without a payload have nothing to lose by the code point: they carry the news.
Verdict Card::announce(ByteView packet, const PacketHeaders& headers, Instant now, Bytes& out) {
  if (headers.is_syn) {
    if (Connection* connection = find_or_add(leaving_connection(headers), now)) {
      const std::uint32_t first = headers.sequence + 1;
      // One that is sent again begins nothing anew.
      if (connection->first_sequence != first) {
        connection->floats.clear();
        connection->place = 0;
      }
      connection->first_sequence = first;
    }
  }
  out = with_code_point(packet, kCompressedCodePoint);
  ++counters_.announced;
  return Verdict::kReplace;
}

PayloadFloats Card::floats_of(const PacketHeaders& headers, const Connection& connection) const {
  const std::size_t bytes = headers.payload_bytes();
  if (blind_) return {0, bytes / sizeof(float)};
  if (!connection.first_sequence || connection.floats.empty()) return {};
  const std::uint64_t begin =
      connection.place + static_cast<std::uint64_t>(connection.ahead(headers.sequence));
  const std::uint64_t end = begin + bytes;
  if (end < begin) return {};  // before the stream's first byte
  PayloadFloats longest;
  for (const Stretch& stretch : connection.floats) {
    std::uint64_t from = std::max(begin, stretch.begin);
    const std::uint64_t to = std::min(end, stretch.end);
    from += (stretch.begin - from) % sizeof(float);  // the first whole float
    if (from >= to) continue;
    const auto elems = static_cast<std::size_t>((to - from) / sizeof(float));
    if (elems > longest.elems) longest = {static_cast<std::size_t>(from - begin), elems};
  }
  return longest;
}

Verdict Card::leaving(ByteView packet, Instant now, Bytes& out) {
  const PacketHeaders headers = read_headers(packet);
  if (headers.kind != PacketKind::kWhole || headers.code_point != kMarkedCodePoint) {
    ++counters_.passed;
    return Verdict::kAccept;
  }
  if (!headers.is_udp && headers.payload_bytes() == 0) return announce(packet, headers, now, out);
  Connection* connection = headers.is_udp ? nullptr : find(leaving_connection(headers));
  if (connection != nullptr && connection->first_sequence && !headers.is_syn) {
    const std::int32_t ahead =
        connection->ahead(headers.sequence + static_cast<std::uint32_t>(headers.payload_bytes()));
    if (ahead > 0) connection->place += static_cast<std::uint64_t>(ahead);
  }
  if (connection != nullptr && connection->peer_has_card && !headers.is_syn &&
      now - connection->peer_said_so <= kBelief) {
    connection->used = now;
    const PayloadFloats floats = floats_of(headers, *connection);
    if (const Bytes* made = compressor_.compress(packet, headers, floats)) {
      out.assign(made->begin(), made->end());
      ++counters_.compressed;
      counters_.bytes_before += headers.end;
      counters_.bytes_after += out.size();
      return Verdict::kReplace;
    }
  }
  ++counters_.kept;
  return Verdict::kAccept;
}

Verdict Card::arriving(ByteView packet, Instant now, Bytes& out) {
  const PacketHeaders headers = read_headers(packet);
  if (headers.kind == PacketKind::kForeign || headers.code_point != kCompressedCodePoint) {
    ++counters_.passed;
    return Verdict::kAccept;
  }
  const bool carries = headers.kind != PacketKind::kWhole || headers.payload_bytes() > 0;
  if (carries) {
    std::optional<Bytes> restored = restore(packet, headers);
    if (!restored) {
      ++counters_.dropped;
      return Verdict::kDrop;
    }
    out = std::move(*restored);
    ++counters_.restored;
  } else {
    ++counters_.passed;
  }
  if (!headers.is_udp) {
    if (Connection* connection = find_or_add(arriving_connection(headers), now)) {
      connection->peer_has_card = true;
      connection->peer_said_so = now;
    }
  }
  return carries ? Verdict::kReplace : Verdict::kAccept;
}

void Card::take(const FloatsNotice& notice) {
  Connection* connection = find(notice.connection);
  if (connection == nullptr || !connection->first_sequence) return;
  ++counters_.notices;
  connection->place = std::max(connection->place, notice.begin);
  std::deque<Stretch>& floats = connection->floats;
  while (!floats.empty() && floats.back().begin >= notice.begin) floats.pop_back();
  if (!floats.empty()) floats.back().end = std::min(floats.back().end, notice.begin);
  if (notice.begin == notice.end) return;
  if (!floats.empty() && floats.back().end == notice.begin &&
      (notice.begin - floats.back().begin) % sizeof(float) == 0) {
    floats.back().end = notice.end;
    return;
  }
  floats.push_back({notice.begin, notice.end});
  if (floats.size() > kMaxStretches) floats.pop_front();
}

}  // namespace tersewire::nic
