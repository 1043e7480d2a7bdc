// GET /v1/models and /v1/models/{model}.
#include "server/app.h"

namespace redline::server {
namespace {

const Field capability_item{"", kString, "", {.choices = {"completion", "chat", "image", "embedding", "rerank"}}};
const Schema model_schema{"Model",
                          {{"id", kString, "the name for requests", {.required = true}},
                           {"object", kString, "", {.required = true, .choices = {"model"}}},
                           {"created", kInteger, "when it was loaded, seconds since 1970", {.required = true}},
                           {"owned_by", kString, "", {.required = true}},
                           {"root", kString, "the model below an adapter"},
                           {"parent", kString, "the model that an adapter belongs to"},
                           {"max_model_len", kInteger, "tokens of the context"},
                           {"capabilities",
                            kArray,
                            "what it is for: completion, chat, image, embedding, rerank",
                            {.items = &capability_item}},
                           {"meta", kObject, "more about a model"}}};
const Field model_item{"", kObject, "", {.object = &model_schema}};
const Schema models_schema{"ModelList",
                           {{"object", kString, "", {.required = true, .choices = {"list"}}},
                            {"data", kArray, "", {.required = true, .items = &model_item}}}};

Json model_json(const ServedModel& model) {
  const ModelInfo& info = model.info();
  return {{"id", model.name()},
          {"object", "model"},
          {"created", model.created()},
          {"owned_by", "redline"},
          {"root", model.name()},
          {"max_model_len", info.context},
          {"capabilities", info.has_chat_template ? Json{"completion", "chat"} : Json{"completion"}},
          {"meta",
           {{"architecture", info.architecture},
            {"n_params", info.parameters},
            {"size", info.weight_bytes},
            {"n_vocab", info.vocab_size},
            {"n_embd", info.hidden_size},
            {"n_ctx_train", info.model_context},
            {"weight_types", info.weight_types}}}};
}

Json adapter_json(const ServedModel& model, const Adapter& adapter) {
  return {{"id", model.name() + ":" + adapter.name},
          {"object", "model"},
          {"created", adapter.created},
          {"owned_by", "redline"},
          {"root", adapter.path},
          {"parent", model.name()},
          {"max_model_len", model.info().context}};
}

Json image_model_json(const ImageModel& model) {
  const ImageEngine& engine = model.engine();
  const ImageRequest defaults = engine.defaults();
  const bool has_guidance = (engine.is_guidance_distilled() ? defaults.true_cfg_scale : defaults.guidance_scale) > 1;
  return {{"id", model.name()},
          {"object", "model"},
          {"created", model.created()},
          {"owned_by", "redline"},
          {"root", model.name()},
          {"capabilities", {"image"}},
          {"meta",
           {{"architecture", engine.family()},
            {"image",
             {{"width", defaults.width},
              {"height", defaults.height},
              {"steps", defaults.num_inference_steps},
              {"guidance", engine.takes_guidance_scale() ? Json(defaults.guidance_scale) : Json(nullptr)},
              {"max_side", model.max_side()},
              {"multiple", engine.size_multiple()},
              {"negative_prompt", has_guidance},
              {"adapters", model.adapters()}}}}}};
}

Json embedding_model_json(const EmbeddingModel& model) {
  const EmbeddingInfo& info = model.info();
  return {{"id", model.name()},
          {"object", "model"},
          {"created", model.created()},
          {"owned_by", "redline"},
          {"root", model.name()},
          {"max_model_len", info.max_length},
          {"capabilities", info.num_labels > 0 ? Json{"rerank"} : Json{"embedding", "rerank"}},
          {"meta",
           {{"architecture", info.architecture},
            {"n_params", info.parameters},
            {"size", info.weight_bytes},
            {"n_vocab", info.vocab_size},
            {"n_embd", info.dimensions},
            {"pooling", pooling_name(info.pooling)},
            {"weight_types", info.weight_types}}}};
}

AnswerOr list_models(Call& call) {
  Json data = Json::array();
  for (const auto& model : call.app.models().all()) {
    data.push_back(model_json(*model));
    for (const Adapter& adapter : model->adapters()) data.push_back(adapter_json(*model, adapter));
  }
  for (const auto& model : call.app.images().all()) data.push_back(image_model_json(*model));
  for (const auto& model : call.app.embeddings().all()) data.push_back(embedding_model_json(*model));
  return json_answer({{"object", "list"}, {"data", std::move(data)}});
}

AnswerOr get_model(Call& call) {
  for (const auto& model : call.app.images().all())
    if (model->name() == call.path_values[0]) return json_answer(image_model_json(*model));
  for (const auto& model : call.app.embeddings().all())
    if (model->name() == call.path_values[0]) return json_answer(embedding_model_json(*model));
  SERVER_ASSIGN(const ModelChoice choice, call.app.models().find(call.path_values[0]));
  for (const Adapter& adapter : choice.model->adapters())
    if (choice.name == adapter.name || choice.name == choice.model->name() + ":" + adapter.name)
      return json_answer(adapter_json(*choice.model, adapter));
  return json_answer(model_json(*choice.model));
}

}  // namespace

std::vector<Endpoint> models_endpoints() {
  return {{"GET",
           "/v1/models",
           "models",
           "the models and their adapters",
           {{200, "all of them", &models_schema}},
           list_models},
          {"GET",
           "/v1/models/{model}",
           "models",
           "one model",
           {{200, "the model", &model_schema}},
           get_model,
           {.needs_models = true, .error_statuses = {404}}}};
}

}  // namespace redline::server
