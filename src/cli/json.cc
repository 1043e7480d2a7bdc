#include "cli/json.h"

namespace redline::cli {

std::string to_text(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

Status print_json(const Json& json, Terminal& terminal, int indent) {
  terminal.write(to_text(json, indent) + "\n");
  return {};
}

}  // namespace redline::cli
