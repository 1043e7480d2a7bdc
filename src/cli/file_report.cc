#include "cli/file_report.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "cli/onnx_report.h"
#include "formats/gguf.h"
#include "formats/llama2c.h"
#include "formats/onnx.h"
#include "formats/onnx_parser.h"
#include "formats/safetensors.h"
#include "formats/torch_file.h"
#include "text/json_reader.h"

namespace redline::cli {
namespace {

void add_files(const std::vector<std::shared_ptr<MappedFile>>& files, FileReport& report) {
  for (const auto& file : files) report.files.emplace_back(file->path(), file->size());
}

std::string shortened(const std::string& text) {
  constexpr size_t kMaxShown = 120;
  if (text.size() <= kMaxShown) return text;
  size_t end = kMaxShown;
  while (end > 0 && (text[end] & 0xC0) == 0x80) --end;  // whole characters of UTF-8
  return text.substr(0, end) + "...";
}

FileReport::Entry json_entry(const std::string& key, const Json& value) {
  return {key, value, shortened(to_text(value, -1))};
}

Json scalar_json(const GgufValue& value) {
  if (const auto flag = value.as_bool()) return *flag;
  if (const auto text = value.as_string()) return *text;
  if (value.type == GgufType::kF32 || value.type == GgufType::kF64) {
    // The shortest decimal of a float32, not that of the double it becomes.
    const double number = std::strtod(value.to_string().c_str(), nullptr);
    return std::isfinite(number) ? Json(number) : Json(value.to_string());
  }
  if (const auto number = value.as_int()) return *number;
  return value.to_string();  // an integer beyond int64
}

Json gguf_json(const GgufValue& value) {
  if (value.type != GgufType::kArray) return scalar_json(value);
  constexpr uint64_t kFirst = 8;
  const bool is_long = value.count > FileReport::Entry::kMaxElements;
  Json elements = Json::array();
  if (value.element_type == GgufType::kString) {
    if (const auto strings = value.as_strings())
      for (const std::string_view text : *strings) {
        if (is_long && elements.size() == kFirst) break;
        elements.push_back(text);
      }
  } else if (value.element_type == GgufType::kArray) {
    elements.push_back(value.to_string());
  } else {
    const bool is_whole = value.element_type != GgufType::kF32 && value.element_type != GgufType::kF64;
    for (uint64_t i = 0; i < (is_long ? kFirst : value.count); ++i) {
      const auto whole = is_whole ? value.int_at(i) : std::nullopt;
      if (whole && value.element_type == GgufType::kBool) elements.push_back(*whole != 0);
      else if (whole) elements.push_back(*whole);
      else elements.push_back(value.double_at(i).value_or(0));
    }
  }
  if (!is_long) return elements;
  return {{"count", value.count}, {"type", gguf_value_type_name(value.element_type)}, {"first", std::move(elements)}};
}

Status read_gguf(const std::string& path, FileReport& report) {
  REDLINE_ASSIGN(const GgufFile file, GgufFile::open(path));
  add_files(file.files(), report);
  report.format = fmt::format("GGUF v{}", file.version());
  if (file.files().size() > 1) report.format += fmt::format(", {} parts", file.files().size());
  for (const auto& [key, value] : file.metadata())
    report.metadata.push_back({key, gguf_json(value), value.to_string()});
  for (const GgufTensor& t : file.tensors()) {
    const bool is_readable = t.view.data != nullptr;
    std::string type(is_readable ? dtype_info(t.view.dtype).name : gguf_type_name(t.gguf_type));
    if (type.empty()) type = fmt::format("type {}", t.gguf_type);
    report.tensors.push_back({t.name, type, t.view.shape, t.bytes, t.file_offset, t.part, is_readable});
  }
  return {};
}

void add_safetensors(const SafetensorsFiles& files, FileReport& report) {
  add_files(files.files(), report);
  report.format = files.files().size() > 1 ? fmt::format("safetensors, {} files", files.files().size()) : "safetensors";
  for (const SafetensorsTensor& t : files.tensors()) {
    const bool is_readable = t.view.data != nullptr;
    const std::string type(is_readable ? dtype_info(t.view.dtype).name : std::string_view(t.type_name));
    report.tensors.push_back({t.name, type, t.view.shape, t.bytes, t.file_offset, t.part, is_readable});
  }
}

/// Adds the keys of a JSON file as metadata.
Status add_config(const std::string& path, FileReport& report) {
  REDLINE_ASSIGN(const std::string text, read_text_file(path));
  REDLINE_TRY(parse_json_object(text, path));
  const Json config = parse_json_or_discard<Json>(text);  // keeps the order of the file
  for (const auto& [key, value] : config.items()) report.metadata.push_back(json_entry(key, value));
  return {};
}

/// Adds "__metadata__" of a safetensors file, whose values are strings, such as a trainer's settings.
void add_header_metadata(const std::string_view file, FileReport& report) {
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof header_bytes);
  const Json header = parse_json_or_discard<Json>(file.substr(sizeof header_bytes, header_bytes));
  const auto metadata = header.find("__metadata__");
  if (metadata == header.end() || !metadata->is_object()) return;
  for (const auto& [key, value] : metadata->items()) report.metadata.push_back(json_entry(key, value));
}

Status read_safetensors(const std::string& path, FileReport& report) {
  REDLINE_ASSIGN(const SafetensorsFiles files, SafetensorsFiles::open_file(path));
  add_safetensors(files, report);
  add_header_metadata(files.files()[0]->text(), report);
  return {};
}

void add_torch(const TorchFile& file, FileReport& report) {
  const int number = static_cast<int>(report.files.size());
  add_files({file.file()}, report);
  report.format = "PyTorch";
  for (const TorchTensor& t : file.tensors()) {
    const bool is_readable = t.view.data != nullptr;
    const int64_t offset = is_readable ? static_cast<const uint8_t*>(t.view.data) - file.file()->data() : 0;
    report.tensors.push_back({t.name, is_readable ? std::string(dtype_info(t.view.dtype).name) : t.type_name,
                              t.view.shape, is_readable ? t.view.bytes() : 0, offset, number, is_readable});
  }
}

Status read_torch(const std::string& path, FileReport& report) {
  REDLINE_ASSIGN(const TorchFile file, TorchFile::open(path));
  add_torch(file, report);
  return {};
}

/// Returns true if the folder has an index of safetensors files, some of which may be missing.
bool has_index(const std::filesystem::path& folder) {
  std::error_code error;
  return std::filesystem::exists(folder / "model.safetensors.index.json", error) ||
         std::filesystem::exists(folder / "diffusion_pytorch_model.safetensors.index.json", error);
}

/// Adds the weights of a folder, safetensors or else files of PyTorch. False: it has none.
Result<bool> add_folder_weights(const std::string& folder, FileReport& report) {
  auto files = SafetensorsFiles::open_folder(folder);
  if (files.ok()) {
    add_safetensors(*files, report);
    return true;
  }
  if (files.status().code() != Code::not_found || has_index(folder)) return files.status();
  if (!has_torch_weights(folder)) return false;
  REDLINE_ASSIGN(const std::vector<TorchFile> torch, open_torch_folder(folder));
  for (const TorchFile& file : torch) add_torch(file, report);
  return true;
}

Status read_folder(const std::string& path, FileReport& report) {
  const std::filesystem::path folder(path);
  std::error_code error;
  report.format = "no weights";
  REDLINE_TRY(add_folder_weights(path, report));
  report.format = "Hugging Face folder, " + report.format;
  if (std::filesystem::exists(folder / "config.json", error))
    REDLINE_TRY(add_config((folder / "config.json").string(), report));
  return {};
}

std::string types_text(const std::vector<FileReport::TypeTotal>& totals) {
  std::string text;
  for (const auto& total : totals) text += fmt::format("{}{} x{}", text.empty() ? "" : ", ", total.type, total.tensors);
  return text;
}

/// Reads a diffusers folder: model_index.json, and the weights of each component that it names.
Status read_pipeline(const std::string& path, FileReport& report) {
  REDLINE_ASSIGN(const std::string text, read_text_file(path + "/model_index.json"));
  REDLINE_TRY(parse_json_object(text, path + "/model_index.json"));
  const Json index = parse_json_or_discard<Json>(text);  // keeps the order of the file
  report.pipeline_class = index.contains("_class_name") && index["_class_name"].is_string()
                              ? index["_class_name"].get<std::string>()
                              : std::string();
  report.format = fmt::format("diffusers folder, {}", report.pipeline_class);
  for (const auto& [name, entry] : index.items()) {
    const bool is_component = entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string();
    if (!is_component) {
      report.metadata.push_back(json_entry(name, entry));
      continue;
    }
    FileReport::Component component{name, entry[0].get<std::string>(), entry[1].get<std::string>()};
    const std::filesystem::path folder = std::filesystem::path(path) / name;
    if (name.find('/') == std::string::npos && name.find("..") == std::string::npos) {
      FileReport part;
      REDLINE_TRY(add_folder_weights(folder.string(), part));
      component.tensors = std::ssize(part.tensors);
      component.types = types_text(part.totals());
      const int first_file = static_cast<int>(report.files.size());
      report.files.insert(report.files.end(), part.files.begin(), part.files.end());
      for (FileReport::Tensor& tensor : part.tensors) {
        component.elements += tensor.elements();
        component.bytes += tensor.bytes;
        tensor.name = name + "/" + tensor.name;
        tensor.file += first_file;
        report.tensors.push_back(std::move(tensor));
      }
    }
    report.components.push_back(std::move(component));
  }
  std::error_code error;
  if (std::filesystem::exists(path + "/redline.json", error)) REDLINE_TRY(add_config(path + "/redline.json", report));
  return {};
}

/// Reads the folder of one component of a diffusers pipeline.
Status read_component(const std::string& path, FileReport& report) {
  report.format = "component of a diffusers folder, no weights";
  REDLINE_ASSIGN(const bool has_weights, add_folder_weights(path, report));
  if (has_weights) {
    report.format = "component of a diffusers folder, " + report.format;
  }
  const std::filesystem::path folder(path);
  std::error_code error;
  const bool is_scheduler = std::filesystem::exists(folder / "scheduler_config.json", error);
  return add_config((folder / (is_scheduler ? "scheduler_config.json" : "config.json")).string(), report);
}

std::string report_text(const FileReport& report, std::string_view key) {
  for (const FileReport::Entry& entry : report.metadata)
    if (entry.key == key && entry.value.is_string()) return entry.value.get<std::string>();
  return "";
}

/// Reads a PEFT folder, a file in one, or a GGUF adapter.
Status read_text_adapter(const std::string& path, FileReport& report) {
  const std::filesystem::path given(path);
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(given, error);
  const std::filesystem::path folder = is_folder ? given : given.parent_path();
  const std::string config = (folder / "adapter_config.json").string();
  std::string weights = path;
  for (const char* name : {"adapter_model.bin", "adapter_model.safetensors"})
    if (is_folder && std::filesystem::exists(folder / name, error)) weights = (folder / name).string();
  if (is_folder && weights == path)
    return not_found("{}: incomplete: the folder has no adapter_model.safetensors", path);
  REDLINE_ASSIGN(const auto file, MappedFile::open(weights));
  if (file->text().starts_with("GGUF")) {
    REDLINE_TRY(read_gguf(path, report));
    report.adapter_names = "llama.cpp";
    report.base_model = report_text(report, "general.architecture");
    return {};
  }
  REDLINE_TRY(weights.ends_with(".bin") ? read_torch(weights, report) : read_safetensors(weights, report));
  if (is_folder) report.format = "PEFT folder, " + report.format;
  report.adapter_names = "PEFT";
  if (std::filesystem::exists(config, error)) REDLINE_TRY(add_config(config, report));
  report.base_model = report_text(report, "base_model_name_or_path");
  return {};
}

Status read_image_adapter(const std::string& path, FileReport& report) {
  REDLINE_TRY(read_safetensors(image_adapter_file(path), report));
  const auto has = [&](std::string_view part) {
    return std::any_of(report.tensors.begin(), report.tensors.end(),
                       [&](const FileReport::Tensor& tensor) { return tensor.name.find(part) != std::string::npos; });
  };
  report.adapter_names = has("lora_down") ? "kohya" : has("base_model.model.") ? "PEFT" : "diffusers";
  for (const char* key : {"modelspec.architecture", "ss_base_model_version"})
    if (report.base_model.empty()) report.base_model = report_text(report, key);
  return {};
}

Status read_llama2c(const std::string& path, FileReport& report) {
  REDLINE_ASSIGN(const Llama2cFile file, Llama2cFile::open(path));
  report.format = "llama2.c checkpoint";
  add_files({file.file}, report);
  const auto add = [&](const char* name, auto value) { report.metadata.push_back(json_entry(name, value)); };
  add("hidden_size", file.hidden_size);
  add("intermediate_size", file.intermediate_size);
  add("num_layers", file.num_layers);
  add("num_heads", file.num_heads);
  add("num_kv_heads", file.num_kv_heads);
  add("vocab_size", file.vocab_size);
  add("context_length", file.context_length);
  add("tied", file.tied);
  for (const auto& [name, view] : file.tensors) {
    const int64_t offset = static_cast<const uint8_t*>(view.data) - file.file->data();
    report.tensors.push_back({name, std::string(dtype_info(view.dtype).name), view.shape, view.bytes(), offset});
  }
  return {};
}

Status read_onnx(const std::string& path, FileReport& report) {
  REDLINE_ASSIGN(OnnxFile file, OnnxFile::open(path));
  report.format = fmt::format("ONNX, IR version {}", file.ir_version);
  if (file.files().size() > 1) report.format += fmt::format(", {} files of external data", file.files().size() - 1);
  add_files(file.files(), report);
  for (const OnnxMetadata& entry : file.metadata)
    report.metadata.push_back(json_entry(std::string(entry.key), std::string(entry.value)));
  return for_each_onnx_tensor(file.graph, [&](const OnnxTensor& tensor) -> Status {
    int number = 0;
    auto offset = static_cast<int64_t>(tensor.message_offset);
    for (size_t i = 0; i < file.files().size() && !tensor.dense.empty(); ++i) {
      const std::string_view bytes = file.files()[i]->text();
      if (tensor.dense.data() < bytes.data() || tensor.dense.data() >= bytes.data() + bytes.size()) continue;
      number = static_cast<int>(i);
      offset = tensor.dense.data() - bytes.data();
    }
    report.tensors.push_back({std::string(tensor.name), onnx_type_text(static_cast<int>(tensor.type)), tensor.shape,
                              tensor.bytes(), offset, number});
    return {};
  });
}

}  // namespace

int64_t FileReport::Tensor::elements() const {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  return n;
}

std::vector<FileReport::TypeTotal> FileReport::totals() const {
  std::map<std::string, TypeTotal> by_type;
  for (const Tensor& t : tensors) {
    TypeTotal& total = by_type[t.type];
    total.type = t.type;
    total.is_readable = t.is_readable;
    total.tensors += 1;
    total.elements += t.elements();
    total.bytes += t.bytes;
  }
  std::vector<TypeTotal> totals;
  totals.reserve(by_type.size());
  for (auto& [type, total] : by_type) totals.push_back(std::move(total));
  std::stable_sort(totals.begin(), totals.end(),
                   [](const TypeTotal& a, const TypeTotal& b) { return a.bytes > b.bytes; });
  return totals;
}

Result<FileReport> read_file_report(const std::string& path, FileKind kind) {
  FileReport report;
  report.kind = kind;
  switch (kind) {
    case FileKind::kGguf: REDLINE_TRY(read_gguf(path, report)); break;
    case FileKind::kModelFolder: REDLINE_TRY(read_folder(path, report)); break;
    case FileKind::kLlama2c: REDLINE_TRY(read_llama2c(path, report)); break;
    case FileKind::kPipeline: REDLINE_TRY(read_pipeline(path, report)); break;
    case FileKind::kComponent: REDLINE_TRY(read_component(path, report)); break;
    case FileKind::kTextAdapter: REDLINE_TRY(read_text_adapter(path, report)); break;
    case FileKind::kImageAdapter: REDLINE_TRY(read_image_adapter(path, report)); break;
    case FileKind::kSafetensors: REDLINE_TRY(read_safetensors(path, report)); break;
    case FileKind::kOnnx: REDLINE_TRY(read_onnx(path, report)); break;
    case FileKind::kPipelineFile: {
      REDLINE_ASSIGN(const auto file, MappedFile::open(path));
      REDLINE_TRY(file->text().starts_with("PK") ? read_torch(path, report) : read_safetensors(path, report));
      break;
    }
    case FileKind::kTransformer: {
      REDLINE_ASSIGN(const auto file, MappedFile::open(path));
      REDLINE_TRY(file->text().starts_with("GGUF") ? read_gguf(path, report) : read_safetensors(path, report));
      break;
    }
  }
  if (!report.adapter_names.empty())
    report.format = fmt::format("LoRA adapter with {}{} names, {}", report.adapter_names,
                                report.adapter_names.ends_with("s") ? "'" : "'s", report.format);
  return report;
}

}  // namespace redline::cli
