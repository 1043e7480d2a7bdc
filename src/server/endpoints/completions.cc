// POST /v1/completions.
#include <algorithm>
#include <limits>
#include <numeric>

#include "base/utc_time.h"
#include "server/app.h"
#include "server/event_stream.h"
#include "server/fill_in.h"
#include "server/generation.h"
#include "server/ids.h"
#include "server/logprobs.h"
#include "server/prompt_scores.h"

namespace redline::server {
namespace {

constexpr double kMaxPrompts = 1024;
const Field completions_token_item{"", kInteger, "", {.min = 0, .max = 2147483647}};
const Field prompt_item{
    "", kString | kInteger | kArray, "", {.min = 0, .max = 2147483647, .items = &completions_token_item}};

const Schema completions_stream_options_schema{
    "StreamOptions",
    {{"include_usage", kBoolean, "a last event with the usage"},
     {"continuous_usage_stats", kBoolean, "the last event has the usage", {.is_ignored = true}},
     {"include_obfuscation", kBoolean, "there is none", {.is_ignored = true}}}};

const Schema completions_request_schema{
    .name = "CompletionRequest",
    .fields = joined(
        {{"prompt",
          kString | kArray,
          "a text, token ids, or a list of either; default: the beginning of a text",
          {.max_items = 1 << 20, .items = &prompt_item}},
         {"max_tokens",
          kInteger,
          "tokens to generate; -1: what the context has room for",
          {.min = kMinMaxTokens, .max = kMaxJsonInteger}},
         {"n", kInteger, "texts per prompt", {.min = 1, .max = 128}},
         {"best_of",
          kInteger,
          "texts to generate per prompt, of which the n with the largest mean log probability per token are returned; "
          "default: n",
          {.min = 1, .max = 128}},
         {"logprobs",
          kInteger,
          "log probabilities of each token and of this many of the most likely ones",
          {.min = 0, .max = 100}},
         {"suffix", kString, "the text that follows: the answer goes between, with models that have markers for that"},
         {"echo", kBoolean, "begin the text with the prompt"},
         {"add_special_tokens", kBoolean, "begin a text prompt with the token that begins a text; default: true"},
         {"skip_special_tokens", kBoolean, "false: the text has the names of special tokens; default: true"},
         {"stream_options", kObject, "", {.object = &completions_stream_options_schema}}},
        joined(joined(generation_fields(), beam_fields()), token_fields()))};

const Field completions_string_item{"", kString, ""}, number_item{"", kNumber, "", {.is_nullable = true}},
    integer_item{"", kInteger, ""}, any_item{"", kAny, ""};
const Schema completions_logprobs_schema{
    "CompletionLogprobs",
    {{"tokens", kArray, "", {.required = true, .items = &completions_string_item}},
     {"token_logprobs", kArray, "null for the first token of a prompt", {.required = true, .items = &any_item}},
     {"top_logprobs", kArray, "", {.required = true, .items = &any_item}},
     {"text_offset", kArray, "", {.required = true, .items = &integer_item}}}};
const Schema completions_choice_schema{
    "CompletionChoice",
    {{"index", kInteger, "", {.required = true}},
     {"text", kString, "", {.required = true}},
     {"logprobs", kObject, "", {.required = true, .object = &completions_logprobs_schema, .is_nullable = true}},
     {"finish_reason", kString, "", {.required = true, .choices = {"stop", "length"}, .is_nullable = true}},
     {"stop_reason", kString, "the stop string that ended the text, or timeout"},
     {"token_ids", kArray, "with return_token_ids: ids of the text", {.items = &integer_item}},
     {"prompt_token_ids", kArray, "with return_token_ids: ids of the prompt", {.items = &integer_item}},
     {"prompt_logprobs", kArray, "log probabilities for each token of the prompt, by token id", {.items = &any_item}}}};
const Field completions_choice_item{"", kObject, "", {.object = &completions_choice_schema}};
const Schema completions_answer_schema{"Completion",
                                       {{"id", kString, "", {.required = true}},
                                        {"object", kString, "", {.required = true, .choices = {"text_completion"}}},
                                        {"created", kInteger, "", {.required = true}},
                                        {"model", kString, "", {.required = true}},
                                        {"choices", kArray, "", {.required = true, .items = &completions_choice_item}},
                                        {"usage", kObject, "", {.object = &usage_schema}}}};

struct PromptText {
  std::vector<int32_t> tokens;
  std::string echo;
  CompletionLogprobs logprobs = {};  // log probabilities of the echoed prompt
  CharCounter chars = {};            // characters of the echoed prompt
  Json prompt_logprobs = nullptr;
};

class CompletionAnswer final : public GenerationAnswer {
 public:
  CompletionAnswer(Call& call, const ModelChoice& choice, std::unique_ptr<Choices> choices,
                   std::vector<PromptText> prompts, std::vector<std::string> stop, size_t n)
      : GenerationAnswer(call, choice, std::move(choices), call.body.value("stream", false)),
        prompts_(std::move(prompts)), stop_(std::move(stop)), best_of_(this->choices().size() / prompts_.size()), n_(n),
        has_logprobs_(call.body.contains("logprobs")),
        includes_stop_(call.body.value("include_stop_str_in_output", false)), fields_(call.body),
        is_constrained_(call.constraint.constraint.kind != OutputConstraint::Kind::kNone) {
    const auto options = call.body.find("stream_options");
    includes_usage_ = options != call.body.end() && options->value("include_usage", false);
    set_choices_per_prompt(best_of_);
    parts_.resize(this->choices().size());
  }

 private:
  struct Part {
    std::string text;
    CompletionLogprobs logprobs;
    CharCounter chars;               ///< characters of the text, with the echoed prompt
    Json token_ids = Json::array();  ///< token ids since the last event
    bool has_sent_prompt_ids = false;
    std::string finish, stop_reason;
    double logprob = 0;  ///< sum over the tokens
    int64_t tokens = 0;
    double mean_logprob() const {
      return tokens > 0 ? logprob / static_cast<double>(tokens) : -std::numeric_limits<double>::infinity();
    }
  };

  Json head() const {
    return {{"id", id_}, {"object", "text_completion"}, {"created", created_}, {"model", model().name}};
  }
  Json usage() const { return usage_json(prompt_tokens(), generated_tokens(), facts.cached_tokens, cache_miss()); }
  Json choice_json(size_t i, size_t index) {
    Part& p = parts_[i];
    Json json = {{"index", index},
                 {"text", std::exchange(p.text, "")},
                 {"logprobs", has_logprobs_ ? p.logprobs.take() : Json(nullptr)},
                 {"finish_reason", p.finish.empty() ? Json(nullptr) : Json(p.finish)}};
    if (!p.stop_reason.empty()) json["stop_reason"] = p.stop_reason;
    const bool is_first = !std::exchange(p.has_sent_prompt_ids, true);
    const PromptText& prompt = prompts_[i / best_of_];
    if (fields_.returns_ids) {
      json["token_ids"] = std::exchange(p.token_ids, Json::array());
      if (is_first) json["prompt_token_ids"] = prompt.tokens;
    }
    if (fields_.prompt_logprobs >= 0 && is_first) json["prompt_logprobs"] = prompt.prompt_logprobs;
    return json;
  }
  void send(size_t i, std::string& out) {
    Json json = head();
    json["choices"] = Json::array({choice_json(i, i)});
    if (includes_usage_) json["usage"] = nullptr;
    out += sse(json);
  }

  void begin(std::string& out) override {
    for (size_t i = 0; i < parts_.size(); ++i) {
      const PromptText& prompt = prompts_[i / best_of_];
      parts_[i].text = prompt.echo;
      parts_[i].logprobs = prompt.logprobs;
      parts_[i].chars = prompt.chars;
      if (streams() && (!prompt.echo.empty() || fields_.prompt_logprobs >= 0)) send(i, out);
    }
  }
  void take(const Event& event, std::string& out) override {
    Part& p = parts_[event.choice];
    if (event.token >= 0) {
      if (has_logprobs_)
        p.logprobs.add(engine(), event.token, event.logprob, event.top, p.chars.count(), fields_.names_ids);
      std::string bytes = engine().token_bytes(event.token, /*special=*/false);
      if (p.tokens == 0 && begins_text(event.choice) && bytes.starts_with(' ')) {
        // decoded again, because some decoders drop a space at the beginning
        const auto shown = engine().decode(std::span(&event.token, 1));
        if (shown.ok() && !shown->starts_with(' ')) bytes.erase(0, 1);
      }
      p.chars.add(bytes);
      if (fields_.returns_ids) p.token_ids.push_back(event.token);
      p.logprob += double{event.logprob};
      ++p.tokens;
    }
    p.text += event.text;
    if (streams() && (!event.text.empty() || has_logprobs_)) send(event.choice, out);
  }
  void end_choice(size_t choice, const GenerateResult& result, std::string& out) override {
    Part& p = parts_[choice];
    p.finish = openai_finish_reason(result.reason);
    const std::string stop = matched_stop(engine(), result, stop_);
    p.stop_reason = result.reason == FinishReason::kTimeout ? "timeout" : stop;
    if (includes_stop_) p.text += stop;
    if (streams()) send(choice, out);
  }
  void end(std::string& out) override {
    if (!streams()) {
      Json json = head();
      json["choices"] = Json::array();
      for (size_t prompt = 0; prompt < prompts_.size(); ++prompt)
        for (const size_t i : best_choices(prompt)) json["choices"].push_back(choice_json(i, json["choices"].size()));
      json["usage"] = usage();
      out = to_text(json);
      return;
    }
    if (includes_usage_) {
      Json json = head();
      json["choices"] = Json::array();
      json["usage"] = usage();
      out += sse(json);
    }
    out += "data: [DONE]\n\n";
  }

  /// Returns true if the engine decodes the generated text as the beginning of a text.
  bool begins_text(size_t choice) const {
    const std::vector<int32_t>& tokens = prompts_[choice / best_of_].tokens;
    return !is_constrained_ &&
           (tokens.empty() || (tokens.size() == 1 && engine().token_bytes(tokens[0], /*special=*/false).empty()));
  }

  /// Returns the n_ choices of a prompt with the largest mean log probability per token. If all are wanted, returns
  /// them in their order.
  std::vector<size_t> best_choices(size_t prompt) const {
    std::vector<size_t> choices(best_of_);
    std::iota(choices.begin(), choices.end(), prompt * best_of_);
    if (n_ == best_of_) return choices;
    std::stable_sort(choices.begin(), choices.end(),
                     [&](size_t a, size_t b) { return parts_[a].mean_logprob() > parts_[b].mean_logprob(); });
    choices.resize(n_);
    return choices;
  }

  const std::vector<PromptText> prompts_;
  const std::vector<std::string> stop_;
  const size_t best_of_, n_;  ///< texts per prompt that are generated, and that are returned
  const bool has_logprobs_, includes_stop_;
  const TokenFields fields_;
  const bool is_constrained_;
  bool includes_usage_ = false;
  const std::string id_ = new_id("cmpl-");
  const int64_t created_ = unix_time();
  std::vector<Part> parts_;
};

/// Returns the prompts as token ids.
Outcome<std::vector<PromptText>> prompts_of(const Call& call, const TextEngine& engine,
                                            std::vector<int32_t>& stop_tokens) {
  const std::string suffix = call.body.value("suffix", std::string());
  const bool adds_special = call.body.value("add_special_tokens", true);
  std::vector<PromptText> prompts;
  const auto add_text = [&](const Json& text, const std::string& path) -> std::optional<ApiError> {
    const auto& string = text.get_ref<const std::string&>();
    if (!suffix.empty()) {
      auto filled = fill_in_prompt(engine, {.prefix = string, .suffix = suffix, .begin = "", .files = {}}, "suffix");
      if (!filled.ok()) return filled.error();
      prompts.push_back({std::move(filled->tokens), string, {}});
      stop_tokens = std::move(filled->stop_tokens);
      return std::nullopt;
    }
    auto tokens = encode_text(engine, string, true, adds_special, path.c_str());
    if (!tokens.ok()) return tokens.error();
    prompts.push_back({std::move(*tokens), string, {}});
    return std::nullopt;
  };
  const auto add_tokens = [&](const Json& list, const std::string& path) -> std::optional<ApiError> {
    if (!suffix.empty()) return bad_request("suffix", "suffix needs a prompt that is a text", "unsupported_value");
    PromptText prompt;
    for (size_t i = 0; i < list.size(); ++i) {
      const auto id = list[i].is_number_integer() ? list[i].get<int64_t>() : -1;
      if (id < 0 || id >= engine.info().vocab_size)
        return bad_request(fmt::format("{}[{}]", path, i),
                           fmt::format("{}[{}] must be a token id below {}", path, i, engine.info().vocab_size),
                           "invalid_value");
      prompt.tokens.push_back(static_cast<int32_t>(id));
    }
    if (auto text = engine.decode(prompt.tokens); text.ok()) prompt.echo = std::move(text).value();
    prompts.push_back(std::move(prompt));
    return std::nullopt;
  };
  std::optional<ApiError> error;
  const auto found = call.body.find("prompt");
  if (found == call.body.end() && !suffix.empty()) error = add_text("", "prompt");
  else if (found == call.body.end()) prompts.emplace_back();
  else if (found->is_string()) error = add_text(*found, "prompt");
  else if (found->empty()) error = bad_request("prompt", "prompt is an empty list", "invalid_value");
  else if ((*found)[0].is_number()) error = add_tokens(*found, "prompt");
  else
    for (size_t i = 0; i < found->size() && !error; ++i) {
      const std::string path = fmt::format("prompt[{}]", i);
      const Json& item = (*found)[i];
      if (item.is_string()) error = add_text(item, path);
      else if (item.is_array()) error = add_tokens(item, path);
      else error = bad_request(path, path + " must be a text or a list of token ids like the others", "invalid_type");
    }
  if (error) return *error;
  if (std::ssize(prompts) > kMaxPrompts)
    return bad_request("prompt", fmt::format("there are {} prompts; the limit is {}", prompts.size(), kMaxPrompts),
                       "invalid_value");
  return prompts;
}

/// Computes the log probabilities of the prompt itself, for `echo` and prompt_logprobs.
std::optional<ApiError> score(const Call& call, const ModelChoice& choice, const AdapterWeights& adapters,
                              PromptText& prompt) {
  TextEngine& engine = choice.model->engine();
  const TokenFields fields(call.body);
  const bool has_logprobs = call.body.value("echo", false) && call.body.contains("logprobs");
  std::vector<size_t> places;
  if (has_logprobs) places = token_places(engine, prompt.tokens, prompt.echo, prompt.chars);
  if (!has_logprobs && fields.prompt_logprobs < 0) return std::nullopt;
  const int num_top = has_logprobs ? call.body["logprobs"].get<int>() : 0;
  const auto scores =
      score_prompt(engine, prompt.tokens, adapters, static_cast<size_t>(std::max(num_top, fields.prompt_logprobs)));
  if (!scores.ok()) return api_error(scores.status(), "prompt");
  if (fields.prompt_logprobs >= 0)
    prompt.prompt_logprobs =
        prompt_logprobs_json(engine, prompt.tokens, *scores, static_cast<size_t>(fields.prompt_logprobs));
  for (size_t i = 0; i < prompt.tokens.size() && has_logprobs; ++i) {
    TokenScore s = i == 0 ? TokenScore{} : scores.value()[i - 1];
    s.top.resize(std::min(s.top.size(), static_cast<size_t>(num_top)));
    prompt.logprobs.add(engine, prompt.tokens[i], s.logprob, s.top, places[i], fields.names_ids, i == 0);
  }
  return std::nullopt;
}

AnswerOr post_completions(Call& call) {
  const Json& body = call.body;
  SERVER_ASSIGN(const ModelChoice choice, call.app.models().find(body.value("model", std::string())));
  SERVER_ASSIGN(GenerateRequest request, generation_request(call, choice));
  request.max_tokens = max_tokens_of(body, {"max_tokens"}, 16, choice.model->info().context);
  request.special = !body.value("skip_special_tokens", true);
  request.num_logprobs = body.value("logprobs", -1);
  SERVER_ASSIGN(const bool searches, asks_for_beams(call, request));
  std::vector<int32_t> stop_tokens;
  SERVER_ASSIGN(std::vector<PromptText> prompts, prompts_of(call, choice.model->engine(), stop_tokens));
  request.stop_tokens.insert(request.stop_tokens.end(), stop_tokens.begin(), stop_tokens.end());
  const auto n = body.value("n", size_t{1}), best_of = body.value("best_of", n);
  if (best_of < n)
    return bad_request("best_of", fmt::format("best_of is {}; it must be at least n, {}", best_of, n), "invalid_value");
  if (best_of > n && body.value("stream", false))
    return bad_request("best_of", "best_of above n cannot be streamed: the best texts are known at the end",
                       "unsupported_value");
  if (best_of > n) request.num_logprobs = std::max(request.num_logprobs, 0);
  // Check the number of texts before a copy of the request is made for each.
  const auto count = static_cast<int64_t>(prompts.size() * best_of);
  if (count > choice.model->max_in_flight())
    return bad_request(
        "n", fmt::format("the request asks for {} texts; the limit is {}", count, choice.model->max_in_flight()),
        "invalid_value");
  const bool echoes = body.value("echo", false);
  std::vector<GenerateRequest> requests;
  const std::vector<std::string> stop = request.stop;
  for (PromptText& prompt : prompts) {
    if (auto error = check_context(choice.model->info(), std::ssize(prompt.tokens), "prompt")) return *error;
    if (!echoes) prompt.echo.clear();
    if (auto error = score(call, choice, request.adapters, prompt)) return *error;
    request.prompt = prompt.tokens;
    for (size_t i = 0; i < best_of && !searches; ++i) {
      requests.push_back(request);
      requests.back().sampling.seed += i;
    }
  }
  const auto begin = [&] {
    if (!searches) return start_choices(call, choice.model, requests);
    std::vector<Prompt> texts;
    texts.reserve(prompts.size());
    for (const PromptText& prompt : prompts) texts.emplace_back(prompt.tokens);
    return start_search(call, choice.model, request, texts);
  };
  SERVER_ASSIGN(auto choices, begin());
  return std::unique_ptr<Answer>(
      std::make_unique<CompletionAnswer>(call, choice, std::move(choices), std::move(prompts), stop, n));
}

}  // namespace

std::vector<Endpoint> completions_endpoints() {
  return {{"POST",
           "/v1/completions",
           "text",
           "continue a text",
           {{200, "the texts; with stream, events of the same shape", &completions_answer_schema},
            {200, "with stream", nullptr, "text/event-stream"}},
           post_completions,
           {.request = &completions_request_schema, .needs_models = true, .error_statuses = {404}}}};
}

}  // namespace redline::server
