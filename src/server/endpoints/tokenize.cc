// POST /tokenize and /detokenize, in the shapes of vLLM ("prompt", "text") and of llama.cpp ("content").
#include "server/app.h"
#include "server/generation.h"

namespace redline::server {
namespace {

constexpr double kTokenizeMaxToken = 2147483647;

const Field tokenize_token_item{"", kInteger, "", {.min = 0, .max = kTokenizeMaxToken}};
const Field tokenize_any_item{"", kAny, ""};
const Field tokenize_string_item{"", kString, ""};

const Schema tokenize_schema{
    "TokenizeRequest",
    {{"model", kString, "a name from /v1/models", {.max_length = 1000}},
     {"prompt", kString, "the text, in vLLM's shape"},
     {"content", kString, "the text, in llama.cpp's shape"},
     {"add_special_tokens", kBoolean, "begin with the token that begins a text; default: true for prompt"},
     {"add_special", kBoolean, "begin with the token that begins a text, in llama.cpp's shape; default: false"},
     {"parse_special", kBoolean, "names of special tokens in the text become those tokens; default: true"},
     {"with_pieces", kBoolean, "llama.cpp's shape: return {id, piece} for each token"},
     {"return_token_strs", kBoolean, "vLLM's shape: return the text of each token"}}};
const Schema tokens_schema{
    "TokenizeAnswer",
    {{"tokens", kArray, "ids; with_pieces: objects {id, piece}", {.required = true, .items = &tokenize_any_item}},
     {"count", kInteger, "number of tokens"},
     {"max_model_len", kInteger, "tokens of the context"},
     {"token_strs", kArray, "the text of each token", {.items = &tokenize_string_item}}}};
const Schema detokenize_schema{
    "DetokenizeRequest",
    {{"model", kString, "a name from /v1/models", {.max_length = 1000}},
     {"tokens", kArray, "ids", {.required = true, .max_items = 1 << 20, .items = &tokenize_token_item}}}};
const Schema tokenize_text_schema{"DetokenizeAnswer",
                                  {{"prompt", kString, "the text, in vLLM's shape", {.required = true}},
                                   {"content", kString, "the text, in llama.cpp's shape", {.required = true}}}};

AnswerOr post_tokenize(Call& call) {
  const Json& body = call.body;
  SERVER_ASSIGN(const ModelChoice choice, call.app.models().find(body.value("model", std::string())));
  const bool is_llama_cpp = body.contains("content");
  if (is_llama_cpp == body.contains("prompt"))
    return bad_request("prompt", "give either prompt (vLLM's shape) or content (llama.cpp's)",
                       "missing_required_parameter");
  const bool adds_special = body.value("add_special_tokens", body.value("add_special", !is_llama_cpp));
  const TextEngine& engine = choice.model->engine();
  const char* const name = is_llama_cpp ? "content" : "prompt";
  const auto& text = body[name].get_ref<const std::string&>();
  if (auto error = check_text_size(engine.info(), text.size(), name)) return *error;
  EncodeLimits limits = encode_limits(engine.info());
  limits.max_tokens = INT64_MAX;  // texts that exceed the context are counted too
  const auto tokens = engine.encode(text, body.value("parse_special", true), adds_special, limits);
  if (!tokens.ok()) return encode_error(tokens.status(), engine.info(), text.size(), name);
  Json pieces = Json::array();
  const bool with_pieces = is_llama_cpp && body.value("with_pieces", false);
  const bool with_texts = !is_llama_cpp && body.value("return_token_strs", false);
  if (with_pieces || with_texts) {
    for (const int32_t id : tokens.value()) {
      const auto text = engine.decode(std::span(&id, 1), true);
      if (!text.ok()) return api_error(text.status());
      pieces.push_back(with_pieces ? Json{{"id", id}, {"piece", text.value()}} : Json(text.value()));
    }
  }
  if (with_pieces) return json_answer({{"tokens", std::move(pieces)}});
  Json json = {{"tokens", tokens.value()}};
  if (!is_llama_cpp) {
    json["count"] = tokens.value().size();
    json["max_model_len"] = choice.model->info().context;
  }
  if (with_texts) json["token_strs"] = std::move(pieces);
  return json_answer(json);
}

AnswerOr post_detokenize(Call& call) {
  SERVER_ASSIGN(const ModelChoice choice, call.app.models().find(call.body.value("model", std::string())));
  const auto tokens = call.body["tokens"].get<std::vector<int32_t>>();
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] >= choice.model->info().vocab_size)
      return bad_request(
          fmt::format("tokens[{}]", i),
          fmt::format("token {} is outside the vocabulary of {}", tokens[i], choice.model->info().vocab_size),
          "invalid_value");
  const auto text = choice.model->engine().decode(tokens, true);
  if (!text.ok()) return api_error(text.status(), "tokens");
  return json_answer({{"prompt", text.value()}, {"content", text.value()}});
}

}  // namespace

std::vector<Endpoint> tokenize_endpoints() {
  return {{"POST",
           "/tokenize",
           "tokens",
           "text to token ids",
           {{200, "the tokens", &tokens_schema}},
           post_tokenize,
           {.request = &tokenize_schema, .needs_models = true, .error_statuses = {404}}},
          {"POST",
           "/detokenize",
           "tokens",
           "token ids to text",
           {{200, "the text", &tokenize_text_schema}},
           post_detokenize,
           {.request = &detokenize_schema, .needs_models = true, .error_statuses = {404}}}};
}

}  // namespace redline::server
