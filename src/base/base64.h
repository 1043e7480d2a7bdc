// Base64 (RFC 4648).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace redline {

std::string to_base64(std::string_view bytes);
/// Line breaks and missing padding are accepted. nullopt: another character, or a length that no bytes have.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace redline
