// What the parts of the GGUF reader share. Not for use outside formats/.
#pragma once

#include "formats/byte_reader.h"
#include "formats/gguf.h"

namespace redline {

/// Bytes of a scalar; 0 for strings and arrays.
uint64_t gguf_fixed_bytes(GgufType type);

/// Arrays of arrays of ... : none is known in real files, so a few levels are plenty.
inline constexpr int kMaxGgufArrayDepth = 4;

/// Reads and checks what follows the type number. `value.type` is set; fills element_type, count and payload.
Status read_gguf_payload(ByteReader& reader, GgufValue& value, int depth = 0);

/// One file by itself, even when it says that it is part of a split.
Result<GgufFile> parse_gguf_alone(std::shared_ptr<MappedFile> file);

}  // namespace redline
