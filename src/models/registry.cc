#include "models/registry.h"

#include <fmt/ranges.h>

namespace redline {

// The registry. Each row is defined in the family's file.
extern const ModelFamily kLlamaFamily, kMistralFamily, kQwen2Family, kQwen3Family, kGemma3Family, kGraniteFamily,
    kSmolLm3Family, kOlmo2Family, kOlmo3Family, kPhi3Family, kGlm4Family, kCohereFamily, kStarcoder2Family, kGpt2Family,
    kGptNeoxFamily, kFalconFamily;

namespace {

constexpr const ModelFamily* kFamilies[] = {&kLlamaFamily,      &kMistralFamily, &kQwen2Family,   &kQwen3Family,
                                            &kGemma3Family,     &kGraniteFamily, &kSmolLm3Family, &kOlmo2Family,
                                            &kOlmo3Family,      &kPhi3Family,    &kGlm4Family,    &kCohereFamily,
                                            &kStarcoder2Family, &kGpt2Family,    &kGptNeoxFamily, &kFalconFamily};

}  // namespace

Result<const ModelFamily*> find_gguf_family(std::string_view architecture) {
  std::vector<std::string_view> known;
  for (const ModelFamily* family : kFamilies) {
    if (family->gguf.architecture == architecture) return family;
    known.push_back(family->gguf.architecture);
  }
  return unsupported("architecture \"{}\"; Redline runs {}", architecture, fmt::join(known, ", "));
}

Result<const ModelFamily*> find_model_family(const Checkpoint& checkpoint) {
  ConfigReader r(checkpoint.config);
  std::string type = r.text("model_type", "");
  if (type.empty() && checkpoint.config.contains("architectures") && checkpoint.config["architectures"].is_array() &&
      !checkpoint.config["architectures"].empty() && checkpoint.config["architectures"][0].is_string())
    type = checkpoint.config["architectures"][0].get<std::string>();
  REDLINE_TRY(r.status().within(checkpoint.path));
  std::vector<std::string_view> known;
  for (const ModelFamily* family : kFamilies) {
    if (type == family->model_type || type == family->architecture) return family;
    known.push_back(family->model_type);
  }
  return unsupported("{}: model_type \"{}\"; Redline runs {}", checkpoint.path, type, fmt::join(known, ", "));
}

Result<LanguageModel> build_language_model(const Checkpoint& checkpoint) {
  REDLINE_ASSIGN(const ModelFamily* family, find_model_family(checkpoint));
  return family->build(checkpoint).within(checkpoint.path);
}

}  // namespace redline
