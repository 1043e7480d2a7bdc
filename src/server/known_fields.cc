#include "server/known_fields.h"

#include <algorithm>
#include <unordered_map>

#include "base/text_distance.h"

namespace redline::server {
namespace {

struct SchemaPlaces {
  std::string_view schema;
  unsigned places;
};
constexpr SchemaPlaces kSchemas[] = {
    {"ChatRequest", kInChat},
    {"ApplyTemplateRequest", kInChat},
    {"CompletionRequest", kInCompletion},
    {"ResponseRequest", kInResponse},
    {"AnthropicRequest", kInAnthropic},
    {"AnthropicCountRequest", kInAnthropic},
    {"OllamaChatRequest", kInOllama},
    {"OllamaGenerateRequest", kInOllama},
    {"OllamaOptions", kInOllamaOptions},
    {"EmbeddingRequest", kInEmbedding},
    {"OllamaEmbedRequest", kInEmbedding},
    {"OllamaEmbeddingsRequest", kInEmbedding},
    {"RerankRequest", kInRerank},
    {"ChatMessage", kInMessage},
    {"OllamaMessage", kInMessage},
    {"ContentPart", kInPart},
    {"Tool", kInTool},
    {"ToolFunction", kInTool},
    {"ResponseInputItem", kInMessage},
    {"ResponsePart", kInPart},
    {"ResponseTool", kInTool},
    {"AnthropicMessage", kInMessage},
    {"AnthropicBlock", kInPart},
    {"AnthropicTool", kInTool},
    {"LlamaCompletionRequest", kInLlamaCompletion},
    {"LlamaInfillRequest", kInLlamaCompletion},
};

using Names = std::vector<std::string>;

/// Converts {"type": "enabled"} of DeepSeek, GLM and Anthropic, or a boolean.
std::string_view convert_thinking(const Json& value, Json& instead, Names& without_effect) {
  if (value.is_boolean()) {
    instead["enable_thinking"] = value;
    return {};
  }
  constexpr std::string_view kWrong = "true, false, or an object with the type enabled, disabled, adaptive or auto";
  if (!value.is_object() || !value.contains("type")) return kWrong;
  for (const auto& [name, member] : value.items())
    if (name != "type" && !member.is_null()) without_effect.push_back(name);
  const Json& type = value["type"];
  if (type == "enabled" || type == "adaptive" || type == "disabled") instead["enable_thinking"] = type != "disabled";
  else if (type != "auto") return kWrong;
  return {};
}

/// Converts a boolean, or an effort as Ollama's clients write it.
std::string_view convert_think(const Json& value, Json& instead, Names&) {
  if (value.is_boolean()) instead["enable_thinking"] = value;
  else if (value == "true" || value == "false") instead["enable_thinking"] = value == "true";
  else if (value.is_string()) instead["reasoning_effort"] = value;
  else return "true, false or an effort";
  return {};
}

/// Converts {"effort", "enabled", "exclude", "max_tokens"} of OpenRouter, or the object of the Responses API in a chat.
std::string_view convert_reasoning(const Json& value, Json& instead, Names& without_effect) {
  if (!value.is_object()) return convert_think(value, instead, without_effect);
  for (const auto& [name, member] : value.items()) {
    if (member.is_null()) continue;
    if (name == "effort") instead["reasoning_effort"] = member;
    else if (name == "enabled") instead["enable_thinking"] = member;
    else if (name == "exclude" && member.is_boolean()) instead["include_reasoning"] = !member.get<bool>();
    else without_effect.push_back(name);
  }
  return {};
}

/// Converts a number of thinking tokens. The number is not enforced, but 0 turns thinking off.
std::string_view convert_thinking_budget(const Json& value, Json& instead, Names& without_effect) {
  if (!value.is_number()) return "a number";
  if (value == 0) instead["enable_thinking"] = false;
  else without_effect.emplace_back();
  return {};
}

std::string_view convert_separate_reasoning(const Json& value, Json& instead, Names&) {
  if (!value.is_boolean()) return "true or false";
  instead["reasoning_format"] = value.get<bool>() ? "deepseek" : "none";
  return {};
}

std::string_view convert_reasoning_in_content(const Json& value, Json& instead, Names&) {
  if (!value.is_boolean()) return "true or false";
  if (value.get<bool>()) instead["reasoning_format"] = "none";
  return {};
}

/// Converts {"include": true} of OpenRouter.
std::string_view convert_usage(const Json& value, Json& instead, Names& without_effect) {
  if (!value.is_object()) return "an object";
  for (const auto& [name, member] : value.items()) {
    if (name == "include" && member == true) instead["stream_options"] = {{"include_usage", true}};
    else if (name != "include") without_effect.push_back(name);
  }
  return {};
}

std::string_view convert_n_probs_of_chat(const Json& value, Json& instead, Names&) {
  if (!value.is_number_integer()) return "an integer";
  if (value > 0) instead = {{"logprobs", true}, {"top_logprobs", value}};
  return {};
}
std::string_view convert_n_probs(const Json& value, Json& instead, Names&) {
  if (!value.is_number_integer()) return "an integer";
  if (value > 0) instead["logprobs"] = value;
  return {};
}

std::string_view convert_milliseconds(const Json& value, Json& instead, Names&) {
  if (!value.is_number()) return "a number of milliseconds";
  if (const double ms = value.get<double>(); ms > 0) instead["timeout"] = ms / 1e3;
  return {};
}

/// Converts Ollama's format: "json", or a JSON Schema.
std::string_view convert_format(const Json& value, Json& instead, Names&) {
  if (value == "json") instead["response_format"] = {{"type", "json_object"}};
  else if (value.is_object()) instead["response_format"] = {{"type", "json_schema"}, {"schema", value}};
  else if (value != Json("")) return "\"json\" or a JSON Schema";
  return {};
}

/// Converts llama.cpp's number of the vector norm.
std::string_view convert_embd_normalize(const Json& value, Json& instead, Names&) {
  if (value != -1 && value != 2) return "2 (Euclidean length 1) or -1 (as the model has them)";
  instead["normalize"] = value == 2;
  return {};
}

/// These accept the element type of Voyage, and the list of types of Cohere, if they select floats.
std::string_view convert_output_dtype(const Json& value, Json&, Names&) {
  return value == "float" ? "" : "\"float\", which is what the vectors have";
}
std::string_view convert_embedding_types(const Json& value, Json& instead, Names&) {
  if (value == Json::array({"base64"})) instead["encoding_format"] = "base64";
  else if (value != Json::array({"float"})) return "[\"float\"] or [\"base64\"], which is what the vectors have";
  return {};
}

using Use = FieldUse;
constexpr std::string_view kCutNote = "prompts are never cut",
                           kCacheNote = "the prefix cache finds prompts by their tokens";
constexpr std::string_view kModelNote = "it is set when the server starts", kServerNote = "there is only one server";
constexpr std::string_view kClientNote = "for the caller's own records", kCallerNote = "tools are called by the client";
constexpr unsigned kTexts = kInChat | kInCompletion | kInResponse | kInAnthropic | kInLlamaCompletion;
constexpr unsigned kPlain = kInCompletion | kInLlamaCompletion;

constexpr KnownField kTable[] = {
    // Sampling and length, under other names.
    {"repeat_penalty", "llama.cpp, LM Studio, Ollama", kInOpenAi | kInResponse, Use::kMapped, "repetition_penalty"},
    {"repetition_penalty", "vLLM, SGLang", kInLlamaCompletion | kInOllamaOptions, Use::kMapped, "repeat_penalty"},
    {"penalty_last_n repetition_penalty_range", "llama.cpp, KoboldAI", kInOpenAi | kInResponse | kInLlamaCompletion,
     Use::kMapped, "repeat_last_n"},
    {"typ_p typical", "llama.cpp, text-generation-webui", kInOpenAi | kInResponse | kInLlamaCompletion, Use::kMapped,
     "typical_p"},
    {"n_predict num_predict max_new_tokens max_output_tokens max_tokens_to_sample", "llama.cpp, Ollama, Transformers",
     kInOpenAi, Use::kMapped, "max_tokens"},
    {"max_completion_tokens", "OpenAI", kInCompletion, Use::kMapped, "max_tokens"},
    {"n_predict num_predict max_new_tokens max_tokens max_completion_tokens", "llama.cpp, Ollama, OpenAI", kInResponse,
     Use::kMapped, "max_output_tokens"},
    {"max_tokens num_predict max_new_tokens", "OpenAI", kInLlamaCompletion, Use::kMapped, "n_predict"},
    {"max_tokens max_new_tokens n_predict", "OpenAI, llama.cpp", kInOllamaOptions, Use::kMapped, "num_predict"},
    {"min_new_tokens", "SGLang, Transformers", kInOpenAi | kInResponse, Use::kMapped, "min_tokens"},
    {"random_seed", "Mistral", kInOpenAi | kInResponse, Use::kMapped, "seed"},
    {"n_cmpl", "llama.cpp", kInOpenAi, Use::kMapped, "n"},
    {"stop_sequences", "Cohere, Anthropic", kInOpenAi | kInResponse | kInLlamaCompletion, Use::kMapped, "stop"},
    {"stop", "OpenAI", kInAnthropic, Use::kMapped, "stop_sequences"},
    {"no_stop_trim", "SGLang", kInOpenAi | kInResponse, Use::kMapped, "include_stop_str_in_output"},
    {"t_max_predict_ms", "llama.cpp", kInOpenAi | kInResponse | kInLlamaCompletion, Use::kMapped, "timeout",
     convert_milliseconds},
    {"n_probs", "llama.cpp", kInChat, Use::kMapped, "logprobs, top_logprobs", convert_n_probs_of_chat},
    {"n_probs", "llama.cpp", kInCompletion, Use::kMapped, "logprobs", convert_n_probs},
    {"temperature top_p seed stop", "OpenAI", kInOpenAi, Use::kHonoured, ""},
    {"presence_penalty frequency_penalty logit_bias", "OpenAI", kInOpenAi, Use::kHonoured, ""},
    {"top_k min_p repetition_penalty bad_words ignore_eos min_tokens stop_token_ids", "vLLM, SGLang",
     kInOpenAi | kInResponse, Use::kHonoured, ""},
    {"do_sample", "GLM, Transformers", kInOpenAi | kInResponse, Use::kHonoured, "false: greedy, the most likely token"},
    {"include_stop_str_in_output", "vLLM", kInOpenAi | kInResponse, Use::kHonoured, ""},
    {"skip_special_tokens", "vLLM, SGLang", kInCompletion, Use::kHonoured, ""},
    {"skip_special_tokens", "vLLM, SGLang", kInChat | kInResponse, Use::kIgnored,
     "special tokens are read by the format of the conversation"},
    {"repeat_last_n typical_p top_n_sigma xtc_probability xtc_threshold dry_multiplier dry_base dry_allowed_length "
     "dry_penalty_last_n dry_sequence_breakers mirostat mirostat_tau mirostat_eta dynatemp_range dynatemp_exponent "
     "samplers",
     "llama.cpp", kInOpenAi | kInResponse, Use::kHonoured, ""},
    {"best_of use_beam_search length_penalty", "vLLM", kInCompletion, Use::kHonoured, ""},
    {"use_beam_search length_penalty", "vLLM", kInChat, Use::kHonoured, ""},
    {"top_a min_keep adaptive_target adaptive_decay epsilon_cutoff eta_cutoff early_stopping",
     "OpenRouter, llama.cpp, text-generation-webui", kTexts, Use::kIgnored, "Redline has no such sampler"},
    {"tfs_z penalize_newline penalize_nl", "llama.cpp, Ollama", kTexts, Use::kIgnored, "Redline has no such sampler"},
    {"smoothing_factor smoothing_curve", "text-generation-webui", kTexts, Use::kIgnored, "Redline has no such sampler"},
    {"post_sampling_probs", "llama.cpp", kInOpenAi | kInLlamaCompletion, Use::kIgnored,
     "log probabilities are always those of the model"},

    // Thinking.
    {"reasoning_effort", "OpenAI, vLLM, LM Studio, DeepSeek", kInChat | kInResponse, Use::kHonoured,
     "the template's variables; none turns thinking off"},
    {"enable_thinking", "Qwen, GLM, SGLang", kInChat | kInResponse, Use::kHonoured, "the template's variables"},
    {"chat_template_kwargs", "vLLM, SGLang, llama.cpp, LiteLLM", kInChat | kInResponse, Use::kHonoured, ""},
    {"thinking", "DeepSeek, GLM, LiteLLM", kInChat | kInResponse, Use::kMapped, "enable_thinking", convert_thinking},
    {"think", "Ollama", kInChat | kInResponse, Use::kMapped, "enable_thinking, reasoning_effort", convert_think},
    {"reasoning", "OpenRouter", kInChat, Use::kMapped, "reasoning_effort, enable_thinking, include_reasoning",
     convert_reasoning},
    {"thinking_budget thinking_budget_tokens reasoning_budget thinking_token_budget", "Qwen, llama.cpp, vLLM",
     kInChat | kInResponse, Use::kMapped, "enable_thinking: false if the value is 0", convert_thinking_budget},
    {"include_reasoning", "OpenRouter, vLLM, Groq", kInChat, Use::kHonoured, "false: reasoning is left out"},
    {"reasoning_format", "llama.cpp, Groq", kInChat, Use::kHonoured, "none: reasoning stays in the content"},
    {"separate_reasoning", "SGLang", kInChat, Use::kMapped, "reasoning_format", convert_separate_reasoning},
    {"reasoning_in_content", "llama.cpp", kInChat, Use::kMapped, "reasoning_format", convert_reasoning_in_content},
    {"stream_reasoning reasoning_split preserve_thinking thinking_forced_open", "SGLang, MiniMax, Qwen, llama.cpp",
     kInChat | kInResponse, Use::kIgnored, "reasoning is always sent as it is generated"},

    // Formats and constraints.
    {"response_format structured_outputs guided_json guided_regex guided_choice guided_grammar json_schema grammar "
     "guided_whitespace_pattern",
     "OpenAI, vLLM, llama.cpp", kInOpenAi, Use::kHonoured, ""},
    {"regex", "SGLang", kInOpenAi | kInResponse, Use::kMapped, "guided_regex"},
    {"format", "Ollama", kInOpenAi, Use::kMapped, "response_format", convert_format},
    {"ebnf", "SGLang", kInOpenAi | kInResponse, Use::kRefused,
     "is not supported; write the grammar as GBNF in the field grammar"},
    {"structural_tag", "SGLang, vLLM", kInOpenAi | kInResponse, Use::kRefused, "is not supported; use tools"},
    {"guided_decoding_backend grammar_lazy grammar_triggers preserved_tokens chat_format "
     "parse_tool_calls chat_parser generation_prompt",
     "vLLM, llama.cpp", kTexts, Use::kIgnored, "there is one grammar engine"},

    // The prompt.
    {"add_generation_prompt continue_final_message documents", "vLLM", kInChat, Use::kHonoured, ""},
    {"chat_template", "vLLM", kInChat, Use::kRefused, "is not supported; start the server with --chat-template"},
    {"echo", "vLLM", kInChat | kInResponse, Use::kRefused, "is not supported in a conversation"},
    {"truncate_prompt_tokens", "vLLM", kTexts | kInOllama, Use::kRefused, "is not supported: prompts are never cut"},
    {"prompt_embeds input_embeds", "vLLM, SGLang", kInOpenAi, Use::kRefused, "is not supported"},
    {"messages", "OpenAI", kPlain, Use::kRefused, "belongs to /v1/chat/completions; this endpoint reads prompt"},
    {"image_data image_url images", "llama.cpp, Ollama", kInOpenAi | kInLlamaCompletion, Use::kRefused,
     "is not supported: the model reads text"},
    {"functions", "OpenAI", kInChat, Use::kRefused, "is not supported; use tools"},
    {"function_call", "OpenAI", kInChat, Use::kRefused, "is not supported; use tool_choice"},
    {"suffix", "OpenAI, Ollama", kInCompletion, Use::kHonoured,
     "the text before it is filled in, by models with markers for that"},
    {"suffix", "OpenAI, Ollama", kInChat, Use::kRefused, "is not supported in a conversation"},
    {"add_special_tokens", "vLLM", kInCompletion, Use::kHonoured, ""},
    {"add_special_tokens", "vLLM", kInChat | kInResponse, Use::kIgnored, "the chat template writes special tokens"},
    {"spaces_between_special_tokens detokenize", "vLLM", kTexts, Use::kIgnored, "the tokenizer's own rules apply"},
    {"truncate shift context_length_exceeded_behavior prompt_truncate_len transforms truncation_strategy",
     "Ollama, Together, Fireworks, OpenRouter", kTexts, Use::kIgnored, kCutNote},
    {"mm_processor_kwargs media_io_kwargs vl_high_resolution_images document_image_limit document_page_limit",
     "vLLM, Qwen, Mistral", kTexts, Use::kIgnored, "the model reads text"},
    {"raw template", "Ollama", kInChat, Use::kIgnored, "a chat uses the model's template"},
    {"safe_prompt prompt_mode", "Mistral", kInChat, Use::kIgnored, "nothing is added to the prompt"},

    // Caches, memory and the machine.
    {"cache_prompt id_slot n_keep n_discard n_cache_reuse cache_control prompt_cache_key prompt_cache_options "
     "prompt_cache_retention session_id extra_key",
     "llama.cpp, OpenRouter, OpenAI", kTexts, Use::kIgnored, kCacheNote},
    {"cache_salt priority", "vLLM", kInOpenAi | kInResponse, Use::kHonoured, ""},
    {"lora", "llama.cpp", kInOpenAi | kInResponse, Use::kHonoured, ""},
    {"lora_path", "SGLang", kInOpenAi | kInResponse, Use::kRefused, "is not supported; use lora, or MODEL:ADAPTER"},
    {"keep_alive", "Ollama", kInOpenAi | kInEmbedding, Use::kHonoured, ""},
    {"ttl", "LM Studio", kInOpenAi | kInEmbedding, Use::kMapped, "keep_alive"},
    {"options", "Ollama", kInOpenAi | kInResponse | kInLlamaCompletion, Use::kMembers, "its members are fields"},
    {"extra_body", "LiteLLM, clients of OpenAI's library", kInOpenAi | kInResponse | kInAnthropic, Use::kMembers,
     "its members are fields"},
    {"num_ctx n_ctx context_length max_model_len num_batch num_gpu main_gpu num_thread num_threads num_keep "
     "num_parallel use_mmap use_mlock numa f16_kv low_vram vocab_only logits_all embedding_only num_gqa "
     "rope_frequency_base "
     "rope_frequency_scale n_gpu_layers",
     "Ollama, LM Studio", kTexts | kInOllama | kInOllamaOptions | kInEmbedding, Use::kIgnored, kModelNote},
    {"draft_model speculative speculation speculative.n_max speculative.n_min speculative.p_min "
     "speculative.type",
     "LM Studio, llama.cpp, Fireworks", kTexts, Use::kIgnored, kModelNote},
    {"prediction", "OpenAI", kInOpenAi, Use::kIgnored, "predicted outputs are not used"},
    {"draft_num_predict", "Ollama", kInOllamaOptions, Use::kIgnored, kModelNote},
    {"kv_transfer_params vllm_xargs session_params bootstrap_host bootstrap_port bootstrap_room data_parallel_rank "
     "routed_dp_rank backend_sampling n_indent t_max_prompt_ms",
     "vLLM, SGLang, llama.cpp", kTexts, Use::kIgnored, kServerNote},

    // Parts of an answer besides its text.
    {"logprobs", "OpenAI", kInOpenAi, Use::kHonoured, ""},
    {"top_logprobs", "OpenAI", kInChat, Use::kHonoured, ""},
    {"return_token_ids return_tokens_as_token_ids prompt_logprobs", "vLLM", kInOpenAi, Use::kHonoured, ""},
    {"timings_per_token return_progress return_tokens response_fields sse_ping_interval perf_metrics_in_response "
     "raw_output include_debug debug trace return_meta_info",
     "llama.cpp, Fireworks, OpenRouter", kInOpenAi | kInResponse | kInAnthropic, Use::kIgnored,
     "the answer has usage; see /metrics"},
    {"return_progress timings_per_token sse_ping_interval", "llama.cpp", kInLlamaCompletion, Use::kIgnored,
     "the answer has timings; see /metrics"},
    {"return_hidden_states return_routed_experts", "SGLang", kTexts, Use::kRefused, "is not supported"},
    {"usage", "OpenRouter", kInOpenAi, Use::kMapped, "stream_options.include_usage", convert_usage},
    {"incremental_output result_format tool_stream", "Qwen, GLM", kTexts, Use::kIgnored,
     "streams always have OpenAI's format"},
    {"verbosity", "OpenAI", kInChat, Use::kIgnored, "the model decides"},

    // Requests to change the output in ways that are not supported.
    {"logits_processors custom_logit_processor custom_params", "vLLM, SGLang", kTexts, Use::kRefused,
     "is not supported; see logit_bias"},
    {"allowed_token_ids", "vLLM", kTexts, Use::kRefused, "is not supported; use guided_choice or grammar"},
    {"stop_regex", "SGLang", kTexts, Use::kRefused, "is not supported; use stop"},

    // Fields for the services around a model.
    {"metadata store service_tier safety_identifier moderation request_id user_id rid tags trace_id client_metadata "
     "session_metadata user_config",
     "OpenAI, vLLM, SGLang, GLM, LiteLLM", kInOpenAi | kInLlamaCompletion, Use::kIgnored, kClientNote},
    {"service_tier safety_identifier moderation request_id user_id rid client_metadata", "OpenAI, Codex", kInResponse,
     Use::kIgnored, kClientNote},
    {"request_id", "vLLM", kInAnthropic | kInOllama | kInEmbedding | kInRerank, Use::kIgnored, kClientNote},
    {"provider models route plugins preset", "OpenRouter", kTexts, Use::kIgnored, kServerNote},
    {"fallbacks num_retries max_retries request_timeout stream_timeout drop_params allowed_openai_params mock_response "
     "cache caching api_key api_base base_url api_version custom_llm_provider extra_headers headers guardrails "
     "litellm_call_id litellm_metadata litellm_logging_obj litellm_session_id litellm_trace_id no-log ttl_seconds",
     "LiteLLM", kTexts | kInEmbedding, Use::kIgnored, "only a proxy uses it"},
    {"web_search_options enable_search search_options search_parameters search_mode search_domain_filter "
     "search_recency_filter return_images return_related_questions enable_code_interpreter translation_options skill "
     "citation_options compound_custom",
     "OpenAI, Qwen, xAI, Perplexity, Groq", kTexts, Use::kIgnored, kCallerNote},
    {"sensitive_word_check watermark_enabled mask_sensitive_info safety_model safety_settings safe_mode meta",
     "GLM, MiniMax, Together, Mistral", kTexts, Use::kIgnored, "output is neither checked nor marked"},
    {"audio", "OpenAI", kInChat, Use::kIgnored, "answers are always text"},
    {"deferred background_mode mode character instruction_template", "xAI, text-generation-webui", kInOpenAi,
     Use::kIgnored, "a request is answered at once, with the template of the model"},
    {"beta betas anthropic_version anthropic_beta", "Anthropic", kInAnthropic, Use::kIgnored, "there is one version"},
    {"system_fingerprint object created", "clients that send an answer back", kInOpenAi, Use::kIgnored, ""},

    // Messages.
    {"reasoning_content reasoning", "DeepSeek, vLLM, OpenRouter", kInMessage, Use::kHonoured, ""},
    {"thinking", "Ollama", kInMessage, Use::kHonoured, ""},
    {"reasoning_details thinking_blocks", "OpenRouter, LiteLLM", kInMessage, Use::kHonoured,
     "read if the message has no other reasoning"},
    {"prefix partial", "DeepSeek, Mistral, Qwen, Kimi", kInMessage, Use::kHonoured,
     "on the last message, as continue_final_message"},
    {"function_call", "OpenAI", kInMessage, Use::kHonoured, "read as tool_calls"},
    {"images", "Ollama", kInMessage, Use::kHonoured, "only an empty list: models read text"},
    {"cache_control", "Anthropic, OpenRouter", kInMessage | kInPart | kInTool, Use::kIgnored, kCacheNote},
    {"prompt_cache_breakpoint", "OpenAI", kInMessage | kInPart | kInTool, Use::kIgnored, kCacheNote},
    {"provider_specific_fields extra_content signature thought_signature encrypted_content", "LiteLLM, Gemini",
     kInMessage | kInPart | kInTool, Use::kIgnored, "only the service that made it can read it"},
    {"id created created_at createdAt timestamp status phase index finish_reason logprobs annotations audio citations "
     "tokens usage model metadata context title parent_id",
     "clients that send an answer back", kInMessage | kInPart, Use::kIgnored, "for the caller's own records"},

    // Tools.
    {"strict", "OpenAI", kInTool, Use::kIgnored, "required calls always follow the schema of the tool"},
    {"output_schema outputSchema defer_loading allowed_callers input_examples eager_input_streaming annotations title "
     "return response",
     "OpenAI, Anthropic, MCP", kInTool, Use::kIgnored, "the chat template does not use it"},

    // Vectors and ranking.
    {"normalized embedding_normalize", "Jina", kInEmbedding, Use::kMapped, "normalize"},
    {"output_dimension output_dimensions outputDimensionality", "Voyage, Cohere", kInEmbedding, Use::kMapped,
     "dimensions"},
    {"embd_normalize", "llama.cpp", kInEmbedding, Use::kMapped, "normalize", convert_embd_normalize},
    {"input_type task", "Cohere, NVIDIA, Voyage, Jina", kInEmbedding, Use::kHonoured,
     "choose one of the model's prompts, if it has one for that purpose"},
    {"task_type", "Gemini", kInEmbedding, Use::kMapped, "task"},
    {"truncate truncate_prompt_tokens", "vLLM, NVIDIA, Cohere", kInEmbedding, Use::kHonoured, ""},
    {"user metadata priority additional_data", "OpenAI, vLLM", kInEmbedding | kInRerank, Use::kIgnored,
     "nothing is recorded"},
    {"modality embedding_type add_special_tokens cache_salt", "NVIDIA, vLLM", kInEmbedding | kInRerank, Use::kIgnored,
     "the model's own setting applies"},
    {"output_dtype", "Voyage", kInEmbedding, Use::kMapped, "float, which is the only type", convert_output_dtype},
    {"embedding_types", "Cohere", kInEmbedding, Use::kMapped, "encoding_format", convert_embedding_types},
    {"late_chunking", "Jina", kInEmbedding, Use::kRefused, "is not supported; vectors are those of whole texts"},
    {"truncate_prompt_tokens max_chunks_per_doc max_tokens_per_doc rank_fields overlap_tokens", "vLLM, Cohere",
     kInRerank, Use::kIgnored, "see truncate"},
};

/// Returns the names of a row.
std::vector<std::string_view> names_of(const KnownField& row) {
  std::vector<std::string_view> names;
  for (std::string_view rest = row.names; !rest.empty();) {
    const size_t end = std::min(rest.find(' '), rest.size());
    names.push_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return names;
}

using RowsByName = std::unordered_map<std::string_view, std::vector<const KnownField*>>;

const RowsByName& rows_by_name() {
  static const RowsByName rows = [] {
    RowsByName all;
    for (const KnownField& row : kTable)
      for (const std::string_view name : names_of(row)) all[name].push_back(&row);
    return all;
  }();
  return rows;
}

std::string code_list(std::span<const std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) text += fmt::format("{}`{}`", text.empty() ? "" : ", ", name);
  return text;
}

std::string places_text(unsigned places) {
  constexpr std::pair<unsigned, const char*> kNames[] = {{kInChat, "chat"},
                                                         {kInCompletion, "completions"},
                                                         {kInResponse, "responses"},
                                                         {kInAnthropic, "messages"},
                                                         {kInOllama, "Ollama"},
                                                         {kInOllamaOptions, "Ollama's options"},
                                                         {kInLlamaCompletion, "llama.cpp"},
                                                         {kInEmbedding, "embeddings"},
                                                         {kInRerank, "rerank"},
                                                         {kInMessage, "a message"},
                                                         {kInPart, "a part"},
                                                         {kInTool, "a tool"}};
  std::string text;
  for (const auto& [place, name] : kNames)
    if (places & place) text += fmt::format("{}{}", text.empty() ? "" : ", ", name);
  return text;
}

}  // namespace

std::span<const KnownField> known_fields() { return kTable; }

unsigned places_of(std::string_view schema) {
  const auto* const found =
      std::find_if(std::begin(kSchemas), std::end(kSchemas), [&](const SchemaPlaces& s) { return s.schema == schema; });
  return found == std::end(kSchemas) ? 0 : found->places;
}

const KnownField* find_known_field(std::string_view schema, std::string_view name) {
  const unsigned places = places_of(schema);
  const auto found = places == 0 ? rows_by_name().end() : rows_by_name().find(name);
  if (found == rows_by_name().end()) return nullptr;
  for (const KnownField* row : found->second)
    if (row->places & places) return row;
  return nullptr;
}

bool is_known_anywhere(std::string_view name) { return rows_by_name().contains(name); }

const std::vector<std::string_view>& known_names(std::string_view schema) {
  static const std::vector<std::string_view> none;
  static const std::unordered_map<std::string_view, std::vector<std::string_view>> all = [] {
    std::unordered_map<std::string_view, std::vector<std::string_view>> lists;
    for (const SchemaPlaces& s : kSchemas)
      for (const KnownField& row : kTable)
        if (row.places & s.places)
          for (const std::string_view name : names_of(row)) lists[s.schema].push_back(name);
    return lists;
  }();
  const auto found = all.find(schema);
  return found == all.end() ? none : found->second;
}

bool asks_for_nothing(const Json& value) {
  return value.is_null() || value == false || value == Json("") || value == "none" ||
         (value.is_structured() && value.empty());
}

std::string_view misspelled_name(std::string_view name, std::span<const std::string_view> known) {
  constexpr size_t kCharactersPerEdit = 4, kMaxEdits = 2, kLongestName = 64;
  if (name.size() > kLongestName) return {};
  std::string_view best;
  size_t best_distance = kMaxEdits + 1;
  for (const std::string_view other : known) {
    const size_t longer = std::max(name.size(), other.size()), shorter = std::min(name.size(), other.size());
    const size_t allowed = std::min(kMaxEdits, longer / kCharactersPerEdit);
    if (longer - shorter > allowed) continue;
    const auto distance = static_cast<size_t>(text_distance(name, other));
    if (distance > allowed || distance >= best_distance) continue;
    best = other;
    best_distance = distance;
  }
  return best;
}

std::string known_fields_markdown() {
  std::string text =
      "<!-- Generated by `redline help fields`; a test keeps it in sync. -->\n\n# Fields that clients send\n\n"
      "`/openapi.json` has the schemas of all requests. This page lists further fields that other servers and their "
      "clients\ndefine, and fields that several of them share. A field that is neither in a schema nor here has no "
      "effect and is named in\nthe header `X-Redline-Ignored`. If its name is a misspelling of a known field, the "
      "request gets status 400 with the name\nthat was meant. A name is a misspelling if it differs by at most one "
      "edit in four characters, and by two edits at most. A\nnull is the same as no field.\n";
  constexpr std::pair<FieldUse, const char*> kParts[] = {
      {Use::kHonoured, "## Honoured\n\n| fields | from | in | |\n|---|---|---|---|\n"},
      {Use::kMapped,
       "## Mapped\n\nThese fields are read as other fields. If a request also has the other field, with another "
       "value, that field is used, and\nthe mapped one is named as ignored.\n\n| fields | from | in | read as |\n"
       "|---|---|---|---|\n"},
      {Use::kMembers, "## Objects of fields\n\n| fields | from | in | |\n|---|---|---|---|\n"},
      {Use::kIgnored,
       "## Ignored\n\nThese fields have no effect and are named in `X-Redline-Ignored`.\n\n| fields | from | in | "
       "because |\n"
       "|---|---|---|---|\n"},
      {Use::kRefused,
       "## Refused\n\nThese fields would change the answer. A value without effect (null, false, an empty text, "
       "list or object, `none`) is\naccepted.\n\n| fields | from | in | |\n|---|---|---|---|\n"}};
  for (const auto& [use, head] : kParts) {
    text += fmt::format("\n{}", head);
    for (const KnownField& row : kTable)
      if (row.use == use)
        text += fmt::format("| {} | {} | {} | {} |\n", code_list(names_of(row)), row.senders, places_text(row.places),
                            row.note);
  }
  return text;
}

}  // namespace redline::server
