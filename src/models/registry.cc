#include "models/registry.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/text_distance.h"

namespace redline {

// The registry. Each row is defined in the family's file.
extern const ModelFamily kLlamaFamily, kMistralFamily, kQwen2Family, kQwen3Family, kGemma3Family, kGraniteFamily,
    kSmolLm3Family, kOlmo2Family, kOlmo3Family, kPhi3Family, kGlm4Family, kCohereFamily, kStarcoder2Family, kGpt2Family,
    kGptNeoxFamily, kFalconFamily, kBloomFamily, kMptFamily;
extern const ModelFamily kMixtralFamily, kQwen2MoeFamily, kQwen3MoeFamily, kDeepseekV2Family, kDeepseekV3Family,
    kGptOssFamily;
extern const ModelFamily kGraniteMoeFamily, kGraniteMoeSharedFamily;
extern const ModelFamily kGemma2Family, kGraniteHybridFamily, kMamba2Family, kQwen3NextFamily, kQwen35Family;
extern const ModelFamily kGemmaFamily, kFalconH1Family, kLfm2Family, kLfm2MoeFamily, kGraniteSwaFamily, kQwen2VlFamily,
    kQwen3VlFamily, kQwen3VlMoeFamily, kQwen35MoeFamily, kGlmFamily, kGlm4MoeFamily, kDots1Family, kSolarOpenFamily,
    kGlm4MoeLiteFamily, kYoutuFamily, kMinistralFamily, kMinistral3Family, kSeedOssFamily, kHeliumFamily,
    kErnie45Family, kCwmFamily, kErnie45MoeFamily, kCohere2Family, kVaultGemmaFamily, kOlmoFamily, kOlmoeFamily,
    kFlexOlmoFamily, kExaone4Family, kArceeFamily, kNemotronFamily, kJais2Family, kHunyuanDenseFamily,
    kHunyuanMoeFamily, kMinimaxM2Family, kPhiFamily, kStablelmFamily, kGptjFamily, kGptNeoFamily, kOptFamily,
    kGptBigcodeFamily;
extern const EncoderFamily kBertFamily, kModernBertFamily;

namespace {

constexpr const ModelFamily* kFamilies[] = {
    &kLlamaFamily,
    &kMistralFamily,
    &kQwen2Family,
    &kQwen3Family,
    &kGemma2Family,
    &kGemma3Family,
    &kGraniteFamily,
    &kSmolLm3Family,
    &kOlmo2Family,
    &kOlmo3Family,
    &kPhi3Family,
    &kGlm4Family,
    &kCohereFamily,
    &kStarcoder2Family,
    &kGpt2Family,
    &kGptNeoxFamily,
    &kFalconFamily,
    &kBloomFamily,
    &kMptFamily,
    &kMixtralFamily,
    &kQwen2MoeFamily,
    &kQwen3MoeFamily,
    &kDeepseekV2Family,
    &kDeepseekV3Family,
    &kGptOssFamily,
    &kMamba2Family,
    &kQwen3NextFamily,
    &kQwen35Family,
    &kGraniteHybridFamily,
    &kGraniteMoeFamily,
    &kGraniteMoeSharedFamily,
    &kGemmaFamily,
    &kFalconH1Family,
    &kLfm2Family,
    &kLfm2MoeFamily,
    &kGraniteSwaFamily,
    &kQwen2VlFamily,
    &kQwen3VlFamily,
    &kQwen3VlMoeFamily,
    &kQwen35MoeFamily,
    &kGlmFamily,
    &kGlm4MoeFamily,
    &kDots1Family,
    &kSolarOpenFamily,
    &kGlm4MoeLiteFamily,
    &kYoutuFamily,
    &kMinistralFamily,
    &kMinistral3Family,
    &kSeedOssFamily,
    &kHeliumFamily,
    &kErnie45Family,
    &kCwmFamily,
    &kErnie45MoeFamily,
    &kCohere2Family,
    &kVaultGemmaFamily,
    &kOlmoFamily,
    &kOlmoeFamily,
    &kFlexOlmoFamily,
    &kExaone4Family,
    &kArceeFamily,
    &kNemotronFamily,
    &kJais2Family,
    &kHunyuanDenseFamily,
    &kHunyuanMoeFamily,
    &kMinimaxM2Family,
    &kPhiFamily,
    &kStablelmFamily,
    &kGptjFamily,
    &kGptNeoFamily,
    &kOptFamily,
    &kGptBigcodeFamily,
};
constexpr const EncoderFamily* kEncoders[] = {&kBertFamily, &kModernBertFamily};

}  // namespace

Result<GgufFamily> find_gguf_family(std::string_view architecture, bool has_experts) {
  std::vector<std::string_view> known;
  const ModelFamily* found = nullptr;
  for (const ModelFamily* family : kFamilies) {
    const GgufNames& names = family->gguf;
    if (!architecture.empty() && names.architecture == architecture && (!found || names.has_experts == has_experts))
      found = family;
    if (!names.architecture.empty() && std::find(known.begin(), known.end(), names.architecture) == known.end())
      known.push_back(names.architecture);
  }
  if (found) return GgufFamily{found->model_type, &found->gguf};
  for (const EncoderFamily* family : kEncoders) {
    if (family->gguf.architecture == architecture) return GgufFamily{family->model_types.front(), &family->gguf};
    known.push_back(family->gguf.architecture);
  }
  return unsupported("architecture \"{}\"{}; Redline runs {}", architecture, the_nearest(architecture, known),
                     fmt::join(known, ", "));
}

const EncoderFamily* find_encoder_family(const Checkpoint& checkpoint) {
  ConfigReader r(checkpoint.config);
  const std::string type = r.text("model_type", "");
  for (const EncoderFamily* family : kEncoders)
    if (std::find(family->model_types.begin(), family->model_types.end(), type) != family->model_types.end())
      return family;
  return nullptr;
}

Result<const ModelFamily*> find_model_family(const Checkpoint& checkpoint) {
  ConfigReader r(checkpoint.config);
  std::string type = r.text("model_type", "");
  std::string architecture;
  if (const auto list = checkpoint.config.find("architectures");
      list != checkpoint.config.end() && list->is_array() && !list->empty() && list->front().is_string())
    architecture = list->front().get<std::string>();
  REDLINE_TRY(r.status().within(checkpoint.path));
  if (type.empty() && architecture.empty())
    return invalid_argument("{}: config.json has no model_type, which names the family of the model", checkpoint.path);
  std::vector<std::string_view> known;
  const auto is_other_name = [&](const ModelFamily& family) {
    return std::find(family.other_types.begin(), family.other_types.end(), type) != family.other_types.end();
  };
  for (const ModelFamily* family : kFamilies) {
    if (type == family->model_type || is_other_name(*family)) return family;
    known.push_back(family->model_type);
  }
  // A model whose type is not known may have the network of one that is: Kimi K2 names DeepSeek's class.
  if (!find_encoder_family(checkpoint))
    for (const ModelFamily* family : kFamilies)
      if (architecture == family->architecture) return family;
  if (type.empty()) type = architecture;
  if (find_encoder_family(checkpoint))
    return unsupported("{}: model_type \"{}\" is an encoder: it makes embeddings (redline embed), not text",
                       checkpoint.path, type);
  std::vector<std::string_view> all = known;
  for (const ModelFamily* family : kFamilies) all.push_back(family->architecture);
  for (const EncoderFamily* family : kEncoders)
    all.insert(all.end(), family->model_types.begin(), family->model_types.end());
  return unsupported("{}: model_type \"{}\"{}; Redline runs {}", checkpoint.path, type, the_nearest(type, all),
                     fmt::join(known, ", "));
}

Result<LanguageModel> build_language_model(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(const ModelFamily* family, find_model_family(checkpoint));
  return family->build(checkpoint, outputs).within(checkpoint.path);
}

}  // namespace redline
