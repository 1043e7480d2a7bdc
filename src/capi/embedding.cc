// The functions for embeddings and scores.
#include <array>

#include "capi/handles.h"
#include "capi/json.h"
#include "capi/option_fields.h"

namespace redline::capi {
namespace {

redline_embedding_options default_embedding_options() {
  const EmbeddingOptions d;
  redline_embedding_options o = {};
  o.struct_size = sizeof o;
#define REDLINE_OPTION(type, name, ...) write_default(d.name, o.name);
#include "redline/embedding_options.inc"
  return o;
}

redline_embed_options default_embed_options() {
  redline_embed_options o = {};
  o.struct_size = sizeof o;
  o.normalize = -1;
  return o;
}

Result<EmbeddingOptions> embedding_engine_options(const redline_embedding_options& o) {
  EmbeddingOptions options;
#define REDLINE_OPTION(type, name, ...) REDLINE_TRY(read_option(o.name, options.name));
#include "redline/embedding_options.inc"
  REDLINE_ASSIGN(options.runtime, runtime_of(o.runtime));
  return options;
}

std::function<bool()> goes_on(const void* engine, const redline_embed_options& o) {
  if (o.canceller == nullptr && o.on_step == nullptr) return {};
  return [engine, canceller = o.canceller, on_step = o.on_step, user_data = o.user_data] {
    const CallbackScope scope(engine);
    if (is_cancelled(canceller)) return false;
    return on_step == nullptr || on_step(user_data) == 0;
  };
}

Result<EmbedRequest> request_of(const redline_prompt* texts, size_t num_texts, const redline_embed_options& o,
                                const void* engine) {
  EmbedRequest request;
  if (num_texts > 0) REDLINE_TRY(required(texts, "texts"));
  const bool are_tokens = num_texts > 0 && texts[0].tokens != nullptr;
  for (size_t i = 0; i < num_texts; ++i) {
    if ((texts[i].tokens != nullptr) != are_tokens)
      return invalid_argument("texts[{}]: some are given as text and some as tokens; give all in one way", i);
    if (are_tokens) {
      request.tokens.emplace_back(texts[i].tokens, texts[i].tokens + texts[i].num_tokens);
      continue;
    }
    REDLINE_ASSIGN(const std::string_view text,
                   text_of(texts[i].text, texts[i].length, "text").within(fmt::format("texts[{}]", i)));
    request.texts.emplace_back(text);
  }
  if (o.prompt_name != nullptr) request.prompt_name = o.prompt_name;
  request.truncate = o.truncate != 0;
  if (o.normalize >= 0) request.normalize = o.normalize != 0;
  request.dimensions = o.dimensions;
  request.goes_on = goes_on(engine, o);
  return request;
}

Json info_json(const EmbeddingInfo& info) {
  Json json = {{"path", info.path},
               {"architecture", info.architecture},
               {"file_format", info.file_format},
               {"weight_types", info.weight_types},
               {"parameters", info.parameters},
               {"weight_bytes", info.weight_bytes},
               {"num_layers", info.num_layers},
               {"hidden_size", info.hidden_size},
               {"num_heads", info.num_heads},
               {"vocab_size", info.vocab_size},
               {"dimensions", info.dimensions},
               {"max_length", info.max_length},
               {"pooling", pooling_name(info.pooling)},
               {"normalizes", info.normalizes},
               {"num_labels", info.num_labels},
               {"default_prompt", info.default_prompt},
               {"threads", info.threads},
               {"isa", info.isa}};
  json["prompts"] = Json::object();
  for (const auto& [name, text] : info.prompts) json["prompts"][name] = text;
  return json;
}

}  // namespace
}  // namespace redline::capi

using namespace redline;
using namespace redline::capi;

struct redline_token_states {
  std::vector<std::vector<float>> values;
  std::vector<std::array<int64_t, 2>> shapes;
};

void redline_embedding_options_init(redline_embedding_options* options, size_t struct_size) {
  init_struct(options, struct_size, default_embedding_options());
}
void redline_embed_options_init(redline_embed_options* options, size_t struct_size) {
  init_struct(options, struct_size, default_embed_options());
}

redline_code redline_embedding_model_open(const char* path, const redline_embedding_options* options,
                                          redline_embedding_model** model, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(required(static_cast<void*>(model), "model"));
    *model = nullptr;
    REDLINE_TRY(required(path, "path"));
    REDLINE_ASSIGN(const redline_embedding_options o,
                   read_struct(options, default_embedding_options(), "redline_embedding_options"));
    REDLINE_ASSIGN(const EmbeddingOptions given, embedding_engine_options(o));
    REDLINE_ASSIGN(std::unique_ptr<EmbeddingEngine> engine, EmbeddingEngine::open(path, given));
    *model = new redline_embedding_model(std::shared_ptr<EmbeddingEngine>(std::move(engine)));
    return {};
  });
}
redline_embedding_model* redline_embedding_model_retain(redline_embedding_model* model) { return retain(model); }
void redline_embedding_model_release(redline_embedding_model* model) { release(model); }

redline_code redline_embedding_model_describe(redline_embedding_model* model, char** json, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(required(static_cast<void*>(json), "json"));
    *json = nullptr;
    REDLINE_TRY(usable(model, "model"));
    return give_json(info_json(model->shared->info()), json);
  });
}
int64_t redline_embedding_model_dimensions(const redline_embedding_model* model) {
  return model != nullptr ? model->shared->info().dimensions : 0;
}
int32_t redline_is_embedding_model(const char* path) {
  try {
    return path != nullptr && is_embedding_model(path) ? 1 : 0;
  } catch (...) {
    return 0;
  }
}

redline_code redline_embed(redline_embedding_model* model, const redline_prompt* texts, size_t num_texts,
                           const redline_embed_options* options, float* values, size_t num_floats,
                           int64_t* tokens_computed, redline_error** error) {
  return guarded(error, [&]() -> Status {
    if (tokens_computed != nullptr) *tokens_computed = 0;
    REDLINE_TRY(usable(model, "model"));
    const std::shared_ptr<EmbeddingEngine> engine = model->shared;
    REDLINE_ASSIGN(const redline_embed_options o,
                   read_struct(options, default_embed_options(), "redline_embed_options"));
    REDLINE_ASSIGN(const EmbedRequest request, request_of(texts, num_texts, o, engine.get()));
    REDLINE_TRY(check_not_in_callback(engine.get(), "model"));
    if (num_texts == 0) return {};
    const auto dimensions = static_cast<size_t>(o.dimensions > 0 ? o.dimensions : engine->info().dimensions);
    REDLINE_TRY(required(values, "values"));
    if (num_floats / dimensions != num_texts || num_floats % dimensions != 0)
      return invalid_argument("values: {} texts of {} dimensions need {} floats, {} are given", num_texts, dimensions,
                              num_texts * dimensions, num_floats);
    REDLINE_ASSIGN(const Embeddings embeddings, engine->embed(request));
    std::copy(embeddings.values.begin(), embeddings.values.end(), values);
    if (tokens_computed != nullptr)
      for (const int64_t tokens : embeddings.tokens) *tokens_computed += tokens;
    return {};
  });
}

redline_code redline_embed_tokens(redline_embedding_model* model, const redline_prompt* texts, size_t num_texts,
                                  const redline_embed_options* options, redline_token_states** states,
                                  redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(required(static_cast<void*>(states), "states"));
    *states = nullptr;
    REDLINE_TRY(usable(model, "model"));
    const std::shared_ptr<EmbeddingEngine> engine = model->shared;
    REDLINE_ASSIGN(const redline_embed_options o,
                   read_struct(options, default_embed_options(), "redline_embed_options"));
    REDLINE_ASSIGN(EmbedRequest request, request_of(texts, num_texts, o, engine.get()));
    REDLINE_TRY(check_not_in_callback(engine.get(), "model"));
    request.keep_token_states = true;
    REDLINE_ASSIGN(Embeddings embeddings, engine->embed(request));
    auto made = std::make_unique<redline_token_states>();
    const int64_t width = engine->info().hidden_size;
    for (const std::vector<float>& values : embeddings.token_states)
      made->shapes.push_back({std::ssize(values) / width, width});
    made->values = std::move(embeddings.token_states);
    *states = made.release();
    return {};
  });
}
redline_float_array redline_token_states_of(const redline_token_states* states, size_t index) {
  if (states == nullptr || index >= states->values.size()) return {};
  return {states->values[index].data(), states->shapes[index].data(), 2};
}
void redline_token_states_release(redline_token_states* states) { delete states; }

redline_code redline_rank(redline_embedding_model* model, const char* query, const char* const* documents,
                          size_t num_documents, const redline_embed_options* options, float* scores,
                          int64_t* tokens_computed, redline_error** error) {
  return guarded(error, [&]() -> Status {
    if (tokens_computed != nullptr) *tokens_computed = 0;
    REDLINE_TRY(usable(model, "model"));
    const std::shared_ptr<EmbeddingEngine> engine = model->shared;
    REDLINE_TRY(required(query, "query"));
    REDLINE_TRY(check_not_in_callback(engine.get(), "model"));
    REDLINE_ASSIGN(const redline_embed_options o,
                   read_struct(options, default_embed_options(), "redline_embed_options"));
    RankRequest request;
    request.query = query;
    REDLINE_ASSIGN(request.documents, strings_of(documents, num_documents, "documents"));
    request.truncate = o.truncate != 0;
    request.goes_on = goes_on(engine.get(), o);
    if (num_documents == 0) return {};
    REDLINE_TRY(required(scores, "scores"));
    REDLINE_ASSIGN(const Ranking ranking, engine->rank(request));
    std::copy(ranking.scores.begin(), ranking.scores.end(), scores);
    if (tokens_computed != nullptr) *tokens_computed = ranking.tokens;
    return {};
  });
}
