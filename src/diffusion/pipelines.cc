#include "diffusion/pipelines.h"

#include <algorithm>

namespace redline {
namespace {

constexpr int64_t kNumTimeIds = 6;

Result<TextEncoder*> encoder(TextEncoders& encoders, std::string_view name) {
  const auto at = encoders.find(name);
  if (at == encoders.end()) return not_found("the pipeline has no {}", name);
  return at->second.get();
}

void add_warnings(PromptConditions& conditions, const EncodedText& text) {
  conditions.warnings.insert(conditions.warnings.end(), text.warnings.begin(), text.warnings.end());
}

// FLUX: T5 for the tokens, CLIP's pooled vector beside the timestep. Padding is attended to, as the model was trained.
Result<PromptConditions> flux_conditions(TextEncoders& encoders, const DenoiserModel&,
                                         std::span<const std::string> prompts, int64_t text_tokens) {
  REDLINE_ASSIGN(TextEncoder * clip, encoder(encoders, "text_encoder"));
  REDLINE_ASSIGN(TextEncoder * t5, encoder(encoders, "text_encoder_2"));
  PromptConditions c;
  REDLINE_ASSIGN(EncodedText pooled, clip->encode(prompts, 0));
  REDLINE_ASSIGN(EncodedText text, t5->encode(prompts, text_tokens));
  c.prompts = text.prompts;
  c.tokens = text.tokens;
  // What CLIP drops of a long prompt T5 still reads: only T5's cut loses meaning.
  add_warnings(c, text);
  c.values["pooled"] = std::move(pooled.pooled);
  c.values["text"] = std::move(text.hidden);
  return c;
}

// Rows of a and b beside each other: [rows, a_width + b_width], zeros up to `width`.
std::vector<float> beside(const std::vector<float>& a, int64_t a_width, const std::vector<float>& b, int64_t b_width,
                          int64_t width) {
  const int64_t rows = static_cast<int64_t>(a.size()) / a_width;
  std::vector<float> out(static_cast<size_t>(rows * width));
  for (int64_t r = 0; r < rows; ++r) {
    float* to = std::copy_n(a.data() + r * a_width, a_width, out.data() + r * width);
    std::copy_n(b.data() + r * b_width, b_width, to);
  }
  return out;
}

// SD3: the two CLIPs beside each other, widened with zeros, then T5's tokens; a pipeline without T5 has zeros there.
Result<PromptConditions> sd3_conditions(TextEncoders& encoders, const DenoiserModel& model,
                                        std::span<const std::string> prompts, int64_t text_tokens) {
  REDLINE_ASSIGN(TextEncoder * clip_l, encoder(encoders, "text_encoder"));
  REDLINE_ASSIGN(TextEncoder * clip_g, encoder(encoders, "text_encoder_2"));
  REDLINE_ASSIGN(const EncodedText l, clip_l->encode(prompts, 0));
  REDLINE_ASSIGN(const EncodedText g, clip_g->encode(prompts, 0));
  const int64_t width = model.text_width;
  if (l.tokens != g.tokens || l.width + g.width > width)
    return invalid_argument("the text encoders give {} tokens of {} and {} of {}; the transformer takes {} columns",
                            l.tokens, l.width, g.tokens, g.width, width);
  PromptConditions c;
  c.prompts = l.prompts;
  c.values["pooled"] = beside(l.pooled, l.pooled_width, g.pooled, g.pooled_width, l.pooled_width + g.pooled_width);
  const std::vector<float> clip = beside(l.penultimate, l.width, g.penultimate, g.width, width);
  EncodedText t5;
  if (encoders.count("text_encoder_3")) {
    REDLINE_ASSIGN(TextEncoder * third, encoder(encoders, "text_encoder_3"));
    REDLINE_ASSIGN(t5, third->encode(prompts, text_tokens));
    if (t5.width != width)
      return invalid_argument("text_encoder_3 gives {} columns, the transformer takes {}", t5.width, width);
    add_warnings(c, t5);
  } else {
    t5.tokens = text_tokens;
    t5.hidden.resize(static_cast<size_t>(c.prompts * text_tokens * width));
    add_warnings(c, g);
  }
  c.tokens = l.tokens + t5.tokens;
  std::vector<float>& text = c.values["text"];
  for (int64_t p = 0; p < c.prompts; ++p) {
    text.insert(text.end(), clip.begin() + p * l.tokens * width, clip.begin() + (p + 1) * l.tokens * width);
    text.insert(text.end(), t5.hidden.begin() + p * t5.tokens * width, t5.hidden.begin() + (p + 1) * t5.tokens * width);
  }
  return c;
}

// PixArt: T5, padding not attended to. The makers' own pipeline lowers and strips prompts.
Result<PromptConditions> pixart_conditions(TextEncoders& encoders, const DenoiserModel&,
                                           std::span<const std::string> prompts, int64_t text_tokens) {
  REDLINE_ASSIGN(TextEncoder * t5, encoder(encoders, "text_encoder"));
  std::vector<std::string> cleaned;
  for (const std::string& prompt : prompts) {
    const size_t begin = prompt.find_first_not_of(" \t\r\n"), end = prompt.find_last_not_of(" \t\r\n");
    cleaned.push_back(begin == std::string::npos ? "" : prompt.substr(begin, end - begin + 1));
    for (char& letter : cleaned.back())
      if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  REDLINE_ASSIGN(EncodedText text, t5->encode(cleaned, text_tokens, true));
  PromptConditions c;
  c.prompts = text.prompts;
  c.tokens = text.tokens;
  add_warnings(c, text);
  c.values["text"] = std::move(text.hidden);
  c.integers["key_lengths"] = std::move(text.lengths);
  return c;
}

Status expect_text_width(const DenoiserModel& model, const std::string& encoders, int64_t width) {
  if (width == model.text_width) return {};
  return invalid_argument("{} {} columns, the unet takes {}; one of them is another model's", encoders, width,
                          model.text_width);
}

// Stable Diffusion 1 and 2: CLIP's last hidden states. (What 2 wants is the layer before the last: its encoder is stored
// without the last.)
Result<PromptConditions> sd_conditions(TextEncoders& encoders, const DenoiserModel& model,
                                       std::span<const std::string> prompts, int64_t) {
  REDLINE_ASSIGN(TextEncoder * clip, encoder(encoders, "text_encoder"));
  REDLINE_ASSIGN(EncodedText text, clip->encode(prompts, 0));
  REDLINE_TRY(expect_text_width(model, "text_encoder gives", text.width));
  PromptConditions c;
  c.prompts = text.prompts;
  c.tokens = text.tokens;
  add_warnings(c, text);
  c.values["text"] = std::move(text.hidden);
  return c;
}

// SDXL: two CLIPs beside each other, before their last layers; the second's pooled vector beside the timestep.
Result<PromptConditions> sdxl_conditions(TextEncoders& encoders, const DenoiserModel& model,
                                         std::span<const std::string> prompts, int64_t) {
  REDLINE_ASSIGN(TextEncoder * clip_l, encoder(encoders, "text_encoder"));
  REDLINE_ASSIGN(TextEncoder * clip_g, encoder(encoders, "text_encoder_2"));
  REDLINE_ASSIGN(const EncodedText l, clip_l->encode(prompts, 0));
  REDLINE_ASSIGN(EncodedText g, clip_g->encode(prompts, 0));
  if (l.tokens != g.tokens)
    return invalid_argument("text_encoder gives {} tokens, text_encoder_2 {}; one of them is another model's", l.tokens,
                            g.tokens);
  REDLINE_TRY(expect_text_width(model, "the text encoders give together", l.width + g.width));
  if (g.pooled_width != model.pooled_width)
    return invalid_argument("text_encoder_2 gives a pooled vector of {}, the unet takes {}", g.pooled_width,
                            model.pooled_width);
  PromptConditions c;
  c.prompts = l.prompts;
  c.tokens = l.tokens;
  add_warnings(c, g);
  c.values["text"] = beside(l.penultimate, l.width, g.penultimate, g.width, model.text_width);
  c.values["pooled"] = std::move(g.pooled);
  return c;
}

Result<DenoiserModel> build_sd(const Checkpoint& checkpoint, BlockSplit) {
  REDLINE_ASSIGN(DenoiserModel model, build_unet(checkpoint));
  if (model.num_time_ids != 0)
    return invalid_argument("the unet takes pooled text and sizes: its pipeline is StableDiffusionXLPipeline");
  return model;
}

Result<DenoiserModel> build_sdxl(const Checkpoint& checkpoint, BlockSplit) {
  REDLINE_ASSIGN(DenoiserModel model, build_unet(checkpoint));
  if (model.num_time_ids != kNumTimeIds)
    return unsupported("the unet takes {} sizes and scores; that of SDXL takes {} (its refiner is not supported)",
                       model.num_time_ids, kNumTimeIds);
  return model;
}

std::vector<PipelineFamily> make_families() {
  const auto named = [](std::string_view class_name, PipelineFamily family) {
    family.class_name = class_name;
    return family;
  };
  const PipelineFamily sd = {
      "StableDiffusionPipeline", "unet", "UNet2DConditionModel", build_sd, sd_conditions, false, false, 0, 50, 7.5, 77};
  const PipelineFamily sdxl = {"StableDiffusionXLPipeline",
                               "unet",
                               "UNet2DConditionModel",
                               build_sdxl,
                               sdxl_conditions,
                               false,
                               false,
                               0,
                               50,
                               5,
                               77,
                               true};
  return {
      {"FluxPipeline", "transformer", "FluxTransformer2DModel", build_flux, flux_conditions, true, true, 1024, 28, 3.5,
       512},
      {"StableDiffusion3Pipeline", "transformer", "SD3Transformer2DModel", build_sd3, sd3_conditions, false, false,
       1024, 28, 7, 256},
      {"PixArtSigmaPipeline", "transformer", "PixArtTransformer2DModel", build_pixart, pixart_conditions, false, false,
       1024, 20, 4.5, 300},
      sd,
      named("StableDiffusionInpaintPipeline", sd),
      sdxl,
      named("StableDiffusionXLInpaintPipeline", sdxl),
  };
}

}  // namespace

std::vector<float> sdxl_time_ids(int64_t width, int64_t height) {
  const auto w = static_cast<float>(width), h = static_cast<float>(height);
  return {h, w, 0, 0, h, w};
}

const std::vector<PipelineFamily>& pipeline_families() {
  static const std::vector<PipelineFamily> kFamilies = make_families();
  return kFamilies;
}

Result<const PipelineFamily*> find_pipeline_family(std::string_view class_name) {
  std::string known;
  for (const PipelineFamily& family : pipeline_families()) {
    if (family.class_name == class_name) return &family;
    known += (known.empty() ? "" : ", ") + std::string(family.class_name);
  }
  return unsupported("pipeline class \"{}\"; Redline draws with {}", class_name, known);
}

}  // namespace redline
