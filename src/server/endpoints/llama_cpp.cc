// /completion, /completions, /infill, /props, /slots, /embedding and /embeddings, in the shapes of llama.cpp's server;
// and its paths without /v1 for OpenAI's endpoints.
#include <algorithm>
#include <cmath>
#include <span>

#include "server/app.h"
#include "server/event_stream.h"
#include "server/fill_in.h"
#include "server/generation.h"

namespace redline::server {
namespace {

const Schema llama_open_schema{"AnyObject", {}, true};
const Field llama_any_item{"", kAny, ""};
const Field llama_object_item{"", kObject, "", {.object = &llama_open_schema}};
const Field llama_string_item{"", kString, ""};
const Schema llama_file_schema{"InfillFile",
                               {{"filename", kString, ""},
                                {"text", kString, "", {.required = true}},
                                {"time", kNumber, "", {.is_ignored = true}}}};
const Field llama_file_item{"", kObject, "", {.object = &llama_file_schema}};

std::vector<Field> llama_fields() {
  std::vector<Field> fields = joined({{"n_predict",
                                       kInteger,
                                       "tokens to generate; default, and -1: what the context has room for",
                                       {.min = kMinMaxTokens, .max = kMaxJsonInteger}},
                                      {"n_cmpl", kInteger, "texts per prompt", {.min = 1, .max = 128}},
                                      {"n_probs",
                                       kInteger,
                                       "log probabilities of each token and of this many of the most likely ones",
                                       {.min = 0, .max = 100}},
                                      {"return_tokens", kBoolean, "the answer has the ids of its tokens"},
                                      {"response_fields",
                                       kArray,
                                       "only these fields of the answer; a/b is the field b of a",
                                       {.items = &llama_string_item}}},
                                     generation_fields());
  for (Field& field : fields)
    if (field.name == "repetition_penalty") field.name = "repeat_penalty";
  return fields;
}
const Schema llama_completion_schema{
    .name = "LlamaCompletionRequest",
    .fields =
        joined({{"prompt",
                 kString | kArray | kObject,
                 "a text, token ids, both in one list, or a list of these; {\"prompt_string\"} is a text",
                 {.required = true, .max_items = 1 << 20, .object = &llama_open_schema, .items = &llama_any_item}}},
               llama_fields())};
const Schema infill_schema{
    .name = "LlamaInfillRequest",
    .fields =
        joined({{"input_prefix", kString, "the text before the cursor"},
                {"input_suffix", kString, "the text after it"},
                {"input_extra", kArray, "other files of the project", {.max_items = 1000, .items = &llama_file_item}},
                {"prompt", kString, "the begin of the text between them"}},
               llama_fields())};
const Schema llama_answer_schema{"LlamaCompletion",
                                 {{"content", kString, ""},
                                  {"tokens", kArray, "ids, with return_tokens or stream", {.items = &llama_any_item}},
                                  {"stop", kBoolean, "false: more follows"},
                                  {"stop_type", kString, "", {.choices = {"none", "eos", "limit", "word"}}},
                                  {"stopping_word", kString, ""}},
                                 true,
                                 {},
                                 &llama_object_item};
constexpr double kMaxNorm = 1000;
const Schema llama_embedding_schema{
    "LlamaEmbeddingRequest",
    {{"content", kString | kArray, "a text, token ids, or a list of these", {.min_items = 1, .items = &llama_any_item}},
     {"input", kString | kArray, "another name of content", {.min_items = 1, .items = &llama_any_item}},
     {"model", kString, "a name from /v1/models", {.max_length = 1000}},
     {"embd_normalize",
      kInteger,
      "-1: as the model has them; 0: the largest element is 32760; p: the p-norm is 1; default: 2",
      {.min = -1, .max = kMaxNorm}}}};
const Schema llama_embeddings_schema{.name = "LlamaEmbeddings", .fields = {}, .list = &llama_object_item};

/// One prompt of a request.
struct LlamaPrompt {
  std::vector<int32_t> tokens;
};

/// Appends a piece of a prompt: a text (with the BOS token if it is the first), or a list of ids and texts.
std::optional<ApiError> append_prompt(const TextEngine& engine, const Json& piece, const std::string& path,
                                      bool is_first, std::vector<int32_t>& tokens) {
  const Json* text = &piece;
  if (piece.is_object()) {
    if (piece.contains("multimodal_data") && !piece["multimodal_data"].empty())
      return bad_request(path + ".multimodal_data", path + ".multimodal_data is not supported: the model reads text",
                         "unsupported_parameter");
    if (!piece.contains("prompt_string"))
      return bad_request(path, path + " must have a prompt_string", "missing_required_parameter");
    text = &piece["prompt_string"];
  }
  if (text->is_string()) {
    auto more = encode_text(engine, text->get_ref<const std::string&>(), true, is_first, path.c_str());
    if (!more.ok()) return more.error();
    tokens.insert(tokens.end(), more->begin(), more->end());
    return std::nullopt;
  }
  const int64_t id = text->is_number_integer() ? text->get<int64_t>() : -1;
  if (id < 0 || id >= engine.info().vocab_size)
    return bad_request(path, fmt::format("{} must be a text, or a token id below {}", path, engine.info().vocab_size),
                       "invalid_value");
  tokens.push_back(static_cast<int32_t>(id));
  return std::nullopt;
}

Outcome<std::vector<LlamaPrompt>> llama_prompts(const TextEngine& engine, const Json& given, bool& is_list) {
  const auto has_ids = [](const Json& list) {
    return std::any_of(list.begin(), list.end(), [](const Json& piece) { return piece.is_number(); });
  };
  is_list = given.is_array() && !has_ids(given);
  if (given.is_array() && given.empty()) return bad_request("prompt", "prompt is an empty list", "invalid_value");
  std::vector<LlamaPrompt> prompts;
  const size_t count = is_list ? given.size() : 1;
  for (size_t i = 0; i < count; ++i) {
    const Json& one = is_list ? given[i] : given;
    const std::string path = is_list ? fmt::format("prompt[{}]", i) : "prompt";
    LlamaPrompt& prompt = prompts.emplace_back();
    for (size_t k = 0; k < (one.is_array() ? one.size() : 1); ++k)
      if (auto error = append_prompt(engine, one.is_array() ? one[k] : one,
                                     one.is_array() ? fmt::format("{}[{}]", path, k) : path, k == 0, prompt.tokens))
        return *error;
  }
  return prompts;
}

class LlamaAnswer final : public GenerationAnswer {
 public:
  LlamaAnswer(Call& call, const ModelChoice& choice, std::unique_ptr<Choices> choices,
              std::vector<GenerateRequest> requests, bool is_list, size_t n)
      : GenerationAnswer(call, choice, std::move(choices), call.body.value("stream", false)),
        requests_(std::move(requests)), is_list_(is_list), has_probs_(call.body.value("n_probs", 0) > 0),
        has_tokens_(call.body.value("return_tokens", false) || streams()),
        includes_stop_(call.body.value("include_stop_str_in_output", false)),
        n_predict_(call.body.value("n_predict", -1)),
        fields_(call.body.value("response_fields", std::vector<std::string>())) {
    parts_.resize(this->choices().size());
    set_choices_per_prompt(n);
  }

 private:
  struct Part {
    std::string text;
    Json tokens = Json::array(), probs = Json::array(), whole;
    int64_t num_tokens = 0;
    bool has_new_line = false;
  };

  Json prob_json(int32_t id, float logprob) const {
    const auto text = engine().decode(std::span(&id, 1), true);
    const std::string token = text.ok() ? text.value() : "";
    const std::string bytes = engine().token_bytes(id);
    return {{"id", id},
            {"token", token},
            {"bytes", std::vector<int>(reinterpret_cast<const uint8_t*>(bytes.data()),
                                       reinterpret_cast<const uint8_t*>(bytes.data()) + bytes.size())},
            {"logprob", logprob}};
  }
  void send(size_t choice, std::string& out) {
    Part& p = parts_[choice];
    Json json = {{"index", choice},
                 {"content", std::exchange(p.text, "")},
                 {"tokens", std::exchange(p.tokens, Json::array())},
                 {"stop", false},
                 {"id_slot", -1},
                 {"tokens_predicted", p.num_tokens},
                 {"tokens_evaluated", requests_[choice].prompt.size()}};
    if (has_probs_) json["completion_probabilities"] = std::exchange(p.probs, Json::array());
    out += sse(json);
  }
  void take(const Event& event, std::string& out) override {
    Part& p = parts_[event.choice];
    p.text += event.text;
    p.has_new_line |= event.text.find('\n') != std::string::npos;
    if (event.token >= 0) {
      ++p.num_tokens;
      if (has_tokens_) p.tokens.push_back(event.token);
      if (has_probs_) {
        Json prob = prob_json(event.token, event.logprob);
        prob["top_logprobs"] = Json::array();
        for (const TokenLogprob& t : event.top) prob["top_logprobs"].push_back(prob_json(t.id, t.logprob));
        p.probs.push_back(std::move(prob));
      }
    }
    if (streams() && !event.text.empty()) send(event.choice, out);
  }
  Json settings(const GenerateRequest& r) const {
    const SamplingOptions& s = r.sampling;
    Json stop = r.stop;
    return {{"n_ctx", engine().info().context},
            {"model", model().name},
            {"n_predict", n_predict_},
            {"seed", s.seed},
            {"temperature", s.temperature},
            {"top_k", s.top_k},
            {"top_p", s.top_p},
            {"min_p", s.min_p},
            {"repeat_penalty", s.repetition_penalty},
            {"presence_penalty", s.presence_penalty},
            {"frequency_penalty", s.frequency_penalty},
            {"stop", std::move(stop)},
            {"stream", streams()},
            {"ignore_eos", r.ignore_stop_tokens}};
  }
  static Json timings(const GenerateResult& r) {
    const auto prompt_n = r.prompt_tokens - r.cached_tokens;
    const auto predicted_n = std::ssize(r.tokens);
    const auto per_second = [](int64_t n, double ms) { return ms > 0 ? static_cast<double>(n) / ms * 1e3 : 0.0; };
    const auto per_token = [](int64_t n, double ms) { return n > 0 ? ms / static_cast<double>(n) : 0.0; };
    return {{"cache_n", r.cached_tokens},
            {"prompt_n", prompt_n},
            {"prompt_ms", r.prefill_ms},
            {"prompt_per_token_ms", per_token(prompt_n, r.prefill_ms)},
            {"prompt_per_second", per_second(prompt_n, r.prefill_ms)},
            {"predicted_n", predicted_n},
            {"predicted_ms", r.decode_ms},
            {"predicted_per_token_ms", per_token(r.decode_tokens, r.decode_ms)},
            {"predicted_per_second", per_second(r.decode_tokens, r.decode_ms)}};
  }
  /// Returns the members that response_fields names; all if it names none.
  Json chosen(Json json) const {
    if (fields_.empty()) return json;
    Json result = Json::object();
    for (const std::string& path : fields_) {
      const Json* at = &json;
      std::string name;
      for (std::string_view rest = path; at && !rest.empty();) {
        name = rest.substr(0, rest.find('/'));
        rest.remove_prefix(std::min(rest.size(), name.size() + 1));
        const auto found = at->is_object() ? at->find(name) : at->end();
        at = at->is_object() && found != at->end() ? &*found : nullptr;
      }
      if (at && !name.empty()) result[name] = *at;
    }
    return result;
  }
  void end_choice(size_t choice, const GenerateResult& r, std::string& out) override {
    Part& p = parts_[choice];
    const GenerateRequest& request = requests_[choice];
    const std::string word = matched_stop(engine(), r, request.stop);
    if (includes_stop_) p.text += word;
    const char* type = r.reason != FinishReason::kStop ? "limit" : word.empty() ? "eos" : "word";
    const auto prompt = engine().decode(request.prompt.tokens(), true);
    Json json = {{"index", choice},
                 {"content", p.text},
                 {"tokens", streams() ? Json::array() : p.tokens},
                 {"id_slot", -1},
                 {"stop", true},
                 {"model", model().name},
                 {"tokens_predicted", r.tokens.size()},
                 {"tokens_evaluated", r.prompt_tokens},
                 {"generation_settings", settings(request)},
                 {"prompt", prompt.ok() ? prompt.value() : ""},
                 {"has_new_line", p.has_new_line},
                 {"truncated", false},
                 {"stop_type", type},
                 {"stopping_word", word},
                 {"tokens_cached", r.cached_tokens},
                 {"timings", timings(r)}};
    if (has_probs_) json["completion_probabilities"] = std::move(p.probs);
    if (streams()) out += sse(chosen(std::move(json)));
    else p.whole = chosen(std::move(json));
  }
  void end(std::string& out) override {
    if (streams()) return;
    if (!is_list_ && parts_.size() == 1) {
      out = to_text(parts_[0].whole);
      return;
    }
    Json list = Json::array();
    for (Part& p : parts_) list.push_back(std::move(p.whole));
    out = to_text(list);
  }

  const std::vector<GenerateRequest> requests_;
  const bool is_list_, has_probs_, has_tokens_, includes_stop_;
  const int64_t n_predict_;
  const std::vector<std::string> fields_;
  std::vector<Part> parts_;
};

AnswerOr answer_prompts(Call& call, const ModelChoice& choice, const std::vector<LlamaPrompt>& prompts, bool is_list,
                        const std::vector<int32_t>& stop_tokens) {
  Json& body = call.body;
  if (const auto penalty = body.find("repeat_penalty"); penalty != body.end()) body["repetition_penalty"] = *penalty;
  SERVER_ASSIGN(GenerateRequest request, generation_request(call, choice));
  const int64_t context = choice.model->info().context;
  request.max_tokens = max_tokens_of(body, {"n_predict"}, context, context);
  if (const int n = body.value("n_probs", 0); n > 0) request.num_logprobs = n;
  request.stop_tokens.insert(request.stop_tokens.end(), stop_tokens.begin(), stop_tokens.end());
  const auto n = body.value("n_cmpl", size_t{1});
  const auto count = static_cast<int64_t>(prompts.size() * n);
  if (count > choice.model->max_in_flight())
    return bad_request(
        "prompt", fmt::format("the request asks for {} texts; the limit is {}", count, choice.model->max_in_flight()),
        "invalid_value");
  std::vector<GenerateRequest> requests;
  for (const LlamaPrompt& prompt : prompts) {
    if (auto error = check_context(choice.model->info(), std::ssize(prompt.tokens), "prompt")) return *error;
    request.prompt = prompt.tokens;
    for (size_t i = 0; i < n; ++i) {
      requests.push_back(request);
      requests.back().sampling.seed += i;
    }
  }
  SERVER_ASSIGN(auto choices, start_choices(call, choice.model, requests));
  return std::unique_ptr<Answer>(
      std::make_unique<LlamaAnswer>(call, choice, std::move(choices), std::move(requests), is_list, n));
}

AnswerOr post_completion(Call& call) {
  SERVER_ASSIGN(const ModelChoice choice, call.app.models().find(call.body.value("model", std::string())));
  bool is_list = false;
  SERVER_ASSIGN(const auto prompts, llama_prompts(choice.model->engine(), call.body["prompt"], is_list));
  return answer_prompts(call, choice, prompts, is_list, {});
}

AnswerOr post_infill(Call& call) {
  const Json& body = call.body;
  SERVER_ASSIGN(const ModelChoice choice, call.app.models().find(body.value("model", std::string())));
  FillInRequest request{.prefix = body.value("input_prefix", std::string()),
                        .suffix = body.value("input_suffix", std::string()),
                        .begin = body.value("prompt", std::string()),
                        .files = {}};
  for (const Json& file : body.value("input_extra", Json::array()))
    request.files.emplace_back(file.value("filename", std::string("tmp")), file["text"]);
  SERVER_ASSIGN(FillInPrompt prompt, fill_in_prompt(choice.model->engine(), request));
  return answer_prompts(call, choice, {{std::move(prompt.tokens)}}, false, prompt.stop_tokens);
}

/// Returns the model that the query names; the first model if it names none.
Outcome<ModelChoice> model_of_query(Call& call) {
  const auto models = call.app.models().all();
  std::string name = call.body.is_object() ? call.body.value("model", std::string()) : "";
  if (name.empty() && models.size() > 1) name = models[0]->name();
  return call.app.models().resolve(name);
}

Json default_settings(const ModelInfo& info, const SamplingOptions& s) {
  Json params = {{"n_predict", -1},
                 {"max_tokens", -1},
                 {"seed", -1},
                 {"temperature", s.temperature},
                 {"top_k", s.top_k},
                 {"top_p", s.top_p},
                 {"min_p", s.min_p},
                 {"typical_p", s.typical_p},
                 {"repeat_last_n", s.penalty_last_n},
                 {"repeat_penalty", s.repetition_penalty},
                 {"presence_penalty", s.presence_penalty},
                 {"frequency_penalty", s.frequency_penalty},
                 {"xtc_probability", s.xtc_probability},
                 {"xtc_threshold", s.xtc_threshold},
                 {"dry_multiplier", s.dry_multiplier},
                 {"dry_base", s.dry_base},
                 {"dry_allowed_length", s.dry_allowed_length},
                 {"dry_penalty_last_n", s.dry_penalty_last_n},
                 {"dry_sequence_breakers", s.dry_sequence_breakers},
                 {"stop", Json::array()},
                 {"ignore_eos", false},
                 {"stream", true},
                 {"n_probs", 0},
                 {"grammar", ""},
                 {"samplers", s.samplers.empty() ? default_samplers() : s.samplers}};
  return {{"id", 0}, {"id_task", -1}, {"n_ctx", info.context}, {"is_processing", false}, {"params", std::move(params)}};
}

AnswerOr get_props(Call& call) {
  SERVER_ASSIGN(const ModelChoice choice, model_of_query(call));
  const std::optional<ModelInfo> info = choice.model->known_info();
  const bool is_loaded = choice.model->is_loaded();
  const auto use = call.app.residency().use(*choice.model, false);
  Json json = {{"default_generation_settings", Json::object()},
               {"total_slots", 1},
               {"model_alias", choice.model->name()},
               {"model_path", info ? info->path : choice.model->name()},
               {"chat_template", info ? info->chat_template : ""},
               {"modalities", {{"vision", false}, {"audio", false}}},
               {"build_info", "redline"},
               {"is_sleeping", !is_loaded}};
  if (use && is_loaded) {
    const TextEngine& engine = choice.model->engine();
    json["default_generation_settings"] = default_settings(engine.info(), engine.default_sampling());
    json["total_slots"] = engine.batch_limits().sequences;
  }
  return json_answer(json);
}

AnswerOr get_slots(Call& call) {
  SERVER_ASSIGN(const ModelChoice choice, model_of_query(call));
  const auto use = call.app.residency().use(*choice.model, false);
  const int64_t running = choice.model->stats().running;
  const int64_t count = use && choice.model->is_loaded() ? choice.model->engine().batch_limits().sequences : 0;
  const auto info = choice.model->known_info();
  if (call.body.value("fail_on_no_slot", 0) == 1 && running >= count) return overloaded(503, "no slot is free", 1);
  Json slots = Json::array();
  for (int64_t i = 0; i < count; ++i)
    slots.push_back(
        {{"id", i}, {"n_ctx", info ? info->context : 0}, {"speculative", false}, {"is_processing", i < running}});
  return json_answer(slots);
}

/// Applies llama.cpp's embd_normalize: 0 scales to the range of int16, p > 0 to a p-norm of 1, and -1 changes nothing.
void apply_norm(std::span<float> values, int64_t norm) {
  if (norm < 0) return;
  constexpr double kLargest = 32760;
  double largest = 0;
  for (const float v : values) largest = std::max(largest, std::abs(double{v}));
  if (largest == 0) return;
  double length = largest / kLargest;
  if (norm > 0) {
    double sum = 0;  // sum of powers of quotients, because powers of the values overflow for a large p
    for (const float v : values) sum += std::pow(std::abs(double{v}) / largest, static_cast<double>(norm));
    length = largest * std::pow(sum, 1 / static_cast<double>(norm));
  }
  for (float& v : values) v = static_cast<float>(v / length);
}

AnswerOr post_llama_embeddings(Call& call) {
  const Json& body = call.body;
  if (body.contains("content") == body.contains("input"))
    return bad_request("content", "give either content or input: a text, token ids, or a list of these",
                       "missing_required_parameter");
  SERVER_ASSIGN(const auto model, call.app.embeddings().find(body.value("model", std::string())));
  const char* name = body.contains("content") ? "content" : "input";
  EmbedRequest request;
  if (auto error = read_embedding_input(body[name], name, request)) return *error;
  request.normalize = false;
  return EmbeddingModel::embed(
      model, std::move(request),
      [name,
       norm = body.value("embd_normalize", int64_t{2})](Result<Embeddings> result) -> Outcome<EmbeddingModel::Result> {
        if (!result.ok()) return api_error(result.status(), name);
        Embeddings& e = result.value();
        std::string text = "[";
        int64_t tokens = 0;
        for (int64_t i = 0; i < e.count; ++i) {
          const auto vector =
              std::span(e.values).subspan(static_cast<size_t>(i * e.dimensions), static_cast<size_t>(e.dimensions));
          apply_norm(vector, norm);
          // The embedding is a list of vectors, because without pooling llama.cpp's server returns one for each token.
          text += fmt::format(R"({}{{"index":{},"embedding":[)", i > 0 ? "," : "", i);
          append_numbers(text, vector);
          text += "]}";
          tokens += e.tokens[static_cast<size_t>(i)];
        }
        return EmbeddingModel::Result{text + "]", tokens};
      },
      call.shape);
}

const Schema props_schema{"LlamaProps", {{"total_slots", kInteger, "texts at once", {.required = true}}}, true};
const Schema slots_schema{.name = "LlamaSlots", .fields = {}, .list = &llama_object_item};
const Schema llama_query_schema{"LlamaQuery",
                                {{"model", kString, "a name from /v1/models; default: the first", {.max_length = 1000}},
                                 {"fail_on_no_slot", kInteger, "1: 503 while no slot is free", {.min = 0, .max = 1}},
                                 {"autoload", kBoolean, "", {.is_ignored = true}}}};

}  // namespace

std::vector<Endpoint> llama_cpp_endpoints() {
  std::vector<Endpoint> all;
  const auto generates = [&](const char* path, const char* summary, AnswerOr (*handle)(Call&), const Schema* request) {
    all.push_back({"POST",
                   path,
                   "text",
                   summary,
                   {{200, "the text, or a list for several; with stream, events", &llama_answer_schema},
                    {200, "with stream", nullptr, "text/event-stream"}},
                   handle,
                   {.request = request, .needs_models = true, .error_statuses = {404}}});
  };
  for (const char* path : {"/completion", "/completions"})
    generates(path, "continue a text (llama.cpp's API)", post_completion, &llama_completion_schema);
  generates("/infill", "the text between a prefix and a suffix (llama.cpp's API)", post_infill, &infill_schema);
  for (const char* path : {"/embedding", "/embeddings"})
    all.push_back({"POST",
                   path,
                   "embeddings",
                   "vectors of texts (llama.cpp's API)",
                   {{200, "one for each text", &llama_embeddings_schema}},
                   post_llama_embeddings,
                   {.request = &llama_embedding_schema, .needs_models = true, .error_statuses = {404}}});
  all.push_back({"GET",
                 "/props",
                 "models",
                 "properties of a model (llama.cpp's API)",
                 {{200, "its context, its template and defaults of sampling", &props_schema}},
                 get_props,
                 {.query = &llama_query_schema, .needs_models = true, .error_statuses = {404}}});
  all.push_back({"GET",
                 "/slots",
                 "models",
                 "which texts are in progress (llama.cpp's API)",
                 {{200, "one for each text that fits into a step", &slots_schema}},
                 get_slots,
                 {.query = &llama_query_schema, .needs_models = true, .error_statuses = {404}}});
  return all;
}

}  // namespace redline::server
