#include "tersewire/message.h"

#define XXH_INLINE_ALL
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "byte_io.h"
#include "errors.h"
#include "frame.h"
#include "message_head.h"
#include "tersewire/tw_file.h"

namespace tersewire {
namespace {

// In the order of their numbers, from 1.
constexpr std::array<std::string_view, 9> kKindNames{
    "push", "pull", "file", "state", "done", "offer", "agreement", "checksum", "finiteness"};

// Of files and states, whose frames are the same, the first version is read too.
constexpr std::uint8_t kFirstVersion = 1;
constexpr std::size_t kSmallestFrameBytes = 4;

constexpr std::size_t kWordBits = 32;  // of a finiteness message

std::uint64_t checksum(ByteView message) {
  XXH64_state_t state;
  XXH64_reset(&state, 0);
  XXH64_update(&state, message.data(), kChecksumOffset);
  const ByteView body = message.subspan(kMessageOverheadBytes);
  XXH64_update(&state, body.data(), body.size());
  return XXH64_digest(&state);
}

// A contributors frame speaks of the delta that must follow it.
void check_contributors_place(MessageKind kind, std::size_t number, const Frame& frame,
                              const Frame* next) {
  if (frame.codec != CodecId::kContributors) return;
  const bool followed = next != nullptr && next->codec != CodecId::kContributors &&
                        next->tensor == frame.tensor && next->part == frame.part;
  if (kind == MessageKind::kPull && !frame.description && followed) return;
  fail(ErrorCode::kDataLoss,
       "frame {} names contributors, which only belongs in a pull, before the same part's delta",
       number);
}

bool is_plain_fp32(const Frame& frame) {
  return frame.codec == CodecId::kFp32 && !frame.description && !frame.not_finite;
}

bool is_scaler(float value) { return value >= 0 && !std::signbit(value); }

// Checks the scalers in an offer or an agreement.
void check_scalers(const Frames& frames) {
  if (frames.empty()) fail(ErrorCode::kDataLoss, "scalers must come in at least one frame");
  std::vector<std::pair<std::uint32_t, std::uint32_t>> parts;
  parts.reserve(frames.size());  // 8 bytes each; a frame has 4 or more
  for (const Frame& frame : frames) {
    const std::size_t bytes = frame.payload.size();
    if (!is_plain_fp32(frame) || bytes == 0 || bytes % sizeof(float) != 0) {
      fail(ErrorCode::kDataLoss,
           "scalers of tensor {} must come as a plain fp32 frame with at least one", frame.tensor);
    }
    parts.emplace_back(frame.tensor, frame.part);
    for (std::size_t at = 0; at < bytes; at += sizeof(float)) {
      float scaler;
      std::memcpy(&scaler, frame.payload.data() + at, sizeof(scaler));
      if (is_scaler(scaler)) continue;
      fail(ErrorCode::kDataLoss, "scaler {} of tensor {} is negative or not a number",
           at / sizeof(float), frame.tensor);
    }
  }
  std::ranges::sort(parts);
  const auto twice = std::ranges::adjacent_find(parts);
  if (twice == parts.end()) return;
  fail(ErrorCode::kDataLoss, "scalers of part {} of tensor {} come twice", twice->second,
       twice->first);
}

bool holds_one_frame(MessageKind kind) {
  return is_file_or_state(kind) || kind == MessageKind::kDone || kind == MessageKind::kChecksum ||
         kind == MessageKind::kFiniteness;
}

// Which part of its array a file's or a state's frame holds.
void check_part_of_file(const Frame& frame) {
  const std::uint64_t parts = frame.description->parts();
  if (frame.part < parts) return;
  fail(ErrorCode::kDataLoss, "it holds part {} of an array that has {}, counted from 0", frame.part,
       parts);
}

// Checks the frame of a message that holds one at most; null where it has none.
void check_only_frame(const MessageHeader& header, const Frame* frame) {
  const bool described = frame != nullptr && frame->description;
  if (header.kind == MessageKind::kFile &&
      (!described || header.sender != 0 || header.step != 0 || frame->tensor != 0)) {
    fail(ErrorCode::kDataLoss,
         "a file must hold one described frame for tensor 0, from sender 0 and step 0");
  }
  if (header.kind == MessageKind::kState &&
      (!described || frame->codec != CodecId::kFp32 ||
       frame->description->element_type != ElementType::kFloat32)) {
    fail(ErrorCode::kDataLoss, "a state must hold one described fp32 frame of f32 values");
  }
  if (is_file_or_state(header.kind)) check_part_of_file(*frame);
  if (header.kind == MessageKind::kDone && frame != nullptr) {
    fail(ErrorCode::kDataLoss, "a done message must hold no frames");
  }
  const bool plain = frame != nullptr && frame->part == 0 && is_plain_fp32(*frame);
  if (header.kind == MessageKind::kChecksum &&
      (!plain || frame->tensor != 0 || frame->payload.size() != sizeof(std::uint64_t))) {
    fail(ErrorCode::kDataLoss, "a checksum message must hold one plain frame of 8 bytes");
  }
  if (header.kind == MessageKind::kFiniteness &&
      (!plain || frame->payload.empty() || frame->payload.size() % sizeof(std::uint32_t) != 0)) {
    fail(ErrorCode::kDataLoss, "a finiteness message must hold one plain frame of 32-bit words");
  }
}

void check_kind(const Message& message) {
  const MessageKind kind = message.header.kind;
  if (kind == MessageKind::kOffer || kind == MessageKind::kAgreement) {
    return check_scalers(message.frames);
  }
  if (!holds_one_frame(kind)) return;
  if (message.frames.empty()) return check_only_frame(message.header, nullptr);
  const Frame frame = message.frames.front();
  check_only_frame(message.header, &frame);
}

// Parts of a tensor that is cut are for readers who do not know the job.
void check_cut(const Frame& frame, MessageKind kind, std::uint8_t version) {
  const bool cut = frame.description && frame.description->part_values > 0;
  if (cut && !is_file_or_state(kind)) {
    fail(ErrorCode::kDataLoss,
         "a frame of tensor {} says how it is cut, which only files and states may", frame.tensor);
  }
  if (version == kFirstVersion && (cut || frame.part != 0)) {
    fail(ErrorCode::kDataLoss, "a frame names a part, which version 1 does not know");
  }
}

// Reads so many frames, which must be all that `reader` has.
void check_frames(ByteReader& reader, std::size_t count, MessageKind kind, std::uint8_t version) {
  Frame before;
  for (std::size_t i = 0; i < count; ++i) {
    Frame frame = read_frame(reader);
    check_cut(frame, kind, version);
    if (i > 0) check_contributors_place(kind, i - 1, before, &frame);
    before = std::move(frame);
  }
  if (count > 0) check_contributors_place(kind, count - 1, before, nullptr);
  if (reader.left() > 0) {
    fail(ErrorCode::kDataLoss, "{} bytes follow its last frame, at offset {}", reader.left(),
         reader.offset());
  }
}

void check_version(std::uint8_t version, std::uint8_t kind) {
  if (version == kMessageVersion) return;
  const bool kept = kind == static_cast<std::uint8_t>(MessageKind::kFile) ||
                    kind == static_cast<std::uint8_t>(MessageKind::kState);
  if (version == kFirstVersion && kept) return;
  if (version == kFirstVersion) {
    fail(ErrorCode::kDataLoss,
         "it is of format version 1, of which this reader, of version {}, knows only files and "
         "states; run the same release of tersewire on every node",
         kMessageVersion);
  }
  fail(ErrorCode::kDataLoss,
       "it is of format version {}, which this reader, of version {}, does not know; use the "
       "release of tersewire that made it",
       version, kMessageVersion);
}

MessageHeader read_header(ByteReader& reader, ByteView bytes, bool own) {
  MessageHeader header;
  const auto magic = reader.take(sizeof(kMessageMagic), "magic");
  if (std::memcmp(magic.data(), kMessageMagic, sizeof(kMessageMagic)) != 0) {
    fail(
        ErrorCode::kDataLoss,
        "it does not begin with 'TW', so it is not a tersewire message; pass what an encoder made");
  }
  const auto version = reader.read<std::uint8_t>("version");
  const auto kind = reader.read<std::uint8_t>("kind");
  check_version(version, kind);
  header.sender = reader.read<std::uint32_t>("sender");
  header.step = reader.read<std::uint64_t>("step");
  reader.read<std::uint32_t>("count");
  const auto said = reader.read<std::uint64_t>("checksum");
  if (!own && said != checksum(bytes)) {
    fail(ErrorCode::kDataLoss, "its checksum does not match its {} bytes: it was altered or cut",
         bytes.size());
  }
  if (kind < static_cast<std::uint8_t>(MessageKind::kPush) ||
      kind > static_cast<std::uint8_t>(MessageKind::kFiniteness)) {
    fail(ErrorCode::kDataLoss, "unknown message kind {}", kind);
  }
  header.kind = static_cast<MessageKind>(kind);
  return header;
}

}  // namespace

void MessageWriter::clear(const MessageHeader& header) {
  bytes_.clear();
  bytes_.reserve(room_);
  count_ = 0;
  append(bytes_, kMessageMagic, sizeof(kMessageMagic));
  append_value(bytes_, kMessageVersion);
  append_value(bytes_, static_cast<std::uint8_t>(header.kind));
  append_value(bytes_, header.sender);
  append_value(bytes_, header.step);
  append_value(bytes_, std::uint32_t{0});
  append_value(bytes_, std::uint64_t{0});
}

void MessageWriter::add(const Frame& frame) {
  append_frame(bytes_, frame);
  ++count_;
}

Frame MessageWriter::add_encoded(std::uint32_t tensor, std::uint32_t part,
                                 const std::function<Encoded(Bytes&)>& encode) {
  const std::size_t start = bytes_.size();
  // Most often a head is as long as the last one; the payload moves where it is not.
  const std::size_t before = start + head_.size();
  Frame frame{.tensor = tensor, .part = part, .description = std::nullopt, .payload = {}};
  try {
    bytes_.resize(before);
    const Encoded encoded = encode(bytes_);
    frame.codec = encoded.codec;
    frame.not_finite = encoded.not_finite;
    frame.payload = ByteView(bytes_).subspan(before);
    head_.clear();
    append_frame_head(head_, frame);
    const std::size_t elsewhere = start + head_.size();
    const std::size_t payload_bytes = frame.payload.size();
    if (elsewhere != before) {
      bytes_.resize(std::max(before, elsewhere) + payload_bytes);
      std::memmove(bytes_.data() + elsewhere, bytes_.data() + before, payload_bytes);
      bytes_.resize(elsewhere + payload_bytes);
    }
    std::ranges::copy(head_, bytes_.begin() + static_cast<std::ptrdiff_t>(start));
    frame.payload = ByteView(bytes_).subspan(elsewhere);
  } catch (...) {
    bytes_.resize(start);
    throw;
  }
  ++count_;
  return frame;
}

void MessageWriter::write_count() {
  std::memcpy(bytes_.data() + kCountOffset, &count_, sizeof(count_));
}

ByteView MessageWriter::finish() {
  write_count();
  const std::uint64_t sum = checksum(bytes_);
  std::memcpy(bytes_.data() + kChecksumOffset, &sum, sizeof(sum));
  return bytes_;
}

Bytes MessageWriter::take(bool own) {
  if (own) {
    write_count();
  } else {
    finish();
  }
  room_ = bytes_.capacity();
  if (room_ <= 2 * bytes_.size()) return std::move(bytes_);
  // Encoders ask for their worst case, which would be held for as long as the message is.
  Bytes exact;
  append(exact, bytes_.data(), bytes_.size());
  bytes_ = Bytes();
  return exact;
}

Message parse_message(ByteView bytes, bool own) {
  if (bytes.size() < kMessageOverheadBytes) {
    fail(ErrorCode::kDataLoss, "it has {} bytes, and the shortest message has {}", bytes.size(),
         kMessageOverheadBytes);
  }
  Message message;
  ByteReader reader(bytes);
  message.header = read_header(reader, bytes, own);
  std::uint32_t count;
  std::memcpy(&count, bytes.data() + kCountOffset, sizeof(count));
  if (count > reader.left() / kSmallestFrameBytes) {
    fail(ErrorCode::kDataLoss, "it promises {} frames in {} bytes", count, reader.left());
  }
  const MessageKind kind = message.header.kind;
  if (count > 1 && holds_one_frame(kind)) {
    fail(ErrorCode::kDataLoss, "it promises {} frames, and its kind holds one at most", count);
  }
  message.frames = Frames(bytes.subspan(reader.offset()), count);
  check_frames(reader, count, kind, static_cast<std::uint8_t>(bytes[kVersionOffset]));
  check_kind(message);
  return message;
}

std::string_view to_string(MessageKind kind) {
  const auto number = static_cast<std::size_t>(kind);
  if (number == 0 || number > kKindNames.size()) {
    fail(ErrorCode::kInvalidArgument, "there is no message kind of number {}", number);
  }
  return kKindNames[number - 1];
}

MessageKind message_kind_named(std::string_view name) {
  const auto* found = std::ranges::find(kKindNames, name);
  if (found != kKindNames.end()) {
    return static_cast<MessageKind>(found - kKindNames.begin() + 1);
  }
  fail(ErrorCode::kInvalidArgument, "unknown kind of message '{}'; use one of {}", name,
       fmt::join(kKindNames, ", "));
}

MessageKind message_kind(ByteView bytes) noexcept {
  if (bytes.size() <= kKindOffset) return MessageKind::kPush;
  return static_cast<MessageKind>(bytes[kKindOffset]);
}

Bytes checksum_message(std::uint32_t sender, std::uint64_t step, std::uint64_t checksum) {
  MessageWriter writer({.kind = MessageKind::kChecksum, .sender = sender, .step = step});
  Bytes payload;
  append_value(payload, checksum);
  writer.add({.tensor = 0,
              .codec = CodecId::kFp32,
              .not_finite = false,
              .description = std::nullopt,
              .payload = payload});
  return writer.take();
}

std::uint64_t checksum_in(const Message& message) {
  std::uint64_t checksum;
  std::memcpy(&checksum, message.frames.front().payload.data(), sizeof(checksum));
  return checksum;
}

std::uint64_t tensor_checksum(std::uint32_t tensor, std::span<const float> values) noexcept {
  return XXH64(values.data(), values.size_bytes(), tensor);
}

Bytes finiteness_message(std::uint32_t sender, std::uint64_t step, std::uint32_t bucket,
                         const std::vector<bool>& not_finite) {
  std::vector<std::uint32_t> words((not_finite.size() + kWordBits - 1) / kWordBits, 0);
  for (std::size_t i = 0; i < not_finite.size(); ++i) {
    if (not_finite[i]) words[i / kWordBits] |= std::uint32_t{1} << (i % kWordBits);
  }
  MessageWriter writer({.kind = MessageKind::kFiniteness, .sender = sender, .step = step});
  writer.add({.tensor = bucket,
              .codec = CodecId::kFp32,
              .not_finite = false,
              .description = std::nullopt,
              .payload = std::as_bytes(std::span(words))});
  return writer.take();
}

std::vector<bool> finiteness_in(const Message& message, std::size_t parts) {
  const ByteView payload = message.frames.front().payload;
  std::vector<std::uint32_t> words((parts + kWordBits - 1) / kWordBits);
  if (payload.size() != words.size() * sizeof(std::uint32_t)) {
    fail(ErrorCode::kDataLoss, "{} bytes do not say which of {} parts are finite", payload.size(),
         parts);
  }
  std::memcpy(words.data(), payload.data(), payload.size());
  std::vector<bool> not_finite(parts);
  for (std::size_t i = 0; i < words.size() * kWordBits; ++i) {
    if ((words[i / kWordBits] >> (i % kWordBits) & 1) == 0) continue;
    if (i >= parts) {
      fail(ErrorCode::kDataLoss, "part {} of a bucket that has {} is said not to be finite", i,
           parts);
    }
    not_finite[i] = true;
  }
  return not_finite;
}

void check_contributors(ByteView bitmap, std::size_t workers) {
  if (bitmap.size() != (workers + 7) / 8) {
    fail(ErrorCode::kDataLoss, "a contributors bitmap of {} bytes does not fit {} workers",
         bitmap.size(), workers);
  }
  std::size_t named = 0;
  for (std::size_t bit = 0; bit < 8 * bitmap.size(); ++bit) {
    if ((bitmap[bit / 8] & std::byte{1} << (bit % 8)) == std::byte{0}) continue;
    if (bit >= workers) {
      fail(ErrorCode::kDataLoss, "a contributors bitmap names worker {} of {}", bit, workers);
    }
    ++named;
  }
  if (named == workers) {
    fail(ErrorCode::kDataLoss,
         "a contributors bitmap leaves no worker out, so it must not be sent");
  }
}

}  // namespace tersewire
