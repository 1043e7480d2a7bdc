#include "models/registry.h"

namespace redline {

const std::vector<ModelFamily>& model_families() {
  static const std::vector<ModelFamily> kFamilies = {
      {"llama", "LlamaForCausalLM", true, build_llama},
      {"mistral", "MistralForCausalLM", true, build_mistral},
      {"qwen2", "Qwen2ForCausalLM", false, build_qwen2},
      {"qwen3", "Qwen3ForCausalLM", false, build_qwen3},
  };
  return kFamilies;
}

const ModelFamily* find_model_family(std::string_view model_type) {
  for (const ModelFamily& family : model_families())
    if (family.model_type == model_type) return &family;
  return nullptr;
}

std::string list_model_types() {
  std::string list;
  for (const ModelFamily& family : model_families())
    list += (list.empty() ? "" : ", ") + std::string(family.model_type);
  return list;
}

Result<LanguageModel> build_language_model(const Checkpoint& checkpoint) {
  ConfigReader r(checkpoint.config);
  std::string type = r.text("model_type", "");
  if (type.empty() && checkpoint.config.contains("architectures") && checkpoint.config["architectures"].is_array() &&
      !checkpoint.config["architectures"].empty() && checkpoint.config["architectures"][0].is_string())
    type = checkpoint.config["architectures"][0].get<std::string>();
  REDLINE_TRY(r.status().within(checkpoint.path));
  for (const ModelFamily& family : model_families()) {
    if (type == family.model_type || type == family.architecture)
      return family.build(checkpoint).within(checkpoint.path);
  }
  return unsupported("{}: model_type \"{}\"; Redline runs {}", checkpoint.path, type, list_model_types());
}

}  // namespace redline
