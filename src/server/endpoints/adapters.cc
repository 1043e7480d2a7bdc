// LoRA adapters while serving: vLLM's /v1/load_lora_adapter and /v1/unload_lora_adapter, and llama.cpp's
// /lora-adapters.
#include <algorithm>
#include <map>

#include "server/app.h"

namespace redline::server {
namespace {

const Field name_field{"lora_name",
                       kString,
                       "the name for requests: MODEL:NAME or NAME",
                       {.required = true, .min_length = 1, .max_length = 200}};
const Schema load_schema{"LoadAdapterRequest",
                         {name_field,
                          {"lora_path",
                           kString,
                           "a PEFT folder or a GGUF adapter on the server's machine",
                           {.required = true, .min_length = 1, .max_length = 4096}},
                          {"model", kString, "the model that it is for", {.max_length = 1000}},
                          {"base_model_name", kString, "vLLM's name of the field model", {.max_length = 1000}},
                          {"load_inplace", kBoolean, "replace an adapter of this name"}}};
const Schema unload_schema{"UnloadAdapterRequest",
                           {name_field,
                            {"lora_int_id", kInteger, "the name is enough", {.is_ignored = true}},
                            {"model", kString, "the model that it is for", {.max_length = 1000}}}};

const Schema scale_schema{"AdapterScaleById",
                          {{"id", kInteger, "number in GET /lora-adapters", {.required = true, .min = 0, .max = 1e9}},
                           {"scale", kNumber, "its weight; 0: not used", {.required = true, .min = -100, .max = 100}}}};
const Schema adapter_schema{"AdapterInfo",
                            {{"id", kInteger, "", {.required = true}},
                             {"name", kString, "", {.required = true}},
                             {"path", kString, "", {.required = true}},
                             {"scale", kNumber, "weight in requests that name no adapter", {.required = true}}}};

const Field scale_item{"", kObject, "", {.object = &scale_schema}},
    adapter_item{"", kObject, "", {.object = &adapter_schema}};
const Schema scales_schema{.name = "AdapterScales", .fields = {}, .list = &scale_item};
const Schema adapter_list_schema{.name = "AdapterList", .fields = {}, .list = &adapter_item};

/// Returns an error unless the client may have files of this machine read: it is on this machine, or the owner allows
/// it.
std::optional<ApiError> check_permission(const Call& call) {
  if (call.app.options().allows_adapter_loading) return std::nullopt;
  return ApiError{.status = 403,
                  .type = "permission_error",
                  .message = "adapters are not loaded from a network; start the server with --allow-lora-loading",
                  .code = "not_allowed"};
}

AnswerOr text_answer(const std::string& text) {
  auto answer = std::make_unique<FixedAnswer>(text);
  answer->content_type = "text/plain; charset=utf-8";
  return std::unique_ptr<Answer>(std::move(answer));
}

AnswerOr post_load(Call& call) {
  if (auto error = check_permission(call)) return *error;
  const std::string model = call.body.value("model", call.body.value("base_model_name", std::string()));
  const std::string name = call.body["lora_name"], path = call.body["lora_path"];
  SERVER_ASSIGN(const ModelChoice choice, call.app.models().find(model));
  const bool replaces = call.body.value("load_inplace", false);
  const Status status = replaces ? choice.model->replace_adapter(name, path) : choice.model->load_adapter(name, path);
  if (!status.ok()) return api_error(status, "lora_path");
  return text_answer(fmt::format("Success: LoRA adapter '{}' added successfully.", name));
}

AnswerOr post_unload(Call& call) {
  if (auto error = check_permission(call)) return *error;
  const std::string name = call.body["lora_name"];
  SERVER_ASSIGN(const ModelChoice choice, call.app.models().find(call.body.value("model", std::string())));
  if (Status status = choice.model->unload_adapter(name); !status.ok()) return api_error(status, "lora_name");
  return text_answer(fmt::format("Success: LoRA adapter '{}' removed successfully.", name));
}

Json list_of(const ServedModel& model) {
  Json list = Json::array();
  for (const Adapter& a : model.adapters())
    list.push_back({{"id", a.id}, {"name", a.name}, {"path", a.path}, {"scale", a.scale}});
  return list;
}

/// Lists the adapters of the first model, because llama.cpp's server has only one model.
AnswerOr get_list(Call& call) {
  const auto models = call.app.models().all();
  return json_answer(models.empty() ? Json::array() : list_of(*models[0]));
}

AnswerOr post_scales(Call& call) {
  const auto models = call.app.models().all();
  if (models.empty()) return not_found_error("", "this server has no language model", "model_not_found");
  ServedModel& model = *models[0];
  const std::vector<Adapter> adapters = model.adapters();
  std::map<int64_t, double> scales;
  for (size_t i = 0; i < call.body.size(); ++i) {
    const int64_t id = call.body[i]["id"];
    if (std::none_of(adapters.begin(), adapters.end(), [&](const Adapter& a) { return a.id == id; }))
      return not_found_error(fmt::format("[{}].id", i), fmt::format("there is no adapter {}", id), "adapter_not_found");
    scales[id] = call.body[i]["scale"];
  }
  model.set_scales(scales);
  return json_answer(list_of(model));
}

}  // namespace

std::vector<Endpoint> adapters_endpoints() {
  const DocumentedAnswer done{200, "what was done", nullptr, "text/plain"};
  return {{"POST",
           "/v1/load_lora_adapter",
           "adapters",
           "load an adapter",
           {done},
           post_load,
           {.request = &load_schema, .needs_models = true, .error_statuses = {404}}},
          {"POST",
           "/v1/unload_lora_adapter",
           "adapters",
           "unload an adapter",
           {done},
           post_unload,
           {.request = &unload_schema, .needs_models = true, .error_statuses = {404}}},
          {"GET",
           "/lora-adapters",
           "adapters",
           "the adapters of the first model, for llama.cpp's clients",
           {{200, "the adapters", &adapter_list_schema}},
           get_list,
           {.needs_models = true}},
          {"POST",
           "/lora-adapters",
           "adapters",
           "set the scales for requests that name no adapter; adapters that are not listed get 0",
           {{200, "the adapters", &adapter_list_schema}},
           post_scales,
           {.request = &scales_schema, .needs_models = true, .error_statuses = {404}}}};
}

}  // namespace redline::server
