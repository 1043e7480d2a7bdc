#include <map>
#include <set>

#include "server/endpoint.h"

namespace redline::server {
namespace {

const Schema& error_schema(ErrorShape shape) {
  static const Schema openai_error{"OpenAiErrorDetail",
                                   {{"message", kString, "what was wrong", {.required = true}},
                                    {"type", kString, "the kind of error", {.required = true}},
                                    {"param", kString, "the field at fault", {.is_nullable = true}},
                                    {"code", kString, "a name for programs", {.is_nullable = true}}}};
  static const Schema openai{"OpenAiError", {{"error", kObject, "", {.required = true, .object = &openai_error}}}};
  static const Schema anthropic_error{"AnthropicErrorDetail",
                                      {{"type", kString, "the kind of error", {.required = true}},
                                       {"message", kString, "what was wrong", {.required = true}}}};
  static const Schema anthropic{"AnthropicError",
                                {{"type", kString, "", {.required = true, .choices = {"error"}}},
                                 {"error", kObject, "", {.required = true, .object = &anthropic_error}}}};
  static const Schema ollama{"OllamaError", {{"error", kString, "what was wrong", {.required = true}}}};
  switch (shape) {
    case ErrorShape::kAnthropic: return anthropic;
    case ErrorShape::kOllama: return ollama;
    case ErrorShape::kOpenAi: break;
  }
  return openai;
}

const char* error_text(int status) {
  switch (status) {
    case 400: return "the request is malformed or not supported; the error names the field";
    case 401: return "the API key is missing or wrong";
    case 403: return "request from a page of another origin";
    case 404: return "there is no such model, adapter or object";
    case 413: return "the body, or what it adds to, is too large";
    case 429: return "the queue is full, or the API key has made too many requests; see Retry-After";
    case 431: return "the head of the request is too large";
    case 500: return "the model cannot be loaded, or an image cannot be drawn";
    case 503: return "the models are being loaded, or the server is stopping";
    default: return "an error";
  }
}

Json operation_of(const Endpoint& endpoint, bool asks_for_key, Json& components) {
  Json operation = {{"tags", {endpoint.tag}}, {"summary", endpoint.summary}};
  Json parameters = Json::array();
  for (size_t begin = endpoint.path.find('{'); begin != std::string::npos; begin = endpoint.path.find('{', begin + 1)) {
    const size_t end = endpoint.path.find('}', begin);
    parameters.push_back({{"name", endpoint.path.substr(begin + 1, end - begin - 1)},
                          {"in", "path"},
                          {"required", true},
                          {"schema", {{"type", "string"}, {"minLength", 1}}}});
  }
  if (endpoint.rules.query) {
    Json schema = json_schema(*endpoint.rules.query, components, SchemaUse::kRequest);
    for (auto& [name, field] : schema["properties"].items())
      parameters.push_back({{"name", name}, {"in", "query"}, {"required", false}, {"schema", std::move(field)}});
  }
  if (!parameters.empty()) operation["parameters"] = std::move(parameters);
  if (endpoint.rules.request)
    operation["requestBody"] = {
        {"required", true},
        {"content",
         {{"application/json",
           {{"schema", schema_reference(*endpoint.rules.request, components, SchemaUse::kRequest)}}}}}};
  if (endpoint.rules.takes_form)
    operation["requestBody"]["content"]["multipart/form-data"] =
        operation["requestBody"]["content"]["application/json"];
  Json responses = Json::object();
  for (const DocumentedAnswer& answer : endpoint.answers) {
    Json& response = responses[std::to_string(answer.status)];
    response["description"] = answer.description;
    if (!answer.schema && answer.content_type == "application/json") continue;
    Json& content = response["content"][answer.content_type];
    content = Json::object();
    if (answer.schema) content["schema"] = schema_reference(*answer.schema, components, SchemaUse::kAnswer);
  }
  std::set<int> errors(endpoint.rules.error_statuses.begin(), endpoint.rules.error_statuses.end());
  errors.insert({400, 403, 413, 431});
  if (endpoint.rules.needs_key && asks_for_key) errors.insert({401, 429});
  if (endpoint.rules.needs_models) errors.insert({429, 500, 503});
  for (const int status : errors) {
    if (responses.contains(std::to_string(status))) continue;
    responses[std::to_string(status)] = {
        {"description", error_text(status)},
        {"content",
         {{"application/json",
           {{"schema", schema_reference(error_schema(endpoint.rules.errors), components, SchemaUse::kAnswer)}}}}}};
  }
  operation["responses"] = std::move(responses);
  if (!endpoint.rules.needs_key && asks_for_key) operation["security"] = Json::array();
  return operation;
}

}  // namespace

Json openapi(bool asks_for_key) {
  Json paths = Json::object(), components = Json::object();
  // requests first, because an object that occurs in requests and answers is described as in requests, which may have
  // other fields
  for (const Endpoint& endpoint : endpoints())
    if (endpoint.rules.request) schema_reference(*endpoint.rules.request, components, SchemaUse::kRequest);
  for (const Endpoint& endpoint : endpoints()) {
    std::string method = endpoint.method;
    for (char& c : method) c = static_cast<char>(c | 0x20);
    paths[endpoint.path][method] = operation_of(endpoint, asks_for_key, components);
  }
  Json document = {
      {"openapi", "3.1.0"},
      {"info",
       {{"title", "Redline"},
        {"version", "1"},
        {"description", "Language models behind the APIs of OpenAI, Anthropic, Ollama, llama.cpp and vLLM."}}},
      {"paths", std::move(paths)},
      {"components", {{"schemas", std::move(components)}}}};
  if (asks_for_key) {
    document["components"]["securitySchemes"] = {{"key", {{"type", "http"}, {"scheme", "bearer"}}}};
    document["security"] = Json::array({{{"key", Json::array()}}});
  }
  return document;
}

}  // namespace redline::server
