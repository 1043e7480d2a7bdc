// GET /v1/models and /v1/models/{model}.
#include "server/app.h"

namespace redline::server {
namespace {

const Field capability_item{"", kString, "", {.choices = {"completion", "chat", "image", "embedding", "rerank"}}};
const Schema model_schema{
    "Model",
    {{"id", kString, "the name for requests", {.required = true}},
     {"object", kString, "", {.required = true, .choices = {"model"}}},
     {"created", kInteger, "time since which it is served, seconds since 1970", {.required = true}},
     {"owned_by", kString, "", {.required = true}},
     {"status", kString, "state of a model", {.choices = {"loaded", "loading", "unloaded"}}},
     {"root", kString, "the model below an adapter"},
     {"parent", kString, "the model that an adapter belongs to"},
     {"max_model_len", kInteger, "tokens of the context"},
     {"capabilities",
      kArray,
      "kinds of requests that it serves: completion, chat, image, embedding, rerank",
      {.items = &capability_item}},
     {"meta", kObject, "more about a model"}}};
const Field model_item{"", kObject, "", {.object = &model_schema}};
const Schema models_schema{"ModelList",
                           {{"object", kString, "", {.required = true, .choices = {"list"}}},
                            {"data", kArray, "", {.required = true, .items = &model_item}}}};

/// Describes a model that may never have been loaded.
Json given_json(const Call& call, const Resident& model, int64_t created) {
  using State = Residency::State;
  const State state = call.app.residency().entry(model).state;
  return {{"id", model.name()},
          {"object", "model"},
          {"created", created},
          {"owned_by", "redline"},
          {"status", state == State::kLoaded    ? "loaded"
                     : state == State::kLoading ? "loading"
                                                : "unloaded"},
          {"root", model.name()}};
}

Json models_model_json(const Call& call, const ServedModel& model) {
  Json json = given_json(call, model, model.created());
  const std::optional<ModelInfo> info = model.known_info();
  if (!info) return json;
  json["max_model_len"] = info->context;
  json["capabilities"] = info->has_chat_template ? Json{"completion", "chat"} : Json{"completion"};
  json["meta"] = {{"architecture", info->architecture}, {"n_params", info->parameters},
                  {"size", info->weight_bytes},         {"n_vocab", info->vocab_size},
                  {"n_embd", info->hidden_size},        {"n_ctx_train", info->model_context},
                  {"weight_types", info->weight_types}};
  return json;
}

Json adapter_json(const ServedModel& model, const Adapter& adapter) {
  Json json = {{"id", model.name() + ":" + adapter.name},
               {"object", "model"},
               {"created", adapter.created},
               {"owned_by", "redline"},
               {"root", adapter.path},
               {"parent", model.name()}};
  if (const auto info = model.known_info()) json["max_model_len"] = info->context;
  return json;
}

Json image_model_json(const Call& call, const ImageModel& model) {
  Json json = given_json(call, model, model.created());
  json["capabilities"] = {"image"};
  const auto use = call.app.residency().use(model, false);
  if (!use) return json;
  const ImageEngine& engine = model.engine();
  const ImageRequest defaults = engine.defaults();
  const bool has_guidance = (engine.is_guidance_distilled() ? defaults.true_cfg_scale : defaults.guidance_scale) > 1;
  json["meta"] = {{"architecture", engine.family()},
                  {"image",
                   {{"width", defaults.width},
                    {"height", defaults.height},
                    {"steps", defaults.num_inference_steps},
                    {"guidance", engine.takes_guidance_scale() ? Json(defaults.guidance_scale) : Json(nullptr)},
                    {"max_side", model.max_side()},
                    {"multiple", engine.size_multiple()},
                    {"negative_prompt", has_guidance},
                    {"adapters", model.adapters()}}}};
  return json;
}

Json embedding_model_json(const Call& call, const EmbeddingModel& model) {
  Json json = given_json(call, model, model.created());
  const auto info = model.known_info();
  if (!info) return json;
  json["max_model_len"] = info->max_length;
  json["capabilities"] = info->num_labels == 1  ? Json{"rerank"}
                         : info->num_labels > 1 ? Json::array()
                                                : Json{"embedding", "rerank"};
  json["meta"] = {{"architecture", info->architecture}, {"n_params", info->parameters},
                  {"size", info->weight_bytes},         {"n_vocab", info->vocab_size},
                  {"n_embd", info->dimensions},         {"pooling", pooling_name(info->pooling)},
                  {"weight_types", info->weight_types}};
  return json;
}

AnswerOr list_models(Call& call) {
  Json data = Json::array();
  const auto add = [&](const Resident& model, Json json) {
    data.push_back(std::move(json));
    for (const std::string& alias : model.aliases()) {
      Json other = data.back();
      other["id"] = alias;  // `root` has the model's own name
      data.push_back(std::move(other));
    }
  };
  for (const auto& model : call.app.models().all()) {
    add(*model, models_model_json(call, *model));
    for (const Adapter& adapter : model->adapters()) data.push_back(adapter_json(*model, adapter));
  }
  for (const auto& model : call.app.images().all()) add(*model, image_model_json(call, *model));
  for (const auto& model : call.app.embeddings().listed()) add(*model, embedding_model_json(call, *model));
  return json_answer({{"object", "list"}, {"data", std::move(data)}});
}

AnswerOr get_model(Call& call) {
  for (const auto& model : call.app.images().all())
    if (model->is_named(call.path_values[0])) return json_answer(image_model_json(call, *model));
  for (const auto& model : call.app.embeddings().listed())
    if (model->is_named(call.path_values[0])) return json_answer(embedding_model_json(call, *model));
  SERVER_ASSIGN(const ModelChoice choice, call.app.models().resolve(call.path_values[0]));
  for (const Adapter& adapter : choice.model->adapters())
    if (choice.name == adapter.name || choice.name == choice.model->name() + ":" + adapter.name)
      return json_answer(adapter_json(*choice.model, adapter));
  return json_answer(models_model_json(call, *choice.model));
}

}  // namespace

std::vector<Endpoint> models_endpoints() {
  const std::vector<DocumentedAnswer> answers = {{200, "all of them", &models_schema}};
  const EndpointRules quick{.is_quick = true};
  return {{"GET", "/v1/models", "models", "the models and their adapters", answers, list_models, quick},
          {"GET", "/models", "models", "the models and their adapters", answers, list_models, quick},
          {"GET",
           "/v1/models/{model}",
           "models",
           "one model",
           {{200, "the model", &model_schema}},
           get_model,
           {.needs_models = true, .error_statuses = {404}}}};
}

}  // namespace redline::server
