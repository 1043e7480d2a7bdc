#include "diffusion/single_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "formats/safetensors.h"
#include "formats/torch_file.h"
#include "text/json_reader.h"

namespace redline {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kUnetConfig1 = R"({
  "_class_name": "UNet2DConditionModel", "sample_size": 64, "in_channels": 4, "out_channels": 4,
  "block_out_channels": [320, 640, 1280, 1280], "layers_per_block": 2, "cross_attention_dim": 768,
  "attention_head_dim": 8, "norm_num_groups": 32,
  "down_block_types": ["CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"],
  "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"]})";
constexpr std::string_view kUnetConfig2 = R"({
  "_class_name": "UNet2DConditionModel", "sample_size": 96, "in_channels": 4, "out_channels": 4,
  "block_out_channels": [320, 640, 1280, 1280], "layers_per_block": 2, "cross_attention_dim": 1024,
  "attention_head_dim": [5, 10, 20, 20], "norm_num_groups": 32, "use_linear_projection": true,
  "down_block_types": ["CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"],
  "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"]})";
constexpr std::string_view kUnetConfigXl = R"({
  "_class_name": "UNet2DConditionModel", "sample_size": 128, "in_channels": 4, "out_channels": 4,
  "block_out_channels": [320, 640, 1280], "layers_per_block": 2, "cross_attention_dim": 2048,
  "attention_head_dim": [5, 10, 20], "norm_num_groups": 32, "use_linear_projection": true,
  "transformer_layers_per_block": [1, 2, 10], "addition_embed_type": "text_time", "addition_time_embed_dim": 256,
  "projection_class_embeddings_input_dim": 2816,
  "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
  "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"]})";
constexpr std::string_view kVaeConfig = R"({
  "_class_name": "AutoencoderKL", "in_channels": 3, "out_channels": 3, "latent_channels": 4, "layers_per_block": 2,
  "block_out_channels": [128, 256, 512, 512], "norm_num_groups": 32, "act_fn": "silu", "sample_size": 512,
  "scaling_factor": 0.18215,
  "down_block_types": ["DownEncoderBlock2D", "DownEncoderBlock2D", "DownEncoderBlock2D", "DownEncoderBlock2D"],
  "up_block_types": ["UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D"]})";
constexpr std::string_view kVaeConfigXl = R"({
  "_class_name": "AutoencoderKL", "in_channels": 3, "out_channels": 3, "latent_channels": 4, "layers_per_block": 2,
  "block_out_channels": [128, 256, 512, 512], "norm_num_groups": 32, "act_fn": "silu", "sample_size": 1024,
  "scaling_factor": 0.13025,
  "down_block_types": ["DownEncoderBlock2D", "DownEncoderBlock2D", "DownEncoderBlock2D", "DownEncoderBlock2D"],
  "up_block_types": ["UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D"]})";
constexpr std::string_view kClipLConfig = R"({
  "architectures": ["CLIPTextModel"], "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
  "num_attention_heads": 12, "max_position_embeddings": 77, "vocab_size": 49408, "hidden_act": "quick_gelu",
  "eos_token_id": 49407})";
// 23 of its 24 layers: the family reads the states before the last one.
constexpr std::string_view kClipHConfig = R"({
  "architectures": ["CLIPTextModel"], "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 23,
  "num_attention_heads": 16, "max_position_embeddings": 77, "vocab_size": 49408, "hidden_act": "gelu",
  "eos_token_id": 49407})";
constexpr std::string_view kClipGConfig = R"({
  "architectures": ["CLIPTextModelWithProjection"], "hidden_size": 1280, "intermediate_size": 5120,
  "num_hidden_layers": 32, "num_attention_heads": 20, "max_position_embeddings": 77, "vocab_size": 49408,
  "hidden_act": "gelu", "projection_dim": 1280, "eos_token_id": 49407})";
constexpr std::string_view kScheduler1 = R"({
  "_class_name": "PNDMScheduler", "beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear",
  "num_train_timesteps": 1000, "skip_prk_steps": true, "set_alpha_to_one": false, "steps_offset": 1})";
// Scheduler of the models for 768 x 768 pixels. Models for 512 pixels predict the noise; the tensors of both are alike.
constexpr std::string_view kScheduler2 = R"({
  "_class_name": "DDIMScheduler", "beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear",
  "num_train_timesteps": 1000, "clip_sample": false, "set_alpha_to_one": false, "steps_offset": 1,
  "prediction_type": "v_prediction"})";
constexpr std::string_view kSchedulerXl = R"({
  "_class_name": "EulerDiscreteScheduler", "beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear",
  "num_train_timesteps": 1000, "steps_offset": 1, "timestep_spacing": "leading", "prediction_type": "epsilon"})";

constexpr std::string_view kUnetPrefix = "model.diffusion_model.", kVaePrefix = "first_stage_model.";

constexpr SingleFileComponent kComponents1[] = {
    {"unet", "diffusers", "UNet2DConditionModel", kUnetPrefix, rename_unet, kUnetConfig1},
    {"vae", "diffusers", "AutoencoderKL", kVaePrefix, rename_autoencoder, kVaeConfig},
    {"text_encoder", "transformers", "CLIPTextModel", "cond_stage_model.transformer.", rename_clip, kClipLConfig}};
constexpr SingleFileComponent kComponents2[] = {
    {"unet", "diffusers", "UNet2DConditionModel", kUnetPrefix, rename_unet, kUnetConfig2},
    {"vae", "diffusers", "AutoencoderKL", kVaePrefix, rename_autoencoder, kVaeConfig},
    {"text_encoder", "transformers", "CLIPTextModel", "cond_stage_model.model.", rename_open_clip, kClipHConfig}};
constexpr SingleFileComponent kComponentsXl[] = {
    {"unet", "diffusers", "UNet2DConditionModel", kUnetPrefix, rename_unet, kUnetConfigXl},
    {"vae", "diffusers", "AutoencoderKL", kVaePrefix, rename_autoencoder, kVaeConfigXl},
    {"text_encoder", "transformers", "CLIPTextModel", "conditioner.embedders.0.transformer.", rename_clip,
     kClipLConfig},
    {"text_encoder_2", "transformers", "CLIPTextModelWithProjection", "conditioner.embedders.1.model.",
     rename_open_clip, kClipGConfig}};

constexpr SingleFileFamily kFamilies[] = {
    {"Stable Diffusion XL", "StableDiffusionXLPipeline", "StableDiffusionXLInpaintPipeline",
     "conditioner.embedders.1.model.", kComponentsXl, kSchedulerXl},
    {"Stable Diffusion 2", "StableDiffusionPipeline", "StableDiffusionInpaintPipeline", "cond_stage_model.model.",
     kComponents2, kScheduler2},
    {"Stable Diffusion 1", "StableDiffusionPipeline", "StableDiffusionInpaintPipeline", "cond_stage_model.transformer.",
     kComponents1, kScheduler1}};

constexpr std::string_view kFirstConvolution = "model.diffusion_model.input_blocks.0.0.weight";

bool has_prefix(const WeightSources& tensors, std::string_view prefix) {
  const auto at = tensors.lower_bound(std::string(prefix));
  return at != tensors.end() && at->first.starts_with(prefix);
}

Result<WeightSources> read_tensors(const std::string& path, std::string& format) {
  WeightSources tensors;
  REDLINE_ASSIGN(const auto file, MappedFile::open(path));
  if (file->text().starts_with("PK")) {
    format = "PyTorch";
    REDLINE_ASSIGN(const TorchFile torch, TorchFile::from_file(file));
    for (const TorchTensor& t : torch.tensors()) {
      WeightSource& source = tensors[t.name];
      source.view = t.view;
      source.file = torch.file();
    }
    return tensors;
  }
  format = "safetensors";
  REDLINE_ASSIGN(const SafetensorsFiles files, SafetensorsFiles::from_parts({file}));
  for (const SafetensorsTensor& t : files.tensors()) {
    WeightSource& source = tensors[t.name];
    source.view = t.view;
    source.file = file;
  }
  return tensors;
}

/// Returns the kind of model that a file outside the families seems to be, for messages.
std::string_view other_family(const WeightSources& tensors) {
  if (has_prefix(tensors, "conditioner.embedders.0.model.")) return "the refiner of Stable Diffusion XL";
  if (has_prefix(tensors, "model.diffusion_model.joint_blocks.")) return "Stable Diffusion 3";
  if (has_prefix(tensors, "model.diffusion_model.double_blocks.")) return "FLUX.1";
  if (has_prefix(tensors, kUnetPrefix)) return "a UNet without text encoders";
  if (has_prefix(tensors, "input_blocks.0.")) return "a UNet alone";
  return "no model of images";
}

}  // namespace

std::span<const SingleFileFamily> single_file_families() { return kFamilies; }

bool SingleFile::may_be(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;
  const auto file = MappedFile::open(path);
  if (!file.ok()) return false;
  const std::string_view text = (*file)->text();
  return text.starts_with("PK\x03\x04") || (text.size() > 9 && text[8] == '{');
}

Result<SingleFile> SingleFile::open(const std::string& path) {
  SingleFile single;
  single.path_ = path;
  REDLINE_ASSIGN(WeightSources tensors, read_tensors(path, single.format_));
  for (const SingleFileFamily& family : kFamilies)
    if (!single.family_ && has_prefix(tensors, family.key_prefix)) single.family_ = &family;
  const auto first = tensors.find(std::string(kFirstConvolution));
  if (!single.family_ || first == tensors.end()) {
    std::vector<std::string_view> names;
    for (const SingleFileFamily& family : kFamilies) names.push_back(family.name);
    return unsupported("{}: holds {}; pipelines in one file are those of {}", path, other_family(tensors),
                       fmt::join(names, ", "));
  }
  constexpr int64_t kInpaintingChannels = 9;
  const std::vector<int64_t>& shape = first->second.view.shape;
  single.is_inpainting_ = shape.size() == 4 && shape[1] == kInpaintingChannels;
  single.tensors_ = std::make_shared<const WeightSources>(std::move(tensors));
  const fs::path file(path), parent = file.parent_path();
  for (const fs::path& folder : {parent / file.stem(), parent.empty() ? fs::path(".") : parent}) {
    std::error_code error;
    if (fs::exists(folder / "model_index.json", error)) {
      single.config_folder_ = folder.string();
      break;
    }
  }
  return single;
}

Result<nlohmann::json> SingleFile::model_index() const {
  if (!config_folder_.empty()) {
    const std::string file = config_folder_ + "/model_index.json";
    REDLINE_ASSIGN(const std::string text, read_text_file(file));
    return parse_json_object(text, file);
  }
  nlohmann::json index;
  index["_class_name"] = is_inpainting_ ? family_->inpainting_class_name : family_->class_name;
  index["scheduler"] = {"diffusers", "scheduler"};
  for (const SingleFileComponent& component : family_->components)
    index[std::string(component.name)] = {component.library, component.class_name};
  return index;
}

Result<nlohmann::json> SingleFile::scheduler_config() const {
  if (config_folder_.empty()) return nlohmann::json::parse(family_->scheduler);
  const std::string file = config_folder_ + "/scheduler/scheduler_config.json";
  REDLINE_ASSIGN(const std::string text, read_text_file(file));
  return parse_json_object(text, file);
}

Result<Checkpoint> SingleFile::open_component(std::string_view name) const {
  const auto component = std::find_if(family_->components.begin(), family_->components.end(),
                                      [&](const SingleFileComponent& c) { return c.name == name; });
  if (component == family_->components.end()) return not_found("{}: {} has no {}", path_, family_->name, name);
  Checkpoint checkpoint;
  checkpoint.path = path_;
  checkpoint.format = format_;
  checkpoint.generation = nlohmann::json::object();
  checkpoint.tokenizer_status = not_found("{}: the file has no tokenizer", path_);
  if (config_folder_.empty()) {
    checkpoint.config = nlohmann::json::parse(component->config);
  } else {
    const std::string file = fmt::format("{}/{}/config.json", config_folder_, name);
    REDLINE_ASSIGN(const std::string text, read_text_file(file));
    REDLINE_ASSIGN(checkpoint.config, parse_json_object(text, file));
  }
  if (name == "unet") checkpoint.config["in_channels"] = tensors_->at(std::string(kFirstConvolution)).view.shape.at(1);
  WeightSources own;
  for (auto at = tensors_->lower_bound(std::string(component->prefix));
       at != tensors_->end() && at->first.starts_with(component->prefix); ++at) {
    if (!at->second.view.data && !at->first.ends_with("position_ids"))
      return unsupported("{}: tensor {} has a type that Redline does not read; it reads F32, F16 and BF16", path_,
                         at->first);
    own[at->first.substr(component->prefix.size())] = at->second;
  }
  if (own.empty()) return not_found("{}: has no {}: no tensor begins with {}", path_, name, component->prefix);
  REDLINE_ASSIGN(checkpoint.tensors, component->rename(own, checkpoint.config).within(path_));
  return checkpoint;
}

Result<std::string> SingleFile::tokenizer_folder(std::string_view name) const {
  const fs::path parent = fs::path(path_).parent_path();
  std::error_code error;
  const fs::path folder = (config_folder_.empty() ? parent : fs::path(config_folder_)) / name;
  if (fs::exists(folder / "vocab.json", error) || fs::exists(folder / "tokenizer.json", error)) return folder.string();
  return not_found(
      "{}: the file has no tokenizer; put the folder {} of a diffusers folder of {} beside it (vocab.json, merges.txt, "
      "tokenizer_config.json)",
      path_, name, family_->name);
}

}  // namespace redline
