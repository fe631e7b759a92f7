// Frames, read and written (spec/wire-format.md, "Frame").
#pragma once

#include <cstddef>

#include "byte_io.h"
#include "tersewire/message.h"

namespace tersewire {

// No frame has more bytes before its payload: varints of 5 bytes and 6, 32 dimensions, a byte each
// for codec, flags, element type and rank.
inline constexpr std::size_t kMaxFrameHeadBytes = 5 + 1 + 1 + 5 + (1 + 1 + 32 * 6 + 6) + 5;

// Reads all that comes before a payload into `frame`; returns the payload's length, which may be
// more than `reader` has left. Throws kDataLoss.
std::size_t read_frame_head(ByteReader& reader, Frame& frame);

// The same with the payload.
Frame read_frame(ByteReader& reader);

// Throws kInvalidArgument where a field exceeds what the format can hold; `out` is then as before.
void append_frame(Bytes& out, const Frame& frame);
// The same without the payload.
void append_frame_head(Bytes& out, const Frame& frame);

}  // namespace tersewire
