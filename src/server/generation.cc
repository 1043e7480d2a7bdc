#include "server/generation.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/app.h"
#include "server/keep_alive.h"
#include "server/sampling_fields.h"

namespace redline::server {
namespace {

const Schema& lora_schema() {
  static const Schema schema{
      "AdapterScale",
      {{"name", kString, "the adapter's name"},
       {"id", kInteger, "the adapter's number in /lora-adapters, instead of the name", {.min = 0}},
       {"scale", kNumber, "its weight; 1: as trained", {.min = -100, .max = 100}}}};
  return schema;
}

const Field& stop_item() {
  static const Field field{"", kString, "", {.max_length = 1000}};
  return field;
}
const Field& stop_token_item() {
  static const Field field{"", kInteger, "", {.min = 0, .max = 2147483647}};
  return field;
}
const Field& lora_item() {
  static const Field field{"", kObject, "", {.object = &lora_schema()}};
  return field;
}

const Schema completion_details_schema{"CompletionTokensDetails",
                                       {{"reasoning_tokens", kInteger, "tokens of reasoning", {.required = true}}}};

}  // namespace

const Schema reuse_schema{"PromptTokensDetails",
                          {{"cached_tokens", kInteger, "prompt tokens whose state was reused", {.required = true}},
                           {"cache_miss", kString, "why no more prompt tokens were reused", {.required = true}}}};

const Schema usage_schema{"Usage",
                          {{"prompt_tokens", kInteger, "", {.required = true}},
                           {"completion_tokens", kInteger, "", {.required = true}},
                           {"total_tokens", kInteger, "", {.required = true}},
                           {"prompt_tokens_details", kObject, "", {.object = &reuse_schema}},
                           {"completion_tokens_details", kObject, "", {.object = &completion_details_schema}}}};

const std::vector<Field>& generation_fields() {
  static const std::vector<Field> fields = joined(
      joined(constraint_fields(), sampling_fields()),
      {
          {"model", kString, "a name from /v1/models; may be left out if there is one model", {.max_length = 1000}},
          {"stop",
           kString | kArray,
           "strings that end the text; they are not part of it. Empty ones are none",
           {.max_length = 1000, .max_items = 16, .items = &stop_item()}},
          {"stop_in_reasoning", kBoolean, "stop strings act on the reasoning, too; default: on the answer only"},
          {"ignore_eos", kBoolean, "continue after an end-of-text token"},
          {"stream", kBoolean, "send the text as it is generated, as server-sent events"},
          {"user",
           kString,
           "requests of one user share that user's part of the turn of the API key",
           {.max_length = 1000}},
          {"priority", kInteger, "lower runs first", {.min = -1000000, .max = 1000000}},
          {"cache_salt", kString, "prompts share cached state only with equal salts", {.max_length = 1000}},
          {"timeout",
           kNumber,
           "seconds after which generation ends with the text so far",
           {.min = 0.001, .max = 86400}},
          {"lora",
           kArray,
           "adapters and their weights, instead of those of the model's name",
           {.max_items = 16, .items = &lora_item()}},
          {"stop_token_ids",
           kArray,
           "further tokens that end the text",
           {.max_items = 1024, .items = &stop_token_item()}},
          {"min_tokens",
           kInteger,
           "tokens that end the text are excluded before there are so many",
           {.min = 0, .max = kMaxJsonInteger}},
          {"include_stop_str_in_output", kBoolean, "the text ends with the stop string that ended it"},
          keep_alive_field(),
      });
  return fields;
}

const std::vector<Field>& beam_fields() {
  static const std::vector<Field> fields = {
      {"use_beam_search", kBoolean, "search for the n most likely texts with n beams, instead of sampling"},
      {"length_penalty",
       kNumber,
       "exponent for use_beam_search: texts are compared by their log probability over this power of their length; "
       "default: 1",
       {.min = -100, .max = 100}}};
  return fields;
}

std::optional<ApiError> take_logprobs(const Json& body, GenerateRequest& request) {
  const int num_top = body.value("top_logprobs", 0);
  if (body.value("logprobs", false)) request.num_logprobs = num_top;
  else if (num_top > 0)
    return bad_request("top_logprobs", "top_logprobs has no effect without logprobs: true", "invalid_value");
  return std::nullopt;
}

int64_t max_tokens_of(const Json& body, std::initializer_list<const char*> names, int64_t otherwise, int64_t context) {
  for (const char* name : names)
    if (const auto found = body.find(name); found != body.end())
      return *found < 0 ? context : std::min(found->get<int64_t>(), std::max(context, int64_t{0}));
  return otherwise;
}

std::vector<std::string> strings_of(const Json& body, const char* name) {
  const auto found = body.find(name);
  if (found == body.end()) return {};
  std::vector<std::string> strings;
  if (found->is_string()) strings.push_back(found->get<std::string>());
  else strings = found->get<std::vector<std::string>>();
  std::erase(strings, "");  // some clients send an empty string if the user has entered none
  return strings;
}

Outcome<GenerateRequest> generation_request(Call& call, const ModelChoice& choice) {
  const Json& body = call.body;
  GenerateRequest request;
  const TextEngine& engine = choice.model->engine();
  SERVER_ASSIGN(request.sampling, sampling_of(body, engine.default_sampling(), engine.info().vocab_size));
  request.stop = strings_of(body, "stop");
  request.stop_in_reasoning = body.value("stop_in_reasoning", false);
  request.ignore_stop_tokens = body.value("ignore_eos", false);
  request.min_tokens = body.value("min_tokens", int64_t{0});
  request.stop_tokens = body.value("stop_token_ids", std::vector<int32_t>());
  for (size_t i = 0; i < request.stop_tokens.size(); ++i)
    if (request.stop_tokens[i] >= engine.info().vocab_size)
      return bad_request(fmt::format("stop_token_ids[{}]", i),
                         fmt::format("stop_token_ids[{}] must be a token id below {}", i, engine.info().vocab_size),
                         "invalid_value");
  request.priority = body.value("priority", 0);
  request.cache_salt = body.value("cache_salt", std::string());
  request.client = call.http.client.empty() ? call.http.peer : call.http.client;
  if (const std::string user = body.value("user", std::string()); !request.client.empty() && !user.empty())
    request.client += "\n" + user;
  double timeout_s = call.app.options().request_timeout_s;
  if (const double wanted = body.value("timeout", 0.0); wanted > 0)
    timeout_s = timeout_s > 0 ? std::min(timeout_s, wanted) : wanted;
  request.timeout_ms = timeout_s * 1e3;
  SERVER_ASSIGN(NamedConstraint constraint, constraint_of(body));
  if (auto error = check_exclusive(call.constraint, constraint)) return *error;
  if (call.constraint.field.empty()) call.constraint = std::move(constraint);
  set_json_format(body, call.constraint.constraint.json);
  if (!body.value("guided_whitespace_pattern", "").empty()) call.ignored.emplace_back("guided_whitespace_pattern");
  if (!body.value("structured_outputs", Json::object()).value("whitespace_pattern", "").empty())
    call.ignored.emplace_back("structured_outputs.whitespace_pattern");
  request.constraint = call.constraint.constraint;
  if (call.shape == ErrorShape::kOpenAi) {  // the endpoints of Ollama's API read keep_alive before they find the model
    SERVER_ASSIGN(const std::optional<double> keep_alive, keep_alive_of(call));
    if (keep_alive) call.app.residency().set_keep_alive(*choice.model, *keep_alive);
  }
  request.adapters = choice.adapters;
  if (const auto lora = body.find("lora"); lora != body.end()) {
    request.adapters.clear();
    const std::vector<Adapter> adapters = choice.model->adapters();
    for (size_t i = 0; i < lora->size(); ++i) {
      const Json& entry = (*lora)[i];
      const auto found = std::find_if(adapters.begin(), adapters.end(), [&](const Adapter& a) {
        return entry.contains("name") ? a.name == entry["name"] : entry.contains("id") && a.id == entry["id"];
      });
      if (found == adapters.end())
        return not_found_error(fmt::format("lora[{}]", i),
                               fmt::format("{} has no adapter {}; see /lora-adapters", choice.model->name(),
                                           to_text(entry.contains("name") ? entry["name"] : entry.value("id", Json()))),
                               "adapter_not_found");
      if (const double scale = entry.value("scale", 1.0); scale != 0) request.adapters.emplace_back(found->name, scale);
    }
  }
  return request;
}

Outcome<std::unique_ptr<Choices>> start_choices(Call& call, const std::shared_ptr<ServedModel>& model,
                                                std::vector<GenerateRequest> requests) {
  if (!requests.empty() && requests[0].constraint.json.is_relaxed) {
    const auto keywords = model->engine().unenforced_keywords(requests[0].constraint, requests[0].chat_prompt);
    if (!keywords.ok()) return api_error(keywords.status(), call.constraint.field);
    const std::string field = call.constraint.field.empty() ? "tools" : call.constraint.field;
    for (const std::string& keyword : *keywords) call.ignored.push_back(fmt::format("{}.{}", field, keyword));
  }
  for (GenerateRequest& request : requests) {  // the context has no room for more tokens
    request.max_tokens = std::min(request.max_tokens, model->info().context);
    request.min_tokens = std::min(request.min_tokens, model->info().context);
  }
  auto choices = Choices::start(model, requests);
  if (choices.ok() || choices.error().status != 400 || !choices.error().param.empty()) return choices;
  ApiError error = choices.error();
  error.param = call.constraint.field;  // the other fields have been checked, so the error is about the constraint
  return error;
}

Outcome<bool> asks_for_beams(Call& call, const GenerateRequest& request) {
  const Json& body = call.body;
  if (!body.value("use_beam_search", false)) {
    if (body.value("length_penalty", 1.0) != 1)  // 1 has no effect
      return bad_request("length_penalty", "length_penalty has no effect without use_beam_search: true",
                         "invalid_value");
    return false;
  }
  const auto refuse = [](const std::string& field) {
    return bad_request(field, field + " is not supported with use_beam_search", "unsupported_value");
  };
  if (!request.stop.empty()) return refuse("stop");
  if (!request.stop_tokens.empty()) return refuse("stop_token_ids");
  if (request.min_tokens > 0) return refuse("min_tokens");
  if (request.num_logprobs >= 0) return refuse("logprobs");
  if (body.value("best_of", body.value("n", 1)) != body.value("n", 1)) return refuse("best_of");
  if (request.constraint.kind != OutputConstraint::Kind::kNone)
    return refuse(call.constraint.field.empty() ? "tool_choice" : call.constraint.field);
  for (const Field& field : sampling_fields())
    if (body.contains(field.name)) call.ignored.emplace_back(field.name);
  return true;
}

Outcome<std::unique_ptr<Choices>> start_search(const Call& call, const std::shared_ptr<ServedModel>& model,
                                               const GenerateRequest& request, const std::vector<Prompt>& prompts) {
  BeamSearchRequest search;
  search.beam_width = call.body.value("n", int64_t{1});
  search.length_penalty = call.body.value("length_penalty", 1.0);
  search.max_tokens = std::min(request.max_tokens, model->info().context);
  search.ignore_stop_tokens = request.ignore_stop_tokens;
  search.adapters = request.adapters;
  std::vector<BeamSearchRequest> searches;
  for (const Prompt& prompt : prompts) {
    search.prompt = prompt;
    if (auto begin = model->engine().encode("", true, true); prompt.empty() && begin.ok())
      search.prompt = std::move(begin).value();
    searches.push_back(search);
  }
  return Choices::search(model, searches, request.timeout_ms, request.client);
}

EncodeLimits encode_limits(const ModelInfo& info) {
  return {.max_tokens = info.context, .on_slice = [](int64_t) { return !HandledRequest::is_abandoned(); }};
}

std::optional<ApiError> check_text_size(const ModelInfo& info, size_t bytes, const char* param) {
  if (info.max_token_bytes == 0 || static_cast<int64_t>(bytes) / info.max_token_bytes <= info.context)
    return std::nullopt;
  return bad_request(
      param,
      fmt::format(
          "the text has {} bytes, which are at least {} tokens; the context holds {}. Shorten the text, or start "
          "the server with a larger --context",
          bytes, static_cast<int64_t>(bytes) / info.max_token_bytes, info.context),
      "context_length_exceeded");
}

ApiError encode_error(const Status& status, const ModelInfo& info, size_t bytes, const char* param) {
  if (status.code() == Code::cancelled) return overloaded(503, "the client has gone", 1);
  if (status.code() != Code::invalid_argument) return api_error(status, param);
  return bad_request(
      param,
      fmt::format("the text of {} bytes has more tokens than the context holds, {}. Shorten the text, or "
                  "start the server with a larger --context",
                  bytes, info.context),
      "context_length_exceeded");
}

Outcome<std::vector<int32_t>> encode_text(const TextEngine& engine, std::string_view text, bool special, bool add_bos,
                                          const char* param) {
  const ModelInfo& info = engine.info();
  if (auto error = check_text_size(info, text.size(), param)) return *error;
  auto tokens = engine.encode(text, special, add_bos, encode_limits(info));
  if (!tokens.ok()) return encode_error(tokens.status(), info, text.size(), param);
  return std::move(tokens).value();
}

std::optional<ApiError> check_context(const ModelInfo& info, int64_t prompt_tokens, const char* param) {
  if (prompt_tokens < info.context) return std::nullopt;
  return bad_request(
      param,
      fmt::format("the prompt has {} tokens; the context holds {}, and at least one must be left for the "
                  "text. Shorten the prompt, or start the server with a larger --context",
                  prompt_tokens, info.context),
      "context_length_exceeded");
}

std::string matched_stop(const TextEngine& engine, const GenerateResult& result, const std::vector<std::string>& stop) {
  if (result.reason != FinishReason::kStop || stop.empty()) return "";
  Result<std::string> all = engine.decode(result.tokens);
  if (all.ok() && all->find(result.text) == std::string::npos) all = engine.decode(result.tokens, true);
  if (!all.ok()) return "";
  const size_t begin = all->find(result.text);  // the tokenizer may decode the first token with a space before it
  if (begin == std::string::npos) return "";
  const std::string_view rest = std::string_view(*all).substr(begin + result.text.size());
  for (const std::string& s : stop)
    if (rest.starts_with(s)) return s;
  return "";
}

const char* openai_finish_reason(FinishReason reason) { return reason == FinishReason::kStop ? "stop" : "length"; }

Json usage_json(int64_t prompt_tokens, int64_t completion_tokens, int64_t cached_tokens, CacheMiss miss) {
  return {{"prompt_tokens", prompt_tokens},
          {"completion_tokens", completion_tokens},
          {"total_tokens", prompt_tokens + completion_tokens},
          {"prompt_tokens_details", reuse_json(cached_tokens, miss)}};
}

Json reuse_json(int64_t cached_tokens, CacheMiss miss) {
  return {{"cached_tokens", cached_tokens}, {"cache_miss", cache_miss_name(miss)}};
}

GenerationAnswer::GenerationAnswer(Call& call, const ModelChoice& choice, std::unique_ptr<Choices> choices,
                                   bool streams)
    : counter_(call.app), model_(choice), shape_(call.shape), choices_(std::move(choices)) {
  if (streams) become_event_stream(*this);
  is_made_apart = !streams;  // the log probabilities of a long text are many megabytes of JSON
  facts.model = choice.name;
}

Progress GenerationAnswer::poll(std::string& body) {
  if (!has_begun_) {
    has_begun_ = true;
    begin(body);
  }
  // Output that a slow reader has not taken stays in the queue, where its size is limited, and is not converted to
  // events yet.
  constexpr size_t kMaxPart = size_t{64} << 10;
  const size_t begin_size = body.size();
  while (!is_stream || body.size() - begin_size < kMaxPart) {
    std::optional<Event> event = choices_->next();
    if (!event) break;
    if (!event->is_end) {
      if (event->gap_s >= 0) gaps_s_.push_back(event->gap_s);
      take(*event, body);
      continue;
    }
    const Result<GenerateResult>& result = choices_->result(event->choice);
    std::optional<ApiError> error;
    if (!result.ok()) error = api_error(result.status());
    else if (choices_->has_overflowed()) error = overloaded(503, "the text was not read for too long", 0);
    else if (result.value().reason == FinishReason::kCancelled) error = overloaded(503, "the server is stopping", 1);
    if (error) {
      facts.finish = "error";
      if (is_stream) {
        body += error_event(*error);
      } else {
        status = error->status;
        body = error_body(*error, shape_);
      }
      return Progress::kDone;
    }
    const GenerateResult& r = result.value();
    counter_.count(*model_.model, r, gaps_s_);
    gaps_s_.clear();
    if (event->choice % choices_per_prompt_ == 0) {
      facts.prompt_tokens += r.prompt_tokens;
      facts.cached_tokens += r.cached_tokens;
      if (r.cache_miss != CacheMiss::kNone) cache_miss_ = r.cache_miss;
    }
    facts.generated_tokens += std::ssize(r.tokens);
    if (facts.first_token_ms == 0) facts.first_token_ms = r.first_token_ms;
    facts.finish = finish_reason_name(r.reason);
    end_choice(event->choice, r, body);
  }
  if (!choices_->all_ended()) return body.empty() ? Progress::kWaiting : Progress::kMore;
  end(body);
  return Progress::kDone;
}

}  // namespace redline::server
