// Converts JSON to values and back; values are written like Python's json module does.
#pragma once

#include <string>
#include <string_view>

#include "chat/jinja/evaluation.h"

namespace redline::jinja {

/// Parses JSON. Object members keep their order. `what` names the text in errors.
Result<Value> parse_json_value(Evaluation& e, std::string_view text, std::string_view what);

struct JsonStyle {
  bool ensure_ascii = false, sort_keys = false;
  bool is_indented = false;
  std::string indent;
  std::string item_separator = ", ", key_separator = ": ";
};
void append_json(Evaluation& e, std::string& out, Value value, const JsonStyle& style);

}  // namespace redline::jinja
