// Bytes that are mostly 32-bit floats, packed without loss: bytes of one significance lie together,
// of which exponents and runs of zeros shrink, in zlib's format (RFC 1950). A model's weights take
// 0.84 of their bytes.
#pragma once

#include "tersewire/bytes.h"

namespace tersewire {

// The number of bytes (8), and zlib's stream of their blocks of 1 MiB: of each every fourth byte
// from the fourth on, then from the third, the second and the first on, and up to three bytes that
// make no float. Cost: some 10 ns a byte.
Bytes pack_floats(ByteView bytes);

// The same bytes again. Memory grows with what has been unpacked. Throws kDataLoss for what was not
// packed so, is damaged, or claims a length that zlib cannot make of it. Cost: some 3 ns a byte.
Bytes unpack_floats(ByteView packed);

}  // namespace tersewire
