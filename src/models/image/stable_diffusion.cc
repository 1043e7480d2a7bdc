// The pipelines of Stable Diffusion 1, 2 (Rombach et al. 2021, arXiv:2112.10752) and SDXL (Podell et al. 2023,
// arXiv:2307.01952), text to image and inpainting, around the UNet of unet.cc.
#include "models/image/image_registry.h"

namespace redline {
namespace {

constexpr int64_t kNumTimeIds = 6;

Status expect_text_width(const DenoiserModel& model, const std::string& encoders, int64_t width) {
  if (width == model.text_width) return {};
  return invalid_argument("{} {} columns, the unet takes {}; one of them is another model's", encoders, width,
                          model.text_width);
}

// Returns the conditions of Stable Diffusion 1 and 2: CLIP's last hidden states. (Version 2 uses the penultimate layer
// of its encoder, which is stored without the last layer.)
Result<PromptConditions> sd_conditions(const PromptEncoders& encoders, const DenoiserModel& model,
                                       std::span<const std::string> prompts, int64_t) {
  REDLINE_ASSIGN(PromptEncoder * clip, encoders.find("text_encoder"));
  REDLINE_ASSIGN(EncodedText text, clip->encode(prompts, 0, /*mask_padding=*/false));
  REDLINE_TRY(expect_text_width(model, "text_encoder gives", text.width));
  PromptConditions c;
  c.prompts = text.prompts;
  c.tokens = text.tokens;
  c.add_warnings(text);
  c.values["text"] = std::move(text.hidden);
  return c;
}

// Returns the conditions of SDXL: the penultimate hidden states of both CLIPs, concatenated. The pooled vector of the
// second CLIP is added to the timestep embedding.
Result<PromptConditions> sdxl_conditions(const PromptEncoders& encoders, const DenoiserModel& model,
                                         std::span<const std::string> prompts, int64_t) {
  REDLINE_ASSIGN(PromptEncoder * clip_l, encoders.find("text_encoder"));
  REDLINE_ASSIGN(PromptEncoder * clip_g, encoders.find("text_encoder_2"));
  REDLINE_ASSIGN(const EncodedText l, clip_l->encode(prompts, 0, /*mask_padding=*/false));
  REDLINE_ASSIGN(EncodedText g, clip_g->encode(prompts, 0, /*mask_padding=*/false));
  if (l.tokens != g.tokens)
    return invalid_argument("text_encoder gives {} tokens, text_encoder_2 {}; one of them is another model's", l.tokens,
                            g.tokens);
  REDLINE_TRY(expect_text_width(model, "the text encoders together give", l.width + g.width));
  if (g.pooled_width != model.pooled_width)
    return invalid_argument("text_encoder_2 gives a pooled vector of {}, the unet takes {}", g.pooled_width,
                            model.pooled_width);
  PromptConditions c;
  c.prompts = l.prompts;
  c.tokens = l.tokens;
  c.add_warnings(g);
  c.values["text"] = concat_columns(l.penultimate, l.width, g.penultimate, g.width, model.text_width);
  c.values["pooled"] = std::move(g.pooled);
  return c;
}

Status check_sd(const DenoiserModel& model) {
  if (model.num_time_ids == 0) return {};
  return invalid_argument("the unet takes pooled text and sizes: its pipeline is StableDiffusionXLPipeline");
}

Status check_sdxl(const DenoiserModel& model) {
  if (model.num_time_ids == kNumTimeIds) return {};
  return unsupported("the unet takes {} sizes and scores; that of SDXL takes {} (its refiner is not supported)",
                     model.num_time_ids, kNumTimeIds);
}

// Returns height and width of the original image, top and left of the crop, and target height and width, for an image
// that is not cropped.
std::vector<float> sdxl_time_ids(int64_t width, int64_t height) {
  const auto w = static_cast<float>(width), h = static_cast<float>(height);
  return {h, w, 0, 0, h, w};
}

constexpr std::string_view kSdClasses[] = {"StableDiffusionPipeline", "StableDiffusionImg2ImgPipeline",
                                           "StableDiffusionInpaintPipeline"};
constexpr std::string_view kSdxlClasses[] = {"StableDiffusionXLPipeline", "StableDiffusionXLImg2ImgPipeline",
                                             "StableDiffusionXLInpaintPipeline"};

}  // namespace

extern const PipelineRow kSdPipeline = {
    .class_names = kSdClasses,
    .denoiser_component = "unet",
    .denoiser_class = "UNet2DConditionModel",
    .check = check_sd,
    .condition = sd_conditions,
    .num_inference_steps = 50,
    .guidance_scale = 7.5,
    .max_sequence_length = 77,
};

extern const PipelineRow kSdxlPipeline = {
    .class_names = kSdxlClasses,
    .denoiser_component = "unet",
    .denoiser_class = "UNet2DConditionModel",
    .check = check_sdxl,
    .condition = sdxl_conditions,
    .time_ids = sdxl_time_ids,
    .zeros_for_empty_prompt = true,
    .num_inference_steps = 50,
    .guidance_scale = 5,
    .max_sequence_length = 77,
};

}  // namespace redline
