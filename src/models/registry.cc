#include "models/registry.h"

namespace redline {

const std::vector<ModelFamily>& model_families() {
  static const std::vector<ModelFamily> kFamilies = {
      {"llama", "LlamaForCausalLM", build_llama},
      {"mistral", "MistralForCausalLM", build_mistral},
      {"qwen2", "Qwen2ForCausalLM", build_qwen2},
      {"qwen3", "Qwen3ForCausalLM", build_qwen3},
  };
  return kFamilies;
}

Result<LanguageModel> build_language_model(const Checkpoint& checkpoint) {
  ConfigReader r(checkpoint.config);
  std::string type = r.text("model_type", "");
  if (type.empty() && checkpoint.config.contains("architectures") && checkpoint.config["architectures"].is_array() &&
      !checkpoint.config["architectures"].empty() && checkpoint.config["architectures"][0].is_string())
    type = checkpoint.config["architectures"][0].get<std::string>();
  REDLINE_TRY(r.status().within(checkpoint.path));
  std::string known;
  for (const ModelFamily& family : model_families()) {
    if (type == family.model_type || type == family.architecture)
      return family.build(checkpoint).within(checkpoint.path);
    known += (known.empty() ? "" : ", ") + std::string(family.model_type);
  }
  return unsupported("{}: model_type \"{}\"; Redline runs {}", checkpoint.path, type, known);
}

}  // namespace redline
