// Ollama's API: /api/chat, /api/generate, /api/tags, /api/show, /api/ps and /api/version. Streams are lines of JSON.
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "base/json_text.h"
#include "base/utc_time.h"
#include "server/app.h"
#include "server/chat.h"
#include "server/fill_in.h"
#include "server/keep_alive.h"
#include "server/sampling_fields.h"

namespace redline::server {
namespace {

const Schema ollama_open_schema{"AnyObject", {}, true};
const Field ollama_any_item{"", kAny, ""};
const Field ollama_string_item{"", kString, ""};
const Field ollama_stop_item{"", kString, "", {.max_length = 1000}};
/// Returns sampling_numbers() under Ollama's names.
std::vector<Field> ollama_sampling_fields() {
  std::vector<Field> fields = sampling_numbers();
  for (Field& field : fields)
    if (field.name == "repetition_penalty") field.name = "repeat_penalty";
  return fields;
}

const Schema options_schema{
    "OllamaOptions",
    joined(ollama_sampling_fields(),
           {{"seed", kInteger, "0: random", {.min = -kMaxJsonInteger, .max = kMaxJsonInteger}},
            {"num_predict",
             kInteger,
             "tokens to generate; -1, -2: what the context has room for",
             {.min = -2, .max = kMaxJsonInteger}},
            {"stop", kString | kArray, "", {.max_length = 1000, .max_items = 16, .items = &ollama_stop_item}},
            {"stop_in_reasoning", kBoolean, "true: stop strings also act on the thinking"},
            {"num_ctx", kInteger, "the context is set when the server starts", {.is_ignored = true}},
            {"num_keep", kInteger, "prompts are never cut", {.is_ignored = true}},
            {"num_batch", kInteger, "", {.is_ignored = true}},
            {"num_gpu", kInteger, "", {.is_ignored = true}},
            {"main_gpu", kInteger, "", {.is_ignored = true}},
            {"num_thread", kInteger, "", {.is_ignored = true}},
            {"num_parallel", kInteger, "", {.is_ignored = true}},
            {"use_mmap", kBoolean, "", {.is_ignored = true}},
            {"use_mlock", kBoolean, "", {.is_ignored = true}},
            {"numa", kBoolean, "", {.is_ignored = true}},
            {"f16_kv", kBoolean, "", {.is_ignored = true}},
            {"low_vram", kBoolean, "", {.is_ignored = true}},
            {"logits_all", kBoolean, "", {.is_ignored = true}},
            {"penalize_newline", kBoolean, "", {.is_ignored = true}},
            {"tfs_z", kNumber, "", {.only = {1}, .why = "is not supported"}}})};
const Schema function_schema{"OllamaFunctionCall",
                             {{"name", kString, "", {.required = true}},
                              {"index", kInteger, ""},
                              {"arguments", kObject, "", {.required = true, .object = &ollama_open_schema}}}};
const Schema call_schema{"OllamaToolCall",
                         {{"id", kString, ""},
                          {"type", kString, ""},
                          {"function", kObject, "", {.required = true, .object = &function_schema}}}};
const Field call_item{"", kObject, "", {.object = &call_schema}};
const Schema ollama_message_schema{
    "OllamaMessage",
    {{"role", kString, "", {.required = true, .choices = {"system", "user", "assistant", "tool"}}},
     {"content", kString, ""},
     {"thinking", kString, "reasoning of an assistant"},
     {"tool_name", kString, "name of the tool of a result"},
     {"tool_call_id", kString, "id of the call that a result answers"},
     {"tool_calls", kArray, "calls that an assistant made", {.items = &call_item}},
     {"images", kArray, "", {.only = {Json::array()}, .why = "is not supported: the model reads text"}}}};
const Field ollama_message_item{"", kObject, "", {.object = &ollama_message_schema}};
const Field ollama_tool_item{"", kObject, "", {.object = &chat_tool_schema}};

const std::vector<Field>& common_fields() {
  static const std::vector<Field> fields = {
      {"model", kString, "a name from /api/tags", {.required = true, .max_length = 1000}},
      {"stream", kBoolean, "send lines as the text is generated; default: true"},
      {"options", kObject, "", {.object = &options_schema}},
      {"think", kBoolean | kString, "a variable of the chat template"},
      keep_alive_field(),
      {"format", kString | kObject, "json, or a JSON Schema", {.object = &ollama_open_schema}},
      {"logprobs", kBoolean, "log probabilities of each token"},
      {"top_logprobs",
       kInteger,
       "also log probabilities of this many most likely tokens at each place",
       {.min = 0, .max = 20}},
      {"truncate", kBoolean, "prompts are never cut", {.is_ignored = true}},
      {"shift", kBoolean, "prompts are never cut", {.is_ignored = true}}};
  return fields;
}
const Schema chat_schema{
    "OllamaChatRequest",
    joined(common_fields(),
           {{"messages",
             kArray,
             "the conversation; empty: the model is only loaded",
             {.max_items = 10000, .items = &ollama_message_item}},
            {"tools", kArray, "functions that the model may call", {.max_items = 1000, .items = &ollama_tool_item}}})};
const Schema generate_schema{
    "OllamaGenerateRequest",
    joined(
        common_fields(),
        {{"prompt", kString, "a user's message, or with raw a text to continue; empty: the model is only loaded"},
         {"system", kString, "the system's message"},
         {"raw", kBoolean, "continue the prompt as it is, as is always done for models without a chat template"},
         {"suffix", kString, "the text that follows: the answer goes between, with models that have markers for that"},
         {"template", kString, "", {.only = {""}, .why = "is not supported: the model's own is used; see raw"}},
         {"context", kArray, "", {.only = {Json::array()}, .why = "is not supported; use /api/chat"}},
         {"images", kArray, "", {.only = {Json::array()}, .why = "is not supported: the model reads text"}}})};
const Schema show_schema{"OllamaShowRequest",
                         {{"model", kString, "a name from /api/tags", {.max_length = 1000}},
                          {"name", kString, "another name of model", {.max_length = 1000}},
                          {"verbose", kBoolean, "", {.is_ignored = true}}}};

const std::vector<Field>& timing_fields() {
  static const std::vector<Field> fields = {
      {"model", kString, "", {.required = true}},
      {"created_at", kString, "", {.required = true}},
      {"done", kBoolean, "", {.required = true}},
      {"done_reason", kString, "stop, length or load"},
      {"total_duration", kInteger, "nanoseconds"},
      {"load_duration", kInteger, "nanoseconds"},
      {"prompt_eval_count", kInteger, "tokens"},
      {"prompt_eval_duration", kInteger, "nanoseconds"},
      {"eval_count", kInteger, "tokens"},
      {"eval_duration", kInteger, "nanoseconds"},
      {"logprobs", kArray, "log probabilities of each token", {.items = &ollama_any_item}},
      {"prompt_tokens_details", kObject, "", {.object = &reuse_schema}}};
  return fields;
}
const Schema ollama_chat_answer_schema{
    "OllamaChatAnswer",
    joined(timing_fields(), {{"message", kObject, "", {.required = true, .object = &ollama_open_schema}}})};
const Schema generate_answer_schema{"OllamaGenerateAnswer",
                                    joined(timing_fields(), {{"response", kString, "", {.required = true}},
                                                             {"thinking", kString, "the model's reasoning"}})};
const Schema tags_schema{"OllamaTags", {{"models", kArray, "", {.required = true, .items = &ollama_any_item}}}};
const Schema show_answer_schema{"OllamaModel",
                                {{"details", kObject, "", {.required = true, .object = &ollama_open_schema}},
                                 {"model_info", kObject, "", {.required = true, .object = &ollama_open_schema}},
                                 {"capabilities", kArray, "", {.required = true, .items = &ollama_string_item}}},
                                true};
const Schema version_schema{"OllamaVersion", {{"version", kString, "", {.required = true}}}};

class OllamaAnswer final : public ChatAnswer {
 public:
  OllamaAnswer(Call& call, const ModelChoice& choice, std::unique_ptr<Choices> choices, const ChatPrompt& prompt,
               std::vector<std::string> stop, bool is_chat)
      : ChatAnswer(call, choice, std::move(choices), call.body.value("stream", true), prompt, std::move(stop)),
        is_chat_(is_chat), has_logprobs_(call.body.value("logprobs", false)) {
    if (streams()) content_type = "application/x-ndjson";
  }
  std::string_view ping() const override { return {}; }

  static Json line_of(const std::string& model, bool is_chat, const ChatMessage& m, bool is_done) {
    Json json = {{"model", model}, {"created_at", utc_text(unix_time())}};
    if (is_chat) {
      json["message"] = {{"role", "assistant"}, {"content", m.content}};
      if (!m.reasoning.empty()) json["message"]["thinking"] = m.reasoning;
      for (const ChatToolCall& call : m.tool_calls) {
        Json arguments = parse_json_or_discard<Json>(call.arguments);
        if (!arguments.is_object()) arguments = Json::object();
        json["message"]["tool_calls"].push_back(
            {{"id", call.id}, {"function", {{"name", call.name}, {"arguments", std::move(arguments)}}}});
      }
    } else {
      json["response"] = m.content;
      if (!m.reasoning.empty()) json["thinking"] = m.reasoning;
    }
    json["done"] = is_done;
    return json;
  }

 private:
  void on_token(const Event& event, std::string&) override {
    if (has_logprobs_) logprobs_.push_back(logprob_json(event));
  }
  /// Adds the log probabilities of the tokens that were generated since the last line.
  void take_logprobs_into(Json& line) {
    if (!logprobs_.empty()) line["logprobs"] = std::exchange(logprobs_, Json::array());
  }
  void on_delta(size_t, const ChatDelta& delta, std::string& out) override {
    if (!streams() || delta.text.empty()) return;
    ChatMessage part;
    if (delta.kind == ChatDelta::Kind::kContent) part.content = delta.text;
    else if (delta.kind == ChatDelta::Kind::kReasoning) part.reasoning = delta.text;
    else return;  // calls are sent as a whole, in the last line
    Json line = line_of(model().name, is_chat_, part, false);
    take_logprobs_into(line);
    out += to_text(line) + "\n";
  }
  void on_message(size_t, const ChatMessage&, std::string&) override {}
  void end(std::string& out) override {
    ChatMessage m = message(0);
    if (streams()) {
      m.content.clear();
      m.reasoning.clear();
    }
    Json json = line_of(model().name, is_chat_, m, true);
    const GenerateResult& r = choices().result(0).value();
    const auto ns = [](double ms) { return static_cast<int64_t>(ms * 1e6); };
    const auto elapsed = std::chrono::steady_clock::now() - begin_;
    json["done_reason"] = openai_finish_reason(r.reason);
    json["total_duration"] = std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count();
    json["load_duration"] = 0;
    json["prompt_eval_count"] = r.prompt_tokens;
    json["prompt_eval_duration"] = ns(r.prefill_ms);
    json["eval_count"] = r.tokens.size();
    json["eval_duration"] = ns(r.decode_ms);
    json["prompt_tokens_details"] = reuse_json(facts.cached_tokens, cache_miss());
    take_logprobs_into(json);
    if (streams()) out += to_text(json) + "\n";
    else out = to_text(json);
  }
  std::string error_event(const ApiError& error) const override {
    return error_body(error, ErrorShape::kOllama) + "\n";
  }

  const bool is_chat_, has_logprobs_;
  Json logprobs_ = Json::array();
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

/// Renames the options to the fields that generation_request() reads.
void rename_options(Json& body) {
  const Json options = body.value("options", Json::object());
  for (const auto& [name, value] : options.items()) {
    if (name == "repeat_penalty") body["repetition_penalty"] = value;
    else if (name == "seed" && value == 0) continue;
    else if (name != "num_predict") body[name] = value;
  }
  body.erase("options");
  const int64_t num_predict = options.value("num_predict", int64_t{-1});
  if (num_predict >= 0) body["max_tokens"] = num_predict;
}

AnswerOr loaded_answer(const Call& call, bool is_chat, const char* reason) {
  Json json = OllamaAnswer::line_of(call.body["model"], is_chat, {}, true);
  json["done_reason"] = reason;
  auto answer = std::make_unique<FixedAnswer>(to_text(json) + "\n");
  if (call.body.value("stream", true)) answer->content_type = "application/x-ndjson";
  return std::unique_ptr<Answer>(std::move(answer));
}

/// Starts the generation. `raw`: the prompt if it is not a conversation.
AnswerOr start(Call& call, const ModelChoice& choice, ChatPrompt prompt, std::optional<FillInPrompt> raw,
               bool is_chat) {
  if (const auto format = call.body.find("format"); format != call.body.end() && *format != "") {
    if (format->is_string() && *format != "json")
      return bad_request("format", "format must be \"json\" or a JSON Schema", "invalid_value");
    call.constraint = json_constraint(format->is_string() ? Json{{"type", "object"}} : *format, "format");
  }
  SERVER_ASSIGN(GenerateRequest request, generation_request(call, choice));
  const TextEngine& engine = choice.model->engine();
  if (raw) {
    request.prompt = std::move(raw->tokens);
    request.stop_tokens.insert(request.stop_tokens.end(), raw->stop_tokens.begin(), raw->stop_tokens.end());
    if (auto error = check_context(engine.info(), std::ssize(request.prompt), "prompt")) return *error;
  } else {
    if (auto error = set_prompt(*choice.model, prompt, is_chat ? "messages" : "prompt", request)) return *error;
  }
  request.max_tokens = call.body.value("max_tokens", engine.info().context);
  if (auto error = take_logprobs(call.body, request)) return *error;
  SERVER_ASSIGN(auto choices, start_choices(call, choice.model, {request}));
  return std::unique_ptr<Answer>(
      std::make_unique<OllamaAnswer>(call, choice, std::move(choices), prompt, request.stop, is_chat));
}

void add_thinking(const Json& body, ChatPrompt& prompt) {
  const auto think = body.find("think");
  if (think == body.end()) return;
  prompt.thinking = think->is_boolean() ? thinking_of(think->get<bool>(), "") : thinking_of(std::nullopt, *think);
}

/// Finds the model of a request and loads it. nullopt: the request only unloads the model, by a keep_alive of 0.
Outcome<std::optional<ModelChoice>> find_or_unload(Call& call, bool has_work) {
  const std::string name = call.body["model"];
  SERVER_ASSIGN(const std::optional<double> keep_alive, keep_alive_of(call));
  const bool unloads = keep_alive == 0.0 && !has_work;
  SERVER_ASSIGN(ModelChoice choice, unloads ? call.app.models().resolve(name) : call.app.models().find(name));
  if (keep_alive) call.app.residency().set_keep_alive(*choice.model, *keep_alive);
  return unloads ? std::nullopt : std::optional(std::move(choice));
}

AnswerOr post_ollama_chat(Call& call) {
  Json& body = call.body;
  const bool has_work = body.contains("messages") && !body["messages"].empty();
  SERVER_ASSIGN(const std::optional<ModelChoice> choice, find_or_unload(call, has_work));
  if (!has_work) return loaded_answer(call, true, choice ? "load" : "unload");
  rename_options(body);
  if (auto error = check_messages(body["messages"], "messages", CallIds::kOptional)) return *error;
  ChatPrompt prompt;
  for (const Json& message : body["messages"]) {
    Json m = {{"role", message["role"]}, {"content", message.value("content", std::string())}};
    if (message.contains("thinking")) m["reasoning_content"] = message["thinking"];
    if (message.contains("tool_name")) m["name"] = message["tool_name"];
    if (message.contains("tool_call_id")) m["tool_call_id"] = message["tool_call_id"];
    for (const Json& c : message.value("tool_calls", Json::array()))
      m["tool_calls"].push_back(
          tool_call_json({c.value("id", std::string()), c["function"]["name"], to_text(c["function"]["arguments"])}));
    prompt.messages.push_back(std::move(m));
  }
  SERVER_ASSIGN(prompt.client_tools, chat_tools(body.value("tools", Json::array())));
  note_ignored(call, prompt.client_tools.skipped);
  prompt.tools = prompt.client_tools.for_prompt();
  add_thinking(body, prompt);
  return start(call, *choice, prompt, std::nullopt, true);
}

AnswerOr post_generate(Call& call) {
  Json& body = call.body;
  const std::string text = body.value("prompt", std::string());
  SERVER_ASSIGN(const std::optional<ModelChoice> choice, find_or_unload(call, !text.empty()));
  if (text.empty()) return loaded_answer(call, false, choice ? "load" : "unload");
  rename_options(body);
  ChatPrompt prompt;
  if (body.contains("system")) prompt.messages.push_back({{"role", "system"}, {"content", body["system"]}});
  prompt.messages.push_back({{"role", "user"}, {"content", text}});
  add_thinking(body, prompt);
  const TextEngine& engine = choice->model->engine();
  std::optional<FillInPrompt> raw;
  if (const std::string suffix = body.value("suffix", std::string()); !suffix.empty()) {
    SERVER_ASSIGN(raw, fill_in_prompt(engine, {.prefix = text, .suffix = suffix, .begin = "", .files = {}}, "suffix"));
  } else if (body.value("raw", !engine.info().has_chat_template)) {
    SERVER_ASSIGN(auto tokens, encode_text(engine, text, true, true, "prompt"));
    raw = FillInPrompt{std::move(tokens), {}};
  }
  return start(call, *choice, prompt, std::move(raw), false);
}

/// Returns a digest of the model's name, because files are not hashed. Clients show its first twelve digits.
std::string digest_of(const std::string& name) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  EVP_Digest(name.data(), name.size(), digest.data(), &size, EVP_sha256(), nullptr);
  return fmt::format("{:02x}", fmt::join(digest.begin(), digest.begin() + size, ""));
}

/// Lists the capabilities that the chat template has, as Ollama derives them from its own templates.
Json capabilities_of(const ModelInfo& info) {
  Json capabilities = {"completion"};
  const auto names = [&](const char* what) { return info.chat_template.find(what) != std::string::npos; };
  if (info.has_tool_template) capabilities.push_back("tools");
  if (!info.thinking_switch.empty() || names("<think>") || names("reasoning_content"))
    capabilities.push_back("thinking");
  return capabilities;
}

/// Returns the details of a model. Members that are known only after a load are empty before the first one.
template <class Model>
Json details_of(const Model& model) {
  using Info = typename decltype(model.known_info())::value_type;
  const Info info = model.known_info().value_or(Info{});
  return {{"parent_model", ""},
          {"format", info.file_format},
          {"family", info.architecture},
          {"families", {info.architecture}},
          {"parameter_size", fmt::format("{:.1f}M", static_cast<double>(info.parameters) / 1e6)},
          {"quantization_level", info.weight_types}};
}

template <class Model>
Json tag_of(const Call& call, const Model& model) {
  const auto info = model.known_info();
  return {{"name", model.name()},
          {"model", model.name()},
          {"modified_at", utc_text(model.created())},
          {"size", info ? info->weight_bytes : call.app.residency().entry(model).bytes},
          {"digest", digest_of(model.name())},
          {"details", details_of(model)}};
}

AnswerOr get_tags(Call& call) {
  Json models = Json::array();
  const auto add = [&](const auto& model) {
    models.push_back(tag_of(call, model));
    for (const std::string& alias : model.aliases()) {
      Json other = models.back();
      other["name"] = other["model"] = alias;
      models.push_back(std::move(other));
    }
  };
  for (const auto& model : call.app.models().all()) add(*model);
  for (const auto& model : call.app.embeddings().listed()) add(*model);
  return json_answer({{"models", std::move(models)}});
}

AnswerOr get_running(Call& call) {
  Json models = Json::array();
  const auto add = [&](const auto& model) -> Json* {
    const Residency::Entry entry = call.app.residency().entry(model);
    if (entry.state != Residency::State::kLoaded) return nullptr;
    Json& json = models.emplace_back(tag_of(call, model));
    json["expires_at"] =
        entry.expires_in_s ? utc_text(unix_time() + static_cast<int64_t>(*entry.expires_in_s)) : "9999-12-31T23:59:59Z";
    json["size"] = entry.bytes;
    json["size_vram"] = 0;
    return &json;
  };
  for (const auto& model : call.app.models().all())
    if (Json* json = add(*model))
      if (const auto info = model->known_info()) (*json)["context_length"] = info->context;
  for (const auto& model : call.app.embeddings().listed())
    if (Json* json = add(*model))
      if (const auto info = model->known_info()) (*json)["context_length"] = info->max_length;
  return json_answer({{"models", std::move(models)}});
}

/// Returns the answer for a loaded embedding model.
Json show_embedding(const EmbeddingModel& model) {
  const EmbeddingInfo& info = model.engine().info();
  const std::string& a = info.architecture;
  return {{"modelfile", ""},
          {"parameters", ""},
          {"template", ""},
          {"details", details_of(model)},
          {"model_info",
           {{"general.architecture", a},
            {"general.parameter_count", info.parameters},
            {a + ".context_length", info.max_length},
            {a + ".embedding_length", info.dimensions},
            {a + ".block_count", info.num_layers},
            {a + ".attention.head_count", info.num_heads},
            {a + ".vocab_size", info.vocab_size}}},
          {"capabilities", {"embedding"}},
          {"modified_at", utc_text(model.created())}};
}

AnswerOr post_show(Call& call) {
  const std::string name = call.body.value("model", call.body.value("name", std::string()));
  for (const auto& model : call.app.embeddings().listed())
    if (model->is_named(name)) {
      SERVER_ASSIGN(const auto loaded, call.app.embeddings().find(name));
      return json_answer(show_embedding(*loaded));
    }
  SERVER_ASSIGN(const ModelChoice choice, call.app.models().find(name));
  const ModelInfo& info = choice.model->info();
  const std::string& a = info.architecture;
  return json_answer({{"modelfile", ""},
                      {"parameters", ""},
                      {"template", info.chat_template},
                      {"details", details_of(*choice.model)},
                      {"model_info",
                       {{"general.architecture", a},
                        {"general.parameter_count", info.parameters},
                        {a + ".context_length", info.model_context},
                        {a + ".embedding_length", info.hidden_size},
                        {a + ".block_count", info.num_layers},
                        {a + ".attention.head_count", info.num_heads},
                        {a + ".attention.head_count_kv", info.num_kv_heads},
                        {a + ".vocab_size", info.vocab_size}}},
                      {"capabilities", capabilities_of(info)},
                      {"modified_at", utc_text(choice.model->created())}});
}

AnswerOr get_version(Call& call) { return json_answer({{"version", "0.30.0"}}); }

}  // namespace

std::vector<Endpoint> ollama_endpoints() {
  const auto rules = [](const Schema* request) {
    return EndpointRules{
        .request = request, .errors = ErrorShape::kOllama, .needs_models = true, .error_statuses = {404}};
  };
  const EndpointRules reads{.errors = ErrorShape::kOllama};
  return {{"POST",
           "/api/chat",
           "text",
           "answer a conversation (Ollama's API)",
           {{200, "the answer", &ollama_chat_answer_schema},
            {200, "with stream, lines of the same shape", nullptr, "application/x-ndjson"}},
           post_ollama_chat,
           rules(&chat_schema)},
          {"POST",
           "/api/generate",
           "text",
           "answer a prompt (Ollama's API)",
           {{200, "the answer", &generate_answer_schema},
            {200, "with stream, lines of the same shape", nullptr, "application/x-ndjson"}},
           post_generate,
           rules(&generate_schema)},
          {"GET",
           "/api/tags",
           "models",
           "the models (Ollama's API)",
           {{200, "all of them", &tags_schema}},
           get_tags,
           reads},
          {"GET",
           "/api/ps",
           "models",
           "the models in memory (Ollama's API)",
           {{200, "all of them", &tags_schema}},
           get_running,
           reads},
          {"POST",
           "/api/show",
           "models",
           "one model (Ollama's API)",
           {{200, "the model", &show_answer_schema}},
           post_show,
           rules(&show_schema)},
          {"GET",
           "/api/version",
           "models",
           "the version of Ollama's API that this one follows",
           {{200, "the version", &version_schema}},
           get_version,
           reads}};
}

}  // namespace redline::server
