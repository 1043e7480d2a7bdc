// Base64 (RFC 4648).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace redline {

std::string to_base64(std::string_view bytes);
/// Decodes Base64. Accepts line breaks and missing padding. nullopt: the text has another character or an impossible
/// length.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace redline
