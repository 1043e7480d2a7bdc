// Internals shared by the parts of the GGUF reader. Not for use outside formats/.
#pragma once

#include "formats/byte_reader.h"
#include "formats/gguf.h"

namespace redline {

/// Returns the bytes of a scalar type; 0 for strings and arrays.
uint64_t gguf_fixed_bytes(GgufType type);

/// Maximum depth of nested arrays. No known file nests arrays.
inline constexpr int kMaxGgufArrayDepth = 4;

/// Reads and checks the payload after the type number. Needs value.type; sets element_type, count and payload.
Status read_gguf_payload(ByteReader& reader, GgufValue& value, int depth = 0);

/// Parses one file on its own, even when it is part of a split.
Result<GgufFile> parse_gguf_alone(std::shared_ptr<MappedFile> file);

}  // namespace redline
