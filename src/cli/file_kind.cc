#include "cli/file_kind.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/mapped_file.h"
#include "formats/gguf.h"
#include "formats/onnx.h"
#include "formats/safetensors.h"
#include "models/files/random_model.h"
#include "models/image/image_registry.h"

namespace redline::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDiffusersAdapter = "pytorch_lora_weights.safetensors";

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

fs::path parent_of(const std::string& path) {
  const fs::path normal = fs::path(path).lexically_normal();
  return (normal.filename().empty() ? normal.parent_path() : normal).parent_path();
}

/// Returns true for the folder of a component: its configuration names a class of diffusers, or a model_index.json lies
/// in the folder around it.
bool is_component(const fs::path& folder) {
  if (is_there(folder / "scheduler_config.json")) return true;
  if (!is_there(folder / "config.json")) return false;
  if (is_there(parent_of(folder.string()) / "model_index.json")) return true;
  const Result<std::string> text = read_text_file((folder / "config.json").string());
  const nlohmann::json config = text.ok() ? parse_json_or_discard<nlohmann::json>(*text) : nlohmann::json();
  return config.is_object() && config.contains("_diffusers_version");
}

Result<FileKind> kind_of_folder(const std::string& path) {
  const fs::path folder(path);
  if (is_there(folder / "model_index.json")) return FileKind::kPipeline;
  if (is_there(folder / "adapter_config.json")) return FileKind::kTextAdapter;
  if (is_there(folder / kDiffusersAdapter)) return FileKind::kImageAdapter;
  if (is_component(folder)) return FileKind::kComponent;
  for (const char* file :
       {"config.json", "model.safetensors", "model.safetensors.index.json", "tokenizer.json", "tokenizer.model"})
    if (is_there(folder / file)) return FileKind::kModelFolder;
  return invalid_argument(
      "{}: the folder holds no model (no config.json, model.safetensors, tokenizer.json, model_index.json or "
      "adapter_config.json)",
      path);
}

FileKind kind_of_gguf(const std::string& path) {
  const Result<GgufFile> file = GgufFile::open(path);
  if (!file.ok()) return FileKind::kGguf;  // the reader of GGUF files reports the problem
  const auto text = [&](const char* key) {
    const GgufValue* value = file->find(key);
    return value ? value->as_string().value_or("") : "";
  };
  if (text("general.type") == "adapter") return FileKind::kTextAdapter;
  return is_single_file_architecture(text("general.architecture")) ? FileKind::kTransformer : FileKind::kGguf;
}

/// Prefixes of the text encoders' tensors in a file that also has a UNet.
constexpr std::string_view kPipelineTensors[] = {"cond_stage_model.", "conditioner.embedders."};

bool names_pipeline_tensor(std::string_view text) {
  return std::any_of(std::begin(kPipelineTensors), std::end(kPipelineTensors),
                     [&](std::string_view name) { return text.find(name) != std::string_view::npos; });
}

FileKind kind_of_safetensors(const std::string& path, std::string_view header) {
  const auto has = [&](std::initializer_list<std::string_view> words) {
    return std::any_of(words.begin(), words.end(),
                       [&](std::string_view word) { return header.find(word) != std::string::npos; });
  };
  if (has({"lora_A", "lora_down", "lora.down", "lora_linear_layer.down", "_lora1.down", "hada_w1", "lokr_w"})) {
    const bool is_text = has({"base_model.model.model.layers.", "\"model.layers.", "base_model.model.lm_head"}) ||
                         is_there(parent_of(path) / "adapter_config.json");
    return is_text ? FileKind::kTextAdapter : FileKind::kImageAdapter;
  }
  if (names_pipeline_tensor(header)) return FileKind::kPipelineFile;
  return is_single_file_header(header) ? FileKind::kTransformer : FileKind::kSafetensors;
}

/// Returns true if a file is shorter than any file of the format that its first bytes or its name indicate.
bool is_cut_short(const std::string& path, std::string_view text) {
  constexpr size_t kSmallestSafetensors = 10, kSmallestLlama2c = 28;
  return text.empty() || std::string_view("GGUF").starts_with(text.substr(0, 4)) ||
         (path.ends_with(".safetensors") && text.size() < kSmallestSafetensors) ||
         (path.ends_with(".bin") && text.size() <= kSmallestLlama2c);
}

Status another_kind(const std::string& path, FileKind kind, const std::string& advice) {
  return invalid_argument("{}: is {}; {}", path, file_kind_words(kind), advice);
}

/// Parts of tensor names in the original files of image networks.
constexpr std::string_view kImageTensors[] = {"model.diffusion_model.", "first_stage_model.", "joint_blocks.",
                                              "input_blocks.0.0.",      "double_blocks.",     "single_blocks.",
                                              "cap_embedder.",          "transformer_blocks."};

bool names_image_tensor(std::string_view text) {
  return std::any_of(std::begin(kImageTensors), std::end(kImageTensors),
                     [&](std::string_view part) { return text.find(part) != std::string_view::npos; });
}

/// Returns true for a GGUF or safetensors file with an image network under its original names.
bool holds_image_network(const std::string& path, FileKind kind) {
  if (kind == FileKind::kGguf) {
    const Result<GgufFile> file = GgufFile::open(path);
    return file.ok() && std::any_of(file->tensors().begin(), file->tensors().end(),
                                    [](const GgufTensor& tensor) { return names_image_tensor(tensor.name); });
  }
  const Result<SafetensorsFiles> file = SafetensorsFiles::open_file(path);
  return file.ok() && std::any_of(file->tensors().begin(), file->tensors().end(),
                                  [](const SafetensorsTensor& tensor) { return names_image_tensor(tensor.name); });
}

/// Returns advice on which command takes a model of this kind.
std::string advice_for(const std::string& path, FileKind kind) {
  constexpr const char* kOriginalImage =
      "it holds an image network in one file; Redline reads whole pipelines of Stable Diffusion 1, 2 and XL, "
      "transformers of FLUX.1, with --transformer, and diffusers folders, "
      "as `from_single_file(FILE).save_pretrained(FOLDER)` of diffusers' pipeline classes writes them";
  if ((kind == FileKind::kGguf || kind == FileKind::kSafetensors) && holds_image_network(path, kind))
    return kOriginalImage;
  switch (kind) {
    case FileKind::kGguf:
    case FileKind::kModelFolder: return fmt::format("`redline run {} PROMPT` continues a text with it", path);
    case FileKind::kSafetensors:
      return "give the folder that holds it: that of a language model has a config.json, an image pipeline's a "
             "model_index.json";
    case FileKind::kLlama2c:
      return fmt::format("`redline convert {} OUT.gguf --tokenizer tokenizer.bin` makes a model of it", path);
    case FileKind::kPipeline:
    case FileKind::kPipelineFile: return fmt::format("`redline image {} PROMPT` generates images with it", path);
    case FileKind::kComponent: {
      const std::string around = pipeline_around(path);
      return fmt::format("`redline image {} PROMPT` takes the pipeline's folder", around.empty() ? "FOLDER" : around);
    }
    case FileKind::kTextAdapter: return fmt::format("`redline run MODEL PROMPT --lora {}` applies it", path);
    case FileKind::kImageAdapter: return fmt::format("`redline image MODEL PROMPT --lora {}` applies it", path);
    case FileKind::kTransformer:
      return fmt::format("`redline image FOLDER PROMPT --transformer {}` uses it in a FLUX.1 pipeline", path);
    case FileKind::kOnnx: return fmt::format("`redline inspect {}` shows its network", path);
  }
  return "";
}

bool suits(FileKind kind, ModelUse use) {
  switch (use) {
    case ModelUse::kText: return kind == FileKind::kGguf || kind == FileKind::kModelFolder;
    case ModelUse::kImage: return kind == FileKind::kPipeline || kind == FileKind::kPipelineFile;
    case ModelUse::kTextAdapter: return kind == FileKind::kTextAdapter;
    case ModelUse::kImageAdapter: return kind == FileKind::kImageAdapter;
    case ModelUse::kConvert: return kind == FileKind::kLlama2c || kind == FileKind::kModelFolder;
  }
  return false;
}

}  // namespace

std::string_view file_kind_name(FileKind kind) {
  switch (kind) {
    case FileKind::kGguf: return "gguf";
    case FileKind::kModelFolder: return "huggingface";
    case FileKind::kSafetensors: return "safetensors";
    case FileKind::kLlama2c: return "llama2c";
    case FileKind::kPipeline: return "diffusers";
    case FileKind::kPipelineFile: return "image checkpoint";
    case FileKind::kComponent: return "diffusers component";
    case FileKind::kTextAdapter:
    case FileKind::kImageAdapter: return "lora";
    case FileKind::kTransformer: return "transformer";
    case FileKind::kOnnx: return "onnx";
  }
  return "";
}

std::string_view file_kind_words(FileKind kind) {
  switch (kind) {
    case FileKind::kGguf: return "a GGUF file";
    case FileKind::kModelFolder: return "a Hugging Face folder";
    case FileKind::kSafetensors: return "a single file of weights, without its configuration";
    case FileKind::kLlama2c: return "a llama2.c checkpoint";
    case FileKind::kPipeline: return "an image pipeline";
    case FileKind::kPipelineFile: return "an image pipeline in one file";
    case FileKind::kComponent: return "one component of an image pipeline";
    case FileKind::kTextAdapter: return "a LoRA adapter for language models";
    case FileKind::kImageAdapter: return "a LoRA adapter for image models";
    case FileKind::kTransformer: return "a FLUX.1 transformer in one file";
    case FileKind::kOnnx: return "an ONNX file";
  }
  return "";
}

std::string pipeline_around(const std::string& path) {
  for (fs::path folder = parent_of(path); !folder.empty(); folder = folder.parent_path()) {
    if (is_there(folder / "model_index.json")) return folder.string();
    if (folder == folder.parent_path()) break;
  }
  return "";
}

std::string image_adapter_file(const std::string& path) {
  const fs::path inside = fs::path(path) / kDiffusersAdapter;
  return is_there(inside) ? inside.string() : path;
}

Status check_kind(const std::string& path, FileKind kind, ModelUse use) {
  if (suits(kind, use)) return {};
  const bool is_adapter_wanted = use == ModelUse::kTextAdapter || use == ModelUse::kImageAdapter;
  if (is_adapter_wanted && kind != FileKind::kTextAdapter && kind != FileKind::kImageAdapter)
    return invalid_argument("{}: is {}, not a LoRA adapter", path, file_kind_words(kind));
  if (use == ModelUse::kConvert && kind == FileKind::kGguf)
    return invalid_argument("{}: is a GGUF file already; the input is a Hugging Face folder or a llama2.c checkpoint",
                            path);
  // A folder without model_index.json may be a pipeline whose download is incomplete.
  const bool is_folder = use == ModelUse::kImage && kind == FileKind::kModelFolder;
  return another_kind(
      path, kind, advice_for(path, kind) + (is_folder ? "; an image pipeline's folder has a model_index.json" : ""));
}

Status explain_kind(Status status, const std::string& path, ModelUse use) {
  if (status.ok() || status.code() == Code::io || is_out_of_memory(status.code()) || status.code() == Code::cancelled ||
      is_random_model(path))
    return status;
  const Result<FileKind> kind = detect_file_kind(path);
  if (!kind.ok()) return kind.status().code() == Code::invalid_argument ? kind.status() : status;
  // LoHa and the like: the reader reports why they are not supported.
  if (*kind == FileKind::kSafetensors && use == ModelUse::kImageAdapter) return status;
  Status explained = check_kind(path, *kind, use);
  return explained.ok() ? status : explained;
}

Result<FileKind> detect_file_kind(const std::string& path) {
  if (is_random_model(path))
    return unsupported(
        "{}: the weights are made in memory, and this command reads a file; redline bench --random {} "
        "--save FILE.gguf writes one",
        path, path.substr(kRandomPrefix.size()));
  std::error_code error;
  if (fs::is_directory(path, error)) return kind_of_folder(path);
  REDLINE_ASSIGN(const auto file, MappedFile::open(path));
  const std::string_view text = file->text();
  if (text.starts_with("GGUF") || text.starts_with("FUGG")) return kind_of_gguf(path);
  if (is_cut_short(path, text)) return invalid_argument("{}: incomplete: the file has {} bytes", path, text.size());
  // A safetensors file begins with the length of a JSON object, and then the object.
  uint64_t header_bytes = 0;
  if (text.size() > 9) std::memcpy(&header_bytes, text.data(), 8);
  if (text.size() > 9 && text[8] == '{' && header_bytes < (uint64_t{1} << 32))
    return kind_of_safetensors(path, text.substr(8, header_bytes));
  if (text.starts_with("PK\x03\x04") && is_there(parent_of(path) / "adapter_config.json"))
    return FileKind::kTextAdapter;
  // The tensor names are in the pickle, which is the first file of the archive.
  constexpr size_t kMaxPickle = size_t{4} << 20;
  if (text.starts_with("PK\x03\x04") && names_pipeline_tensor(text.substr(0, kMaxPickle)))
    return FileKind::kPipelineFile;
  int32_t sizes[7] = {};
  if (text.size() > sizeof sizes) std::memcpy(sizes, text.data(), sizeof sizes);
  const bool is_plausible =
      std::all_of(sizes, sizes + 7, [](int32_t n) { return n != 0 && n > -(1 << 24) && n < (1 << 24); }) &&
      std::all_of(sizes, sizes + 5, [](int32_t n) { return n > 0; }) && sizes[6] > 0;
  if (is_plausible) return FileKind::kLlama2c;
  if (OnnxFile::looks_like(text)) return FileKind::kOnnx;
  if (text.starts_with("PK\x03\x04") || text.starts_with("\x80\x02"))
    return invalid_argument(
        "{}: is a file of PyTorch; give the model as safetensors, as save_pretrained(FOLDER) writes it, or as GGUF",
        path);
  std::string head;
  for (const char c : text.substr(0, 8))
    head += fmt::format("{}{:02x}", head.empty() ? "" : " ", static_cast<uint8_t>(c));
  return invalid_argument(
      "{}: unrecognized file format ({} bytes, beginning {}); supported: GGUF, safetensors, Hugging Face "
      "folders, diffusers folders, LoRA adapters, llama2.c checkpoints, ONNX",
      path, text.size(), head);
}

}  // namespace redline::cli
