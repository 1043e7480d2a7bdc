// The fields that programs send to servers of these APIs, and the effect of each. The objects of requests have their
// own schemas; this table has the names that other servers and clients use beside them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/json.h"

namespace redline::server {

/// Objects of requests, as flags.
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
  kHonoured,  ///< the schema of each place has it
  kMapped,    ///< read as a field of the schema
  kMembers,   ///< an object, whose members are read as fields of the object that holds it
  kIgnored,   ///< no effect, and named in the header X-Redline-Ignored
  kRefused,   ///< it would change the answer: 400, unless its value asks for nothing (see asks_for_nothing)
};

/// Fields that have the same effect.
struct KnownField {
  std::string_view names;    ///< separated by spaces
  std::string_view senders;  ///< whose field it is
  unsigned places = 0;
  FieldUse use = FieldUse::kIgnored;
  /// kMapped: the field that it becomes. kRefused: the end of a sentence "NAME ...". Otherwise a reason.
  std::string_view note;
  /// kMapped: sets in `instead` the fields that the object has then, and lists parts of the value without effect.
  /// Returns an empty text, or the end of the sentence "NAME must be ...". Null: the value gets the name `note`.
  std::string_view (*convert)(const Json& value, Json& instead, std::vector<std::string>& without_effect) = nullptr;
};

std::span<const KnownField> known_fields();
/// The row of a field of the object whose schema has this name (Schema::name); null: the table has none for it.
const KnownField* find_known_field(std::string_view schema, std::string_view name);
/// True if a row has this name in any place.
bool is_known_anywhere(std::string_view name);
/// All names of the rows of a schema.
const std::vector<std::string_view>& known_names(std::string_view schema);
/// The places of a schema; 0: none.
unsigned places_of(std::string_view schema);

/// Null, false, "", "none", [] and {}: a field of that value demands nothing.
bool asks_for_nothing(const Json& value);

/// The known name that `name` is a typing error of, or "". One edit is a typing error in four characters of the longer
/// name, and two at most: with more, any short name is near some other ("n" and "id", "mode" and "role"). The
/// distance ignores case.
std::string_view misspelled_name(std::string_view name, std::span<const std::string_view> known);

/// docs/fields.md.
std::string known_fields_markdown();

}  // namespace redline::server
