// The table of fields that programs send to servers of these APIs, and the effect of each. Schemas describe the fields
// that this server documents; this table adds the names that other servers and clients use.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/json.h"

namespace redline::server {

/// Request objects in which a field may occur, as flags.
enum FieldPlace : unsigned {
  kInChat = 1,                ///< /v1/chat/completions, /apply-template
  kInCompletion = 2,          ///< /v1/completions
  kInResponse = 4,            ///< /v1/responses
  kInAnthropic = 8,           ///< /v1/messages
  kInOllama = 16,             ///< /api/chat, /api/generate
  kInOllamaOptions = 32,      ///< `options` of these
  kInEmbedding = 64,          ///< /v1/embeddings, /api/embed, /api/embeddings
  kInRerank = 128,            ///< /v1/rerank
  kInMessage = 256,           ///< a message of a chat, of OpenAI's or Ollama's API
  kInPart = 512,              ///< a part of such a message
  kInTool = 1024,             ///< a tool and its function
  kInLlamaCompletion = 2048,  ///< /completion and /infill of llama.cpp's server
  kInOpenAi = kInChat | kInCompletion,
  kInAnyText = kInChat | kInCompletion | kInResponse | kInAnthropic | kInOllama | kInLlamaCompletion,
};

enum class FieldUse : uint8_t {
  kHonoured,  ///< in the schema of each place
  kMapped,    ///< read as another field of the schema
  kMembers,   ///< an object whose members are read as fields of the object that holds it
  kIgnored,   ///< without effect, and listed in the header X-Redline-Ignored
  /// Refused with 400, because it would change the answer, unless its value has no effect (see asks_for_nothing).
  kRefused,
};

/// A row: fields that have the same effect.
struct KnownField {
  std::string_view names;    ///< separated by spaces
  std::string_view senders;  ///< programs or APIs that define it
  unsigned places = 0;
  FieldUse use = FieldUse::kIgnored;
  /// kMapped: the field that it is read as. kRefused: the end of a sentence "NAME ...". Otherwise a reason.
  std::string_view note;
  /// kMapped: sets in `instead` the resulting fields of the object, and lists parts of the value without effect.
  /// Returns "", or the end of the sentence "NAME must be ...". Null: the value moves to the field `note`.
  std::string_view (*convert)(const Json& value, Json& instead, std::vector<std::string>& without_effect) = nullptr;
};

std::span<const KnownField> known_fields();
/// Returns the row of a field in the object whose schema has this name (Schema::name); null if the table has none.
const KnownField* find_known_field(std::string_view schema, std::string_view name);
/// Returns true if a row has this name in any place.
bool is_known_anywhere(std::string_view name);
/// Returns all names that the table has for a schema.
const std::vector<std::string_view>& known_names(std::string_view schema);
/// Returns the places of a schema; 0: none.
unsigned places_of(std::string_view schema);

/// Returns true for null, false, "", "none", [] and {}: a field with such a value has no effect.
bool asks_for_nothing(const Json& value);

/// Returns the known name that `name` is probably a misspelling of, or "". Allows one edit per four characters of the
/// longer name, and two at most: with more, any short name is near some other ("n" and "id", "mode" and "role").
/// Ignores case.
std::string_view misspelled_name(std::string_view name, std::span<const std::string_view> known);

/// Returns the text of docs/fields.md.
std::string known_fields_markdown();

}  // namespace redline::server
