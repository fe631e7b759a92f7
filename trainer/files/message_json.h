// What a message holds, as `tersewire inspect --json` and tersewire.inspect() have it: a .tw file,
// a state, or what an application captured.
#pragma once

#include <nlohmann/json.hpp>

#include "tersewire/byte_source.h"
#include "tersewire/bytes.h"

namespace tersewire::trainer {

// Verifies header, checksum and every payload whose number of values is known. Throws an Error
// where the bytes are malformed or damaged.
nlohmann::ordered_json message_json(ByteView bytes);

// The same of a .tw file or a state, read a part at a time. Of each part its frame is kept where
// `with_frames`.
nlohmann::ordered_json tw_file_json(ByteSource& source, bool with_frames);

}  // namespace tersewire::trainer
