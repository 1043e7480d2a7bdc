// The functions for language models: opening, description, tokens, conversations, adapters.
#include "base/conversion_json.h"
#include "capi/generate_options.h"
#include "capi/json.h"
#include "capi/option_fields.h"
#include "redline/sampling_parameters.h"

namespace redline::capi {
namespace {

redline_model_options default_model_options() {
  const TextEngineOptions d;
  redline_model_options o = {};
  o.struct_size = sizeof o;
#define REDLINE_OPTION(type, name, ...) write_default(d.name, o.name);
#include "redline/text_engine_options.inc"
  return o;
}

Result<TextEngineOptions> model_engine_options(const redline_model_options& o) {
  TextEngineOptions options;
#define REDLINE_OPTION(type, name, ...) REDLINE_TRY(read_option(o.name, options.name));
#include "redline/text_engine_options.inc"
  REDLINE_ASSIGN(options.runtime, runtime_of(o.runtime));
  if (o.on_notice != nullptr)
    options.on_notice = [notice = o.on_notice, user_data = o.user_data](const std::string& message) {
      notice(message.c_str(), user_data);
    };
  return options;
}

Json model_json(const ModelInfo& m) {
  Json json = {{"path", m.path},
               {"architecture", m.architecture},
               {"file_format", m.file_format},
               {"weight_types", m.weight_types},
               {"parameters", m.parameters},
               {"weight_bytes", m.weight_bytes},
               {"num_layers", m.num_layers},
               {"hidden_size", m.hidden_size},
               {"num_heads", m.num_heads},
               {"num_kv_heads", m.num_kv_heads},
               {"head_dim", m.head_dim},
               {"intermediate_size", m.intermediate_size},
               {"vocab_size", m.vocab_size},
               {"model_context", m.model_context},
               {"context", m.context},
               {"left_out", m.left_out},
               {"has_tokenizer", m.has_tokenizer},
               {"has_chat_template", m.has_chat_template},
               {"chat_template", m.chat_template},
               {"has_chat_markers", m.has_chat_markers},
               {"threads", m.threads},
               {"isa", m.isa},
               {"device_steps", m.device_steps},
               {"stop_tokens", m.stop_tokens}};
  add_conversion(m.conversion, json);
  return json;
}

Json stats_json(const EngineStats& s) {
  Json json = {{"running", s.running},
               {"waiting", s.waiting},
               {"preemptions", s.preemptions},
               {"prompt_tokens", s.prompt_tokens},
               {"cached_prompt_tokens", s.cached_prompt_tokens},
               {"generated_tokens", s.generated_tokens},
               {"drafted_tokens", s.drafted_tokens},
               {"accepted_tokens", s.accepted_tokens},
               {"steps", s.steps},
               {"step_seconds", s.step_seconds},
               {"is_stalled", s.is_stalled},
               {"requests_failed", s.requests_failed},
               {"cache_pages_used", s.cache_pages_used},
               {"cache_pages_stored", s.cache_pages_stored},
               {"cache_pages", s.cache_pages},
               {"page_tokens", s.page_tokens}};
  json["requests_finished"] = Json::object();
  for (size_t i = 0; i < kNumFinishReasons; ++i)
    json["requests_finished"][std::string(finish_reason_name(static_cast<FinishReason>(i)))] = s.requests_finished[i];
  return json;
}

Json memory_json(const TextEngine::MemoryReport& m) {
  return {{"packed_weights", m.packed_weights},
          {"arena", m.arena},
          {"kv_cache", m.kv_cache},
          {"cache_limit", m.cache_limit},
          {"cache_touched", m.cache_touched}};
}

Json sampling_json(const SamplingOptions& s) {
  Json json;
  for (const SamplingParameter& p : sampling_parameters())
    std::visit([&](auto field) { json[std::string(p.name)] = s.*field; }, p.member);
  return json;
}

const char* delta_type(ChatDelta::Kind kind) {
  switch (kind) {
    case ChatDelta::Kind::kContent: return "content";
    case ChatDelta::Kind::kReasoning: return "reasoning";
    case ChatDelta::Kind::kToolCall: break;
  }
  return "tool_call";
}

Json delta_json(const ChatDelta& delta) {
  Json json;
  json["type"] = delta_type(delta.kind);
  if (delta.kind != ChatDelta::Kind::kToolCall) {
    json["text"] = delta.text;
    return json;
  }
  json["index"] = delta.index;
  json["id"] = delta.call.id;
  json["name"] = delta.call.name;
  json["arguments"] = delta.call.arguments;
  return json;
}

}  // namespace
}  // namespace redline::capi

using namespace redline;
using namespace redline::capi;

struct redline_chat_reader {
  const Process process = {};
  std::shared_ptr<TextContents> model;  ///< kept alive, because the reader refers to its tokenizer
  std::unique_ptr<ChatReader> reader;
};

void redline_model_options_init(redline_model_options* options, size_t struct_size) {
  init_struct(options, struct_size, default_model_options());
}

redline_code redline_model_open(const char* path, const redline_model_options* options, redline_model** model,
                                redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(required(static_cast<void*>(model), "model"));
    *model = nullptr;
    REDLINE_TRY(required(path, "path"));
    REDLINE_ASSIGN(const redline_model_options o,
                   read_struct(options, default_model_options(), "redline_model_options"));
    auto contents = std::make_shared<TextContents>();
    REDLINE_ASSIGN(const TextEngineOptions given, model_engine_options(o));
    REDLINE_TRY(open_engine<TextEngine>(*contents, path, given, o, text_adapter_rank));
    *model = new redline_model(std::move(contents));
    return {};
  });
}
redline_model* redline_model_retain(redline_model* model) { return retain(model); }
void redline_model_release(redline_model* model) { release(model); }

redline_code redline_model_get_info(redline_model* model, redline_model_info* info, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(usable(model, "model"));
    const ModelInfo& m = model->shared->engine->info();
    const BatchLimits limits = model->shared->engine->batch_limits();
    redline_model_info out = {};
    out.vocab_size = m.vocab_size;
    out.context = m.context;
    out.hidden_size = m.hidden_size;
    out.num_layers = m.num_layers;
    out.max_batch_tokens = limits.tokens;
    out.max_batch_sequences = limits.sequences;
    out.max_batch_logit_rows = limits.logit_rows;
    out.has_tokenizer = m.has_tokenizer ? 1 : 0;
    out.has_chat_template = m.has_chat_template ? 1 : 0;
    out.threads = m.threads;
    return write_struct(info, out, "redline_model_info");
  });
}

redline_code redline_model_describe(redline_model* model, char** json, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(required(static_cast<void*>(json), "json"));
    *json = nullptr;
    REDLINE_TRY(usable(model, "model"));
    const TextEngine& engine = *model->shared->engine;
    Json all;
    all["model"] = model_json(engine.info());
    all["memory"] = memory_json(engine.memory());
    all["stats"] = stats_json(engine.stats());
    all["sampling"] = sampling_json(engine.default_sampling());
    return give_json(all, json);
  });
}

redline_code redline_model_encode(redline_model* model, const char* text, size_t length, int32_t parse_special,
                                  int32_t add_bos, int32_t** tokens, size_t* num_tokens, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(required(static_cast<void*>(tokens), "tokens"));
    REDLINE_TRY(required(num_tokens, "num_tokens"));
    *tokens = nullptr;
    *num_tokens = 0;
    REDLINE_TRY(usable(model, "model"));
    REDLINE_ASSIGN(const std::string_view given, text_of(text, length, "text"));
    REDLINE_ASSIGN(const std::vector<int32_t> ids,
                   model->shared->engine->encode(given, parse_special != 0, add_bos != 0));
    REDLINE_TRY(give_array(ids, tokens));
    *num_tokens = ids.size();
    return {};
  });
}

redline_code redline_model_decode(redline_model* model, const int32_t* tokens, size_t num_tokens, int32_t special,
                                  char** text, size_t* length, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(required(static_cast<void*>(text), "text"));
    *text = nullptr;
    if (length != nullptr) *length = 0;
    REDLINE_TRY(usable(model, "model"));
    if (num_tokens > 0) REDLINE_TRY(required(tokens, "tokens"));
    REDLINE_ASSIGN(const std::string decoded, model->shared->engine->decode({tokens, num_tokens}, special != 0));
    return give_text(decoded, text, length);
  });
}

redline_code redline_model_token_bytes(redline_model* model, int32_t token, int32_t special, char** bytes,
                                       size_t* length, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(required(static_cast<void*>(bytes), "bytes"));
    REDLINE_TRY(required(length, "length"));
    *bytes = nullptr;
    *length = 0;
    REDLINE_TRY(usable(model, "model"));
    const TextEngine& engine = *model->shared->engine;
    if (!engine.info().has_tokenizer) return not_found("{} has no tokenizer", engine.info().path);
    if (token < 0 || token >= engine.info().vocab_size)
      return invalid_argument("token {} is outside the vocabulary of {}", token, engine.info().vocab_size);
    return give_text(engine.token_bytes(token, special != 0), bytes, length);
  });
}

redline_code redline_model_render_chat(redline_model* model, const char* messages_json, const char* tools_json,
                                       const char* variables_json, int32_t add_generation_prompt, char** text,
                                       size_t* length, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(required(static_cast<void*>(text), "text"));
    *text = nullptr;
    if (length != nullptr) *length = 0;
    REDLINE_TRY(usable(model, "model"));
    REDLINE_TRY(required(messages_json, "messages_json"));
    const std::string tools = text_or_empty(tools_json);
    const std::string variables = text_or_empty(variables_json);
    REDLINE_ASSIGN(const std::string rendered,
                   model->shared->engine->render_chat({.messages_json = messages_json,
                                                       .tools_json = tools,
                                                       .variables_json = variables,
                                                       .add_generation_prompt = add_generation_prompt != 0}));
    return give_text(rendered, text, length);
  });
}

redline_code redline_chat_reader_open(redline_model* model, const char* prompt, size_t length, const char* tools_json,
                                      redline_chat_reader** reader, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(required(static_cast<void*>(reader), "reader"));
    *reader = nullptr;
    REDLINE_TRY(usable(model, "model"));
    REDLINE_ASSIGN(const std::string_view rendered, text_of(prompt, length, "prompt"));
    auto opened = std::make_unique<redline_chat_reader>();
    opened->model = model->shared;
    opened->reader = model->shared->engine->chat_reader(rendered, text_or_empty(tools_json));
    *reader = opened.release();
    return {};
  });
}

redline_code redline_chat_reader_push(redline_chat_reader* reader, const char* text, size_t length, int32_t is_last,
                                      char** json, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(required(static_cast<void*>(json), "json"));
    *json = nullptr;
    REDLINE_TRY(required(reader, "reader"));
    REDLINE_ASSIGN(const std::string_view piece, text_of(text, length, "text"));
    std::vector<ChatDelta> deltas;
    if (!piece.empty()) reader->reader->push(piece, deltas);
    if (is_last != 0) reader->reader->finish(deltas, is_last == 2);
    Json list = Json::array();
    for (const ChatDelta& delta : deltas) list.push_back(delta_json(delta));
    return give_json(list, json);
  });
}

void redline_chat_reader_release(redline_chat_reader* reader) {
  if (reader == nullptr) return;
  reader->reader.reset();
  drop(std::move(reader->model), reader->process);
  delete reader;
}

redline_code redline_model_load_adapter(redline_model* model, const char* name, const char* path,
                                        redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(usable(model, "model"));
    REDLINE_TRY(required(name, "name"));
    REDLINE_TRY(required(path, "path"));
    return model->shared->engine->load_adapter(name, path);
  });
}

redline_code redline_model_unload_adapter(redline_model* model, const char* name, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(usable(model, "model"));
    REDLINE_TRY(required(name, "name"));
    return model->shared->engine->unload_adapter(name);
  });
}

redline_code redline_text_adapter_rank(const char* path, int64_t* rank, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(required(rank, "rank"));
    *rank = 0;
    REDLINE_TRY(required(path, "path"));
    REDLINE_ASSIGN(*rank, text_adapter_rank(path));
    return {};
  });
}
