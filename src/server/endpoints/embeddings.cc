// POST /v1/embeddings (OpenAI), and /api/embed and /api/embeddings of Ollama's API.
#include <chrono>

#include "base/ascii.h"
#include "base/base64.h"
#include "server/app.h"
#include "server/keep_alive.h"

namespace redline::server {
namespace {

constexpr double kMaxDimensions = 1 << 20;

const Field embeddings_any_item{"", kAny, ""};
const Field embedding_number_item{"", kNumber, ""};
const Schema embeddings_open_schema{"AnyObject", {}, true};

const Schema embeddings_schema{
    "EmbeddingRequest",
    {{"model", kString, "a name from /v1/models; may be left out if there is one for embeddings", {.max_length = 1000}},
     {"input",
      kString | kArray,
      "a text, a list of texts, a list of token ids, or a list of such lists; ids include the special tokens",
      {.required = true, .min_items = 1, .max_items = 1 << 20, .items = &embeddings_any_item}},
     {"encoding_format", kString, "default: float; base64: little-endian float32", {.choices = {"float", "base64"}}},
     {"dimensions", kInteger, "keep this many and normalize again", {.min = 1, .max = kMaxDimensions}},
     keep_alive_field(),
     {"truncate",
      kBoolean | kString,
      "cut texts that are too long, at their end; default: false, they are an error",
      {.choices = {"NONE", "END", "none", "end"}}},
     {"truncate_prompt_tokens",
      kInteger,
      "-1, or at least the tokens that the model reads: as truncate",
      {.min = -1, .max = kMaxJsonInteger}},
     {"input_type", kString, "kind of the texts, such as query or document", {.max_length = 1000}},
     {"task", kString, "kind of the texts, such as retrieval.query", {.max_length = 1000}},
     {"normalize", kBoolean, "default: as the model's files say"},
     {"prompt_name",
      kString,
      "one of the model's prompts, which goes before each text; default: the model's own",
      {.max_length = 1000}}}};
const Schema embedding_schema{
    "Embedding",
    {{"object", kString, "", {.required = true, .choices = {"embedding"}}},
     {"index", kInteger, "index of the input", {.required = true}},
     {"embedding", kArray | kString, "", {.required = true, .items = &embedding_number_item}}}};
const Field embedding_item{"", kObject, "", {.object = &embedding_schema}};
const Schema embeddings_usage_schema{
    "EmbeddingUsage",
    {{"prompt_tokens", kInteger, "", {.required = true}}, {"total_tokens", kInteger, "", {.required = true}}}};
const Schema embeddings_list_schema{"EmbeddingList",
                                    {{"object", kString, "", {.required = true, .choices = {"list"}}},
                                     {"data", kArray, "", {.required = true, .items = &embedding_item}},
                                     {"model", kString, "", {.required = true}},
                                     {"usage", kObject, "", {.required = true, .object = &embeddings_usage_schema}}}};

const std::vector<Field>& ollama_fields() {
  static const std::vector<Field> fields = {
      {"model", kString, "a name from /api/tags", {.required = true, .max_length = 1000}},
      {"options", kObject, "", {.object = &embeddings_open_schema, .is_ignored = true}},
      keep_alive_field()};
  return fields;
}
const Field embeddings_text_item{"", kString, ""};
const Schema embed_schema{
    "OllamaEmbedRequest",
    joined(ollama_fields(),
           {{"input",
             kString | kArray,
             "a text or a list of texts",
             {.required = true, .max_items = kMaxEmbeddingInputs, .items = &embeddings_text_item}},
            {"truncate", kBoolean, "cut texts that are too long; default: true, as in Ollama"},
            {"dimensions", kInteger, "keep this many and normalize again", {.min = 1, .max = kMaxDimensions}}})};
const Field vector_item{"", kArray, "", {.items = &embedding_number_item}};
const Schema embed_answer_schema{"OllamaEmbedAnswer",
                                 {{"model", kString, "", {.required = true}},
                                  {"embeddings", kArray, "", {.required = true, .items = &vector_item}},
                                  {"total_duration", kInteger, "nanoseconds"},
                                  {"load_duration", kInteger, "nanoseconds"},
                                  {"prompt_eval_count", kInteger, "tokens"}}};
const Schema old_embed_schema{"OllamaEmbeddingsRequest",
                              joined(ollama_fields(), {{"prompt", kString, "the text", {.required = true}}})};
const Schema old_embed_answer_schema{"OllamaEmbeddingsAnswer",
                                     {{"embedding", kArray, "", {.required = true, .items = &embedding_number_item}}}};

std::string base64_of(std::span<const float> values) {
  return to_base64({reinterpret_cast<const char*>(values.data()), values.size_bytes()});
}

int64_t sum_of(const std::vector<int64_t>& counts) {
  int64_t sum = 0;
  for (const int64_t n : counts) sum += n;
  return sum;
}

std::string list_body(const Embeddings& e, const std::string& model, bool is_base64) {
  std::string body = R"({"object":"list","data":[)";
  for (int64_t i = 0; i < e.count; ++i) {
    const auto row =
        std::span(e.values).subspan(static_cast<size_t>(i * e.dimensions), static_cast<size_t>(e.dimensions));
    body += fmt::format(R"({}{{"object":"embedding","index":{},"embedding":)", i > 0 ? "," : "", i);
    if (is_base64) body += '"' + base64_of(row) + '"';
    else append_numbers(body, row);
    body += '}';
  }
  const int64_t tokens = sum_of(e.tokens);
  return body + fmt::format(R"(],"model":{},"usage":{{"prompt_tokens":{},"total_tokens":{}}}}})", to_text(Json(model)),
                            tokens, tokens);
}

/// Finds the model of a request, and sets how long it stays loaded if the request says so.
Outcome<std::shared_ptr<EmbeddingModel>> find_for(Call& call, const std::string& name) {
  SERVER_ASSIGN(const std::optional<double> keep_alive, keep_alive_of(call));
  SERVER_ASSIGN(auto model, call.app.embeddings().find(name));
  if (keep_alive) call.app.residency().set_keep_alive(*model, *keep_alive);
  return model;
}

/// Returns the name of the model's prompt for texts of this kind, which other services name differently; "": there is
/// none.
std::string prompt_of_kind(const EmbeddingInfo& info, std::string kind) {
  for (char& c : kind) c = c == '_' ? '.' : ascii_lower(c);  // RETRIEVAL_QUERY, search_query, retrieval.query
  std::vector<std::string> wanted = {kind};
  if (kind.ends_with("query")) wanted.insert(wanted.end(), {"retrieval.query", "search_query", "query"});
  if (kind.ends_with("passage") || kind.ends_with("document"))
    wanted.insert(wanted.end(), {"retrieval.passage", "search_document", "document", "passage"});
  for (const std::string& name : wanted)
    for (const auto& [known, text] : info.prompts)
      if (known == name) return known;
  return "";
}

AnswerOr post_embeddings(Call& call) {
  const Json& body = call.body;
  SERVER_ASSIGN(const auto model, find_for(call, body.value("model", std::string())));
  EmbedRequest request;
  if (auto error = read_embedding_input(body["input"], "input", request)) return *error;
  request.dimensions = body.value("dimensions", int64_t{0});
  const EmbeddingInfo& info = model->engine().info();
  const Json truncate = body.value("truncate", Json(false));
  request.truncate = truncate == true || truncate == "END" || truncate == "end";
  if (const auto tokens = body.find("truncate_prompt_tokens"); tokens != body.end()) {
    if (*tokens >= 0 && *tokens < info.max_length)
      return bad_request("truncate_prompt_tokens",
                         fmt::format("truncate_prompt_tokens is {}; texts are cut at the {} tokens that the model "
                                     "reads: it must be -1, or at least that",
                                     tokens->get<int64_t>(), info.max_length),
                         "unsupported_value");
    request.truncate = true;
  }
  if (const auto named = body.find("prompt_name"); named != body.end()) request.prompt_name = named->get<std::string>();
  for (const char* field : {"input_type", "task"}) {
    if (!body.contains(field)) continue;
    const std::string name = request.prompt_name ? "" : prompt_of_kind(info, body[field]);
    if (name.empty()) call.ignored.emplace_back(field);
    else request.prompt_name = name;
  }
  if (const auto given = body.find("normalize"); given != body.end()) request.normalize = given->get<bool>();
  const bool is_base64 = body.value("encoding_format", "float") == "base64";
  return EmbeddingModel::embed(
      model, std::move(request),
      [is_base64,
       name = body.value("model", model->name())](const Result<Embeddings>& result) -> Outcome<EmbeddingModel::Result> {
        if (!result.ok()) return api_error(result.status(), "input");
        return EmbeddingModel::Result{list_body(result.value(), name, is_base64), sum_of(result.value().tokens)};
      },
      call.shape);
}

AnswerOr post_embed(Call& call) {
  const Json& body = call.body;
  const auto name = body["model"].get<std::string>();
  EmbedRequest request;
  if (const Json& input = body["input"]; !input.is_array() || !input.empty())
    if (auto error = read_embedding_input(input, "input", request)) return *error;
  SERVER_ASSIGN(const auto model, find_for(call, name));
  request.dimensions = body.value("dimensions", int64_t{0});
  request.truncate = body.value("truncate", true);
  const auto begin = std::chrono::steady_clock::now();
  return EmbeddingModel::embed(
      model, std::move(request),
      [name, begin](const Result<Embeddings>& result) -> Outcome<EmbeddingModel::Result> {
        if (!result.ok()) return api_error(result.status(), "input");
        const Embeddings& e = result.value();
        std::string text = fmt::format(R"({{"model":{},"embeddings":[)", to_text(Json(name)));
        for (int64_t i = 0; i < e.count; ++i) {
          if (i > 0) text += ',';
          append_numbers(text, std::span(e.values).subspan(static_cast<size_t>(i * e.dimensions),
                                                           static_cast<size_t>(e.dimensions)));
        }
        const auto elapsed = std::chrono::steady_clock::now() - begin;
        text += fmt::format(R"(],"total_duration":{},"load_duration":0,"prompt_eval_count":{}}})",
                            std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count(), sum_of(e.tokens));
        return EmbeddingModel::Result{std::move(text), sum_of(e.tokens)};
      },
      call.shape);
}

AnswerOr post_old_embed(Call& call) {
  SERVER_ASSIGN(const auto model, find_for(call, call.body["model"].get<std::string>()));
  EmbedRequest request;
  request.texts = {call.body["prompt"].get<std::string>()};
  request.truncate = true;  // Ollama truncates
  return EmbeddingModel::embed(
      model, std::move(request),
      [](const Result<Embeddings>& result) -> Outcome<EmbeddingModel::Result> {
        if (!result.ok()) return api_error(result.status(), "prompt");
        std::string text = R"({"embedding":)";
        append_numbers(text, result.value().values);
        return EmbeddingModel::Result{text + "}", sum_of(result.value().tokens)};
      },
      call.shape);
}

}  // namespace

std::vector<Endpoint> embeddings_endpoints() {
  const auto rules = [](const Schema* request, ErrorShape errors) {
    return EndpointRules{.request = request, .errors = errors, .needs_models = true, .error_statuses = {404}};
  };
  return {{"POST",
           "/v1/embeddings",
           "embeddings",
           "vectors of texts",
           {{200, "one for each text", &embeddings_list_schema}},
           post_embeddings,
           rules(&embeddings_schema, ErrorShape::kOpenAi)},
          {"POST",
           "/api/embed",
           "embeddings",
           "vectors of texts (Ollama's API)",
           {{200, "one for each text", &embed_answer_schema}},
           post_embed,
           rules(&embed_schema, ErrorShape::kOllama)},
          {"POST",
           "/api/embeddings",
           "embeddings",
           "the vector of a text (Ollama's older API)",
           {{200, "the vector", &old_embed_answer_schema}},
           post_old_embed,
           rules(&old_embed_schema, ErrorShape::kOllama)}};
}

}  // namespace redline::server
