#include "cli/file_report.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "formats/gguf.h"
#include "formats/llama2c.h"
#include "formats/safetensors.h"

namespace redline::cli {
namespace {

void add_files(const std::vector<std::shared_ptr<MappedFile>>& files, FileReport& report) {
  for (const auto& file : files) report.files.emplace_back(file->path(), file->size());
}

Status read_gguf(const std::string& path, FileReport& report) {
  REDLINE_ASSIGN(const GgufFile file, GgufFile::open(path));
  add_files(file.files(), report);
  report.format = fmt::format("GGUF v{}", file.version());
  if (file.files().size() > 1) report.format += fmt::format(", {} parts", file.files().size());
  for (const auto& [key, value] : file.metadata()) report.metadata.emplace_back(key, value.to_string());
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

/// config.json's own keys as metadata; nested ones as JSON text.
Status add_config(const std::string& path, FileReport& report) {
  REDLINE_ASSIGN(const std::string text, read_text_file(path));
  const auto config = nlohmann::ordered_json::parse(text, nullptr, false);
  if (!config.is_object()) return invalid_argument("{}: not a JSON object", path);
  for (const auto& [key, value] : config.items())
    report.metadata.emplace_back(
        key, value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).substr(0, 200));
  return {};
}

Status read_folder(const std::string& path, FileReport& report) {
  const std::filesystem::path folder(path);
  std::error_code error;
  report.format = "no weights";
  if (std::filesystem::exists(folder / "model.safetensors", error) ||
      std::filesystem::exists(folder / "model.safetensors.index.json", error)) {
    REDLINE_ASSIGN(const SafetensorsFiles files, SafetensorsFiles::open_folder(path));
    add_safetensors(files, report);
  }
  report.format = "Hugging Face folder, " + report.format;
  if (std::filesystem::exists(folder / "config.json", error))
    REDLINE_TRY(add_config((folder / "config.json").string(), report));
  return {};
}

Status read_llama2c(const std::string& path, FileReport& report) {
  REDLINE_ASSIGN(const Llama2cFile file, Llama2cFile::open(path));
  report.format = "llama2.c checkpoint";
  add_files({file.file}, report);
  const auto add = [&](const char* name, auto value) { report.metadata.emplace_back(name, fmt::format("{}", value)); };
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
    case FileKind::kSafetensors: {
      REDLINE_ASSIGN(const SafetensorsFiles files, SafetensorsFiles::open_file(path));
      add_safetensors(files, report);
      break;
    }
  }
  return report;
}

}  // namespace redline::cli
