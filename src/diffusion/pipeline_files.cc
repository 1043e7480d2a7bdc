#include "diffusion/pipeline_files.h"

#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "base/text_distance.h"
#include "formats/safetensors.h"
#include "models/checkpoint/config_reader.h"
#include "models/image/image_registry.h"
#include "text/json_infinities.h"
#include "text/json_reader.h"

namespace redline {
namespace {

Result<nlohmann::json> read_object(const std::string& path) {
  REDLINE_ASSIGN(const std::string text, read_text_file(path));
  return parse_json_object(without_infinities(text), path);
}

// Returns the only .gguf or .safetensors file of a folder, if no file has diffusers' name; else "".
std::string lone_file(const std::string& folder) {
  std::string found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.find(".safetensors.index.") != std::string::npos || name == "model.safetensors" ||
        name == "diffusion_pytorch_model.safetensors")
      return "";
    if (!name.ends_with(".gguf") && !name.ends_with(".safetensors")) continue;
    if (!found.empty()) return "";
    found = entry.path().string();
  }
  return found;
}

bool is_folder(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

Result<PipelineDefaults> read_defaults(const std::string& path) {
  PipelineDefaults d;
  auto file = read_object(path);
  if (!file.ok() && file.status().code() == Code::not_found) return d;
  REDLINE_TRY(file);
  ConfigReader outer(*file);
  const nlohmann::json* defaults = outer.object("defaults");
  if (outer.has("step_cache")) d.step_cache = outer.text("step_cache", "");
  if (const nlohmann::json* words = outer.object("prompt_words")) {
    REDLINE_ASSIGN(d.prompt_words, PromptWords::parse(*words).within(path));
  }
  REDLINE_TRY(outer.status().within(path));
  if (d.step_cache.find('/') != std::string::npos)
    return invalid_argument("{}: step_cache \"{}\" is not the name of a file in the folder", path, d.step_cache);
  if (!defaults) return d;
  ConfigReader r(*defaults);
  const auto integer = [&](const char* key, int64_t most, std::optional<int64_t>& to) {
    if (r.has(key)) to = r.integer(key, 1, most);
  };
  const auto number = [&](const char* key, std::optional<double>& to) {
    if (r.has(key)) to = r.number(key, 0, 100);
  };
  integer("width", 16384, d.width);
  integer("height", 16384, d.height);
  integer("steps", 1000, d.num_inference_steps);
  integer("max_sequence_length", 1024, d.max_sequence_length);
  number("guidance", d.guidance_scale);
  number("true_cfg_scale", d.true_cfg_scale);
  if (r.has("negative_prompt")) d.negative_prompt = r.text("negative_prompt", "");
  REDLINE_TRY(r.status().within(path));
  return d;
}

}  // namespace

Result<PipelineFiles> PipelineFiles::open(const std::string& path) {
  PipelineFiles files;
  files.path = path;
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return not_found("model {}: no such folder", path);
  if (SingleFile::may_be(path)) {
    REDLINE_ASSIGN(files.single, SingleFile::open(path));
  }
  auto index = files.single ? files.single->model_index() : read_object(path + "/model_index.json");
  if (!index.ok() && index.status().code() == Code::not_found)
    return not_found("{} has no model_index.json: not a diffusers folder{}", path,
                     S_ISDIR(info.st_mode) ? "" : "; give the folder, not a file in it");
  REDLINE_TRY(index);
  const auto name = index->find("_class_name");
  if (name == index->end() || !name->is_string())
    return invalid_argument("{}/model_index.json: _class_name must be the pipeline's class", path);
  files.class_name = name->get<std::string>();
  for (const auto& [key, value] : index->items()) {
    if (key.starts_with("_") || !value.is_array()) continue;  // a setting of the pipeline, not a component
    if (value.size() != 2) return invalid_argument("{}/model_index.json: {} must be [library, class]", path, key);
    if (value[0].is_null() || value[1].is_null()) continue;
    if (!value[0].is_string() || !value[1].is_string())
      return invalid_argument("{}/model_index.json: {} must be [library, class]", path, key);
    if (key.find('/') != std::string::npos || key.find("..") != std::string::npos)
      return invalid_argument("{}/model_index.json: \"{}\" is not the name of a folder", path, key);
    files.components.push_back({key, value[0].get<std::string>(), value[1].get<std::string>()});
  }
  if (const auto zeros = index->find("force_zeros_for_empty_prompt"); zeros != index->end() && zeros->is_boolean())
    files.zeros_for_empty_prompt = zeros->get<bool>();
  if (!files.find("scheduler")) return not_found("{}/model_index.json names no scheduler", path);
  if (files.single) {
    REDLINE_ASSIGN(files.scheduler_config, files.single->scheduler_config());
    return files;
  }
  REDLINE_ASSIGN(files.scheduler_config, read_object(path + "/scheduler/scheduler_config.json"));
  REDLINE_ASSIGN(files.defaults, read_defaults(path + "/redline.json"));
  return files;
}

Result<std::string> PipelineFiles::tokenizer_folder(const std::string& name) const {
  return single ? single->tokenizer_folder(name) : fmt::format("{}/{}", path, name);
}

const PipelineComponent* PipelineFiles::find(std::string_view name) const {
  for (const PipelineComponent& component : components)
    if (component.name == name) return &component;
  return nullptr;
}

Result<Checkpoint> PipelineFiles::open_component(std::string_view name) const {
  const PipelineComponent* component = find(name);
  if (!component) return not_found("{}/model_index.json names no {}", path, name);
  const std::vector<std::string_view> known = image_component_classes();
  if (std::find(known.begin(), known.end(), component->class_name) == known.end())
    return unsupported("{}/model_index.json: {} is a {}{}; Redline has {}", path, name, component->class_name,
                       the_nearest(component->class_name, known), fmt::join(known, ", "));
  if (single) {
    if (!denoiser_file.empty())
      return unsupported("{}: a transformer in one file belongs to the folder of a pipeline, not to {}", denoiser_file,
                         path);
    return single->open_component(name);
  }
  const std::string folder = fmt::format("{}/{}", path, name);
  const Result<const DenoiserRow*> denoiser = find_denoiser(component->class_name);
  if (denoiser.ok() && (*denoiser)->single_file.open) {
    const std::string file = denoiser_file.empty() ? lone_file(folder) : denoiser_file;
    if (!file.empty()) return (*denoiser)->single_file.open(file);
  } else if (denoiser.ok() && !denoiser_file.empty()) {
    return unsupported("{}: a transformer in one file is a {}; this pipeline has a {}", denoiser_file,
                       fmt::join(single_file_classes(), ", "), component->class_name);
  }
  if (!is_folder(folder)) return not_found("{} is missing: model_index.json names it", folder);
  REDLINE_ASSIGN(Checkpoint checkpoint, Checkpoint::open(folder));
  const auto own = checkpoint.config.find("_class_name");
  if (own != checkpoint.config.end() &&
      (!own->is_string() || !is_same_component_class(own->get_ref<const std::string&>(), component->class_name)))
    return invalid_argument("{}/config.json: _class_name is {}, and model_index.json names {}", folder,
                            own->is_string() ? own->get<std::string>() : "not a string", component->class_name);
  return checkpoint;
}

}  // namespace redline
