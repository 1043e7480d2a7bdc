// JSON results of rarely used calls.
#pragma once

#include <nlohmann/json.hpp>

#include "capi/boundary.h"
#include "redline/image.h"

namespace redline::capi {

/// JSON whose members keep the order in which they are added.
using Json = nlohmann::ordered_json;

/// Gives JSON text to the caller. Bytes that are not valid UTF-8 become replacement characters.
inline Status give_json(const Json& json, char** out) {
  return give_text(json.dump(-1, ' ', false, Json::error_handler_t::replace), out, nullptr);
}

inline Json memory_json(const ImageEngine::MemoryReport& m) {
  return {{"packed_weights", m.packed_weights}, {"arena", m.arena}, {"arena_touched", m.arena_touched}};
}

}  // namespace redline::capi
