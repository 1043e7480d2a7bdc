// JSON of reports, whose keys keep the order in which they are written.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace redline::lab {

using Json = nlohmann::ordered_json;

/// Returns JSON on one line. Bytes that are not UTF-8 become U+FFFD.
std::string to_line(const Json& json);

}  // namespace redline::lab
