// The fields of every --json: one table, from which docs/json.md is made and against which the output is tested.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace redline::cli {

struct JsonField {
  /// Name of the field. Ends in "?" if the field may be missing.
  std::string_view name;
  /// Type of the field: "string", "integer", "number", "boolean", "any", the name of a record, "list of T", "map of T"
  /// (any keys), "T or null".
  std::string_view type;
  std::string_view meaning;
};

struct JsonRecord {
  std::string_view name;     ///< name of a part; for a document its command line
  std::string_view command;  ///< command that prints the document; "": this is a part
  std::string_view about;
  std::vector<JsonField> fields;
};

/// Returns the documents in the order of the commands, then the parts.
const std::vector<JsonRecord>& json_records();
/// Returns the text of docs/json.md.
std::string json_markdown();

}  // namespace redline::cli
