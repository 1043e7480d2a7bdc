#include "cli/image_settings.h"

#include <filesystem>

#include "cli/command.h"
#include "cli/model_name.h"

namespace redline::cli {
namespace {

/// Returns the path to store in an image. Images are passed on to others, so of an absolute path only the file's name
/// is stored.
std::string stored_path(const std::string& path) {
  return std::filesystem::path(path).is_absolute() ? short_name(path) : path;
}

/// Splits "folder/style.safetensors:0.8" into path and weight.
std::pair<std::string, std::string> adapter_of(const std::string& text) {
  const size_t colon = text.rfind(':');
  const bool has_weight = colon != std::string::npos && colon + 1 < text.size() &&
                          text.find_first_not_of("0123456789.-+e", colon + 1) == std::string::npos;
  return has_weight ? std::pair{text.substr(0, colon), text.substr(colon + 1)} : std::pair{text, std::string("1")};
}

std::string shown_number(double value) { return fmt::format("{:g}", value); }

/// Returns a value for the last line of A1111's "parameters": quoted if it has a comma, a colon, a quote or a line
/// break.
std::string parameter_value(const std::string& text) {
  return text.find_first_of(",:\"\n") == std::string::npos ? text : to_text(Json(text), -1);
}

std::string parameters(const DrawnImage& image) {
  const ImageRequest& r = image.request;
  std::string text = image.prompt();
  for (const std::string& lora : image.args.lora) {
    const auto [file, weight] = adapter_of(lora);
    text += fmt::format(" <lora:{}:{}>", std::filesystem::path(file).stem().string(), weight);
  }
  text += '\n';
  if (!r.negative_prompt.empty()) text += fmt::format("Negative prompt: {}\n", r.negative_prompt);
  const SamplerNames sampler = sampler_names(image.result.solver);
  auto add = [&, is_first = true](const char* key, const std::string& value) mutable {
    text += fmt::format("{}{}: {}", is_first ? "" : ", ", key, parameter_value(value));
    is_first = false;
  };
  add("Steps", std::to_string(r.num_inference_steps));
  add("Sampler", sampler.web_ui);
  if (!sampler.web_ui_schedule.empty()) add("Schedule type", sampler.web_ui_schedule);
  add("CFG scale", shown_number(image.is_guidance_distilled ? r.true_cfg_scale : r.guidance_scale));
  if (image.is_guidance_distilled) add("Distilled CFG Scale", shown_number(r.guidance_scale));
  add("Seed", std::to_string(image.seed()));
  add("Size", fmt::format("{}x{}", r.width, r.height));
  add("Model", short_name(image.args.model));
  if (r.init_image) add("Denoising strength", shown_number(r.strength));
  const double computed = computed_steps(image.result);
  if (computed < static_cast<double>(image.result.step_ms.size())) {
    add("Step cache", image.result.cache);
    add("Computed steps", shown_number(computed));
  }
  add("Version", std::string(version_text()));
  return text;
}

/// Returns the graph of nodes with which ComfyUI would make the image.
Json comfy_prompt(const DrawnImage& image) {
  const ImageRequest& r = image.request;
  const SamplerNames sampler = sampler_names(image.result.solver);
  const auto node = [](const char* type, Json inputs) {
    return Json{{"class_type", type}, {"inputs", std::move(inputs)}};
  };
  const auto output = [](const std::string& id, int slot) { return Json::array({id, slot}); };
  Json nodes = {{"4", node("CheckpointLoaderSimple", {{"ckpt_name", short_name(image.args.model)}})}};
  std::string model = "4";
  int next = 20;
  for (const std::string& lora : image.args.lora) {
    const auto [file, weight] = adapter_of(lora);
    const double strength = std::strtod(weight.c_str(), nullptr);
    const std::string id = std::to_string(next++);
    nodes[id] = node("LoraLoader", {{"lora_name", short_name(file)},
                                    {"strength_model", strength},
                                    {"strength_clip", strength},
                                    {"model", output(model, 0)},
                                    {"clip", output(model, 1)}});
    model = id;
  }
  nodes["6"] = node("CLIPTextEncode", {{"text", image.prompt()}, {"clip", output(model, 1)}});
  nodes["7"] = node("CLIPTextEncode", {{"text", r.negative_prompt}, {"clip", output(model, 1)}});
  std::string positive = "6";
  if (image.is_guidance_distilled) {
    positive = "10";
    nodes["10"] = node("FluxGuidance", {{"guidance", r.guidance_scale}, {"conditioning", output("6", 0)}});
  }
  if (r.init_image) {
    nodes["11"] = node("LoadImage", {{"image", short_name(image.args.init_image)}});
    nodes["5"] = node("VAEEncode", {{"pixels", output("11", 0)}, {"vae", output("4", 2)}});
  } else {
    nodes["5"] = node("EmptyLatentImage", {{"width", r.width}, {"height", r.height}, {"batch_size", 1}});
  }
  nodes["3"] = node("KSampler", {{"seed", image.seed()},
                                 {"steps", r.num_inference_steps},
                                 {"cfg", image.is_guidance_distilled ? r.true_cfg_scale : r.guidance_scale},
                                 {"sampler_name", sampler.comfyui},
                                 {"scheduler", sampler.comfyui_schedule},
                                 {"denoise", r.init_image ? r.strength : 1.0},
                                 {"model", output(model, 0)},
                                 {"positive", output(positive, 0)},
                                 {"negative", output("7", 0)},
                                 {"latent_image", output("5", 0)}});
  nodes["8"] = node("VAEDecode", {{"samples", output("3", 0)}, {"vae", output("4", 2)}});
  nodes["9"] = node("SaveImage", {{"filename_prefix", "redline"}, {"images", output("8", 0)}});
  return nodes;
}

Json setting_of(const std::string& value) { return stored_path(value); }
Json setting_of(Precision value) { return precision_name(value); }
template <class T>
Json setting_of(const T& value) {
  return value;
}

/// Adds the options of the engine that change the image and are not the defaults, by their flags.
void add_engine_settings(const ImageEngineArgs& engine, Json& json) {
  std::vector<std::pair<std::string, Json>> defaults;
  const ImageOptions unchanged;
  visit_options(unchanged, [&](const auto& member, const OptionRow& row) {
    if (row.is_setting) defaults.emplace_back(row.flag, setting_of(member));
  });
  visit_options(engine.values, [&](const auto& member, const OptionRow& row) {
    const Json value = setting_of(member);
    for (const auto& [flag, value_of_default] : defaults)
      if (flag == row.flag && value != value_of_default) json[flag] = value;
  });
  if (engine.vae_tile != ImageEngineArgs().vae_tile) json["vae-tile"] = engine.vae_tile;
}

}  // namespace

double computed_steps(const ImageResult& result) {
  double sum = 0;
  for (const int64_t images : result.computed) sum += static_cast<double>(images);
  return result.images.empty() ? sum : sum / static_cast<double>(result.images.size());
}

Json settings_json(const DrawnImage& image) {
  const ImageArgs& args = image.args;
  const ImageRequest& r = image.request;
  Json json = {{"version", version_text()},
               {"MODEL", stored_path(args.model)},
               {"PROMPT", image.prompt()},
               {"negative", r.negative_prompt},
               {"width", r.width},
               {"height", r.height},
               {"steps", r.num_inference_steps},
               {"solver", image.result.solver},
               {"guidance", r.guidance_scale}};
  if (image.is_guidance_distilled) json["true-cfg-scale"] = r.true_cfg_scale;
  if (r.guidance_begin != 0 || r.guidance_end != 1)
    json["guidance-interval"] = fmt::format("{}:{}", r.guidance_begin, r.guidance_end);
  json["max-sequence-length"] = r.max_sequence_length;
  json["seed"] = image.seed();
  if (!args.lora.empty()) json["lora"] = Json::array();
  for (const std::string& lora : args.lora) json["lora"].push_back(stored_path(lora));
  if (!r.cache.empty()) json["cache"] = r.cache;
  if (r.quality >= 0) json["quality"] = r.quality;
  if (r.steps_budget > 0) json["steps-budget"] = r.steps_budget;
  if (r.init_image) {
    json["init-image"] = stored_path(args.init_image);
    json["strength"] = r.strength;
    if (args.resize != ImageArgs().resize) json["resize"] = args.resize;
    if (r.mask) {
      json["mask"] = stored_path(args.mask);
      json["keep-unmasked"] = r.keep_unmasked ? "on" : "off";
    }
  }
  const auto add_if = [&](bool is_set, const char* name, const Json& value) {
    if (is_set) json[name] = value;
  };
  add_engine_settings(args.engine, json);
  add_if(!args.init_noise.empty(), "init-noise", stored_path(args.init_noise));
  add_if(!args.prompt_embeds.empty(), "prompt-embeds", stored_path(args.prompt_embeds));
  add_if(!args.pooled_embeds.empty(), "pooled-embeds", stored_path(args.pooled_embeds));
  return json;
}

ImageText image_text(const DrawnImage& image) {
  return {{"parameters", parameters(image)},
          {"prompt", to_text(comfy_prompt(image), -1)},
          {"redline", to_text(settings_json(image), -1)}};
}

}  // namespace redline::cli
