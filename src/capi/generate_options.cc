#include "capi/generate_options.h"

#include <random>

#include "capi/option_fields.h"

namespace redline::capi {
namespace {

Status read_sampling(const redline_generate_options& o, SamplingOptions& s) {
#define REDLINE_OPTION(type, name, ...) read_request_option(o.name, s.name);
#include "redline/generate_options.inc"
  s.top_k = std::max<int64_t>(0, s.top_k);  // vLLM's "off" is -1
  s.seed = o.has_seed != 0 ? o.seed : uint64_t{std::random_device()()} << 32 | std::random_device()();
  if (o.dry_sequence_breakers != nullptr) {
    REDLINE_ASSIGN(s.dry_sequence_breakers,
                   strings_of(o.dry_sequence_breakers, o.num_dry_sequence_breakers, "dry_sequence_breakers"));
  }
  if (o.samplers != nullptr) {
    REDLINE_ASSIGN(s.samplers, strings_of(o.samplers, o.num_samplers, "samplers"));
    for (std::string& name : s.samplers) {
      REDLINE_ASSIGN(name, sampler_name(name));
    }
  }
  if (o.num_bad_words > 0) {
    REDLINE_ASSIGN(s.bad_words, strings_of(o.bad_words, o.num_bad_words, "bad_words"));
  }
  if (o.num_logit_bias > 0) {
    REDLINE_TRY(required(o.logit_bias_tokens, "logit_bias_tokens"));
    REDLINE_TRY(required(o.logit_bias_values, "logit_bias_values"));
    s.logit_bias.clear();
    s.logit_bias.reserve(o.num_logit_bias);
    for (size_t i = 0; i < o.num_logit_bias; ++i)
      s.logit_bias.emplace_back(o.logit_bias_tokens[i], o.logit_bias_values[i]);
  }
  return {};
}

Result<OutputConstraint> read_constraint(const redline_generate_options& o) {
  using Kind = OutputConstraint::Kind;
  const std::pair<const char*, Kind> kinds[] = {{o.json_schema, Kind::kJsonSchema},
                                                {o.regex, Kind::kRegex},
                                                {o.grammar, Kind::kGrammar},
                                                {o.tool_calls, Kind::kToolCalls}};
  OutputConstraint constraint;
  int given = 0;
  for (const auto& [text, kind] : kinds) {
    if (text == nullptr) continue;
    ++given;
    constraint.kind = kind;
    constraint.text = text;
  }
  if (o.num_choices > 0) {
    ++given;
    constraint.kind = Kind::kChoice;
    REDLINE_ASSIGN(constraint.choices, strings_of(o.choices, o.num_choices, "choices"));
  }
  if (given > 1)
    return invalid_argument("{} of json_schema, regex, grammar, choices and tool_calls are set; a text follows one",
                            given);
  constraint.allows_several_calls = o.parallel_tool_calls != 0;
  constraint.json = {.is_compact = o.json_compact != 0,
                     .allows_additional = o.json_additional_properties != 0,
                     .is_relaxed = o.json_relaxed != 0};
  return constraint;
}

Result<GenerateRequest> request_without_prompt(const redline_generate_options& o, const TextContents& model) {
  GenerateRequest request;
  request.sampling = model.engine->default_sampling();
  REDLINE_TRY(read_sampling(o, request.sampling));
  REDLINE_ASSIGN(request.constraint, read_constraint(o));
  REDLINE_ASSIGN(request.stop, strings_of(o.stop, o.num_stop, "stop"));
  REDLINE_ASSIGN(request.adapters, adapter_weights(o.adapters, o.num_adapters));
  if (o.num_stop_token_ids > 0) {
    REDLINE_TRY(required(o.stop_token_ids, "stop_token_ids"));
    request.stop_tokens.assign(o.stop_token_ids, o.stop_token_ids + o.num_stop_token_ids);
  }
#define REDLINE_REQUEST_OPTION(type, name, ...) read_request_option(o.name, request.name);
#include "redline/generate_options.inc"
  request.ignore_stop_tokens = o.ignore_eos != 0;
  request.special = o.skip_special_tokens == 0;
  request.num_logprobs = o.logprobs;
  return request;
}

/// Returns an error for options that read the text of the prompt.
Status check_prompt_is_no_chat(const redline_generate_options& o) {
  return o.tool_calls == nullptr ? Status() : invalid_argument("tool_calls needs a prompt that is given as text");
}

}  // namespace

redline_generate_options default_generate_options(const TextContents* model) {
  static const SamplingOptions kDefaults;
  const SamplingOptions& s = model != nullptr ? model->engine->default_sampling() : kDefaults;
  redline_generate_options o = {};
  o.struct_size = sizeof o;
  static const GenerateRequest kRequest;
#define REDLINE_OPTION(type, name, ...) borrow_option(s.name, o.name);
#define REDLINE_REQUEST_OPTION(type, name, ...) borrow_option(kRequest.name, o.name);
#include "redline/generate_options.inc"
  o.skip_special_tokens = 1;
  o.add_bos = 1;
  o.logprobs = -1;
  if (model != nullptr) {
    o.adapters = model->adapters->weights.data();
    o.num_adapters = model->adapters->weights.size();
  }
  return o;
}

Result<GenerateRequest> request_of(const redline_prompt& prompt, const redline_generate_options* given,
                                   const TextContents& model) {
  REDLINE_ASSIGN(const redline_generate_options o,
                 read_struct(given, default_generate_options(&model), "redline_generate_options"));
  REDLINE_ASSIGN(GenerateRequest request, request_without_prompt(o, model));
  if (prompt.tokens != nullptr) {
    REDLINE_TRY(check_prompt_is_no_chat(o));
    request.prompt = Prompt(std::span(prompt.tokens, prompt.num_tokens));
    return request;
  }
  if (prompt.num_tokens > 0)
    return invalid_argument("{} tokens are given, and the pointer to them is NULL", prompt.num_tokens);
  REDLINE_ASSIGN(const std::string_view text, text_of(prompt.text, prompt.length, "text"));
  // The text is a conversation as render_chat() writes it. Its answer shows the control tokens, because the chat reader
  // needs them.
  if (o.tool_calls != nullptr || (o.parse_special != 0 && request.special)) request.chat_prompt = text;
  REDLINE_ASSIGN(request.prompt, model.engine->encode(text, o.parse_special != 0, o.add_bos != 0));
  return request;
}

Result<GenerateRequest> request_of(const redline_prompt_spans* prompt, const redline_generate_options* given,
                                   const TextContents& model) {
  REDLINE_ASSIGN(const redline_generate_options o,
                 read_struct(given, default_generate_options(&model), "redline_generate_options"));
  REDLINE_TRY(required(prompt, "prompt"));
  REDLINE_TRY(check_prompt_is_no_chat(o));
  REDLINE_ASSIGN(GenerateRequest request, request_without_prompt(o, model));
  request.prompt = prompt->prompt;
  return request;
}

}  // namespace redline::capi
