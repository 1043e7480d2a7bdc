// The fields of every --json: one table, from which docs/json.md is made and against which the output is tested.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace redline::cli {

struct JsonField {
  /// Ends in "?" if it may be missing.
  std::string_view name;
  /// "string", "integer", "number", "boolean", "any", the name of a record, "list of T", "map of T" (any keys), "T or
  /// null".
  std::string_view type;
  std::string_view meaning;
};

struct JsonRecord {
  std::string_view name;     ///< of a part that others contain; of a document, the command line
  std::string_view command;  ///< of a document: the command that prints it; "": a part
  std::string_view about;
  std::vector<JsonField> fields;
};

/// Documents in the order of the commands, then the parts.
const std::vector<JsonRecord>& json_records();
/// docs/json.md.
std::string json_markdown();

}  // namespace redline::cli
