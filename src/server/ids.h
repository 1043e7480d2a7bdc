// Names that the server gives to what it makes: answers, items, events.
#pragma once

#include <string>

namespace redline::server {

/// Returns the prefix, such as "cmpl-", and 24 hexadecimal digits.
std::string new_id(const char* prefix);

}  // namespace redline::server
