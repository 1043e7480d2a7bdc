// Validates any JSON as an object of an API's requests (the first byte chooses the schema): field names of other
// programs, and the fields of constraints and of thinking.
#include "fuzz_input.h"
#include "server/constraint_fields.h"
#include "server/thinking_fields.h"

using namespace redline;
using namespace redline::server;

namespace {

constexpr const char* kNames[] = {
    "ChatRequest",      "CompletionRequest", "ResponseRequest",        "AnthropicRequest", "OllamaOptions",
    "EmbeddingRequest", "RerankRequest",     "LlamaCompletionRequest", "ChatMessage",      "Tool"};

/// Returns a schema with one of the names, which select rows of known_fields().
const Schema& schema_of(size_t number) {
  // Fields that other names are read as (FieldUse::kMapped). The server's own, such as sampling_fields(), need sources
  // that the fuzz targets do not link.
  static const std::vector<Field> kNumbers = {{"max_tokens", kInteger, "", {.min = 0, .max = 1e6}},
                                              {"temperature", kNumber, "", {.min = 0, .max = 2}},
                                              {"repetition_penalty", kNumber, ""},
                                              {"stop", kString | kArray, "", {.max_items = 4}},
                                              {"logprobs", kInteger | kBoolean, ""}};
  static const std::vector<Schema> kSchemas = [] {
    std::vector<Schema> all;
    for (const char* name : kNames) {
      Schema schema;
      schema.name = name;
      schema.fields = joined(joined(constraint_fields(), thinking_fields()), kNumbers);
      all.push_back(std::move(schema));
    }
    return all;
  }();
  return kSchemas[number % kSchemas.size()];
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  auto body = parse_json(fuzz_text(data + 1, size - 1));
  if (!body.ok() || !body->is_object()) return 0;
  std::vector<std::string> ignored;
  if (const auto error = validate(schema_of(data[0]), *body, ignored)) {
    require(!error->message.empty() && error->status >= 400 && !error_body(*error, ErrorShape::kOpenAi).empty());
    return 0;
  }
  require(ignored.size() <= 65);
  if (auto constraint = constraint_of(*body); !constraint.ok()) require(!constraint.error().message.empty());
  (void)thinking_of(*body);
  return 0;
}
