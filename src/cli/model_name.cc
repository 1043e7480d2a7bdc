#include "cli/model_name.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/mapped_file.h"
#include "base/text_distance.h"
#include "lab/random/random_model.h"

namespace redline::cli {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> entries_of(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// Folders searched for a bare name.
std::vector<fs::path> model_roots() {
  std::vector<fs::path> roots = {"assets"};
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) roots.push_back(program.parent_path().parent_path() / "share" / "redline");
  return roots;
}

std::string nearest_in(const fs::path& folder, const std::string& word) {
  const std::vector<std::string> names = entries_of(folder);
  const std::vector<std::string_view> views(names.begin(), names.end());
  return std::string(nearest_name(word, views));
}

}  // namespace

Result<std::string> find_model(const std::string& name) {
  if (name.starts_with("hf:"))
    return unsupported(
        "model {}: fetching from Hugging Face is not built yet; "
        "download the repository and give its folder",
        name);
  if (lab::is_random_model(name)) return name;
  if (name.empty()) return invalid_argument("the name of the model is empty");
  std::error_code error;
  if (fs::exists(name, error)) return name;
  if (fs::is_symlink(name, error))
    return not_found("model {}: is a link that leads nowhere (to {})", name, fs::read_symlink(name, error).string());
  const std::vector<fs::path> roots = fs::path(name).is_relative() ? model_roots() : std::vector<fs::path>{};
  for (const fs::path& root : roots)
    if (fs::exists(root / name, error)) return (root / name).string();

  fs::path wanted = fs::path(name).lexically_normal();
  if (wanted.filename().empty()) wanted = wanted.parent_path();
  fs::path folder = wanted.parent_path();
  // The first component of the path that does not exist is the mistyped one.
  while (!folder.empty() && folder != folder.parent_path() && !fs::exists(folder, error)) {
    wanted = folder;
    folder = folder.parent_path();
  }
  std::vector<fs::path> places = {folder};
  if (folder.empty()) places.insert(places.end(), roots.begin(), roots.end());
  for (const fs::path& place : places) {
    const std::string near = nearest_in(place.empty() ? "." : place, wanted.filename().string());
    if (!near.empty())
      return not_found("model {}: no such file or folder; did you mean {}?", name, (place / near).string());
  }
  std::vector<std::string> known;
  for (const fs::path& root : roots)
    for (const std::string& entry : entries_of(root)) known.push_back((root / entry).string());
  if (known.empty()) return not_found("model {}: no such file or folder", name);
  return not_found("model {}: no such file or folder; bundled: {}", name, fmt::join(known, ", "));
}

std::string short_name(const std::string& path) {
  const fs::path normal = fs::path(path).lexically_normal();
  const std::string name = (normal.filename().empty() ? normal.parent_path() : normal).filename().string();
  return name.empty() || name == "." || name == ".." ? path : name;
}

std::string_view file_kind_name(FileKind kind) {
  switch (kind) {
    case FileKind::kGguf: return "gguf";
    case FileKind::kModelFolder: return "huggingface";
    case FileKind::kSafetensors: return "safetensors";
    case FileKind::kLlama2c: return "llama2c";
  }
  return "";
}

Result<FileKind> detect_file_kind(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    for (const char* file :
         {"config.json", "model.safetensors", "model.safetensors.index.json", "tokenizer.json", "tokenizer.model"})
      if (fs::exists(fs::path(path) / file, error)) return FileKind::kModelFolder;
    return invalid_argument(
        "{}: the folder holds no model (no config.json, "
        "model.safetensors or tokenizer.json)",
        path);
  }
  REDLINE_ASSIGN(const auto file, MappedFile::open(path));
  const std::string_view text = file->text();
  if (text.starts_with("GGUF") || text.starts_with("FUGG")) return FileKind::kGguf;
  // safetensors: the length of a JSON object, then the object.
  uint64_t header_bytes = 0;
  if (text.size() > 9) std::memcpy(&header_bytes, text.data(), 8);
  if (text.size() > 9 && text[8] == '{' && header_bytes <= text.size() - 8) return FileKind::kSafetensors;
  int32_t sizes[7] = {};
  if (text.size() > sizeof sizes) std::memcpy(sizes, text.data(), sizeof sizes);
  const bool is_plausible =
      std::all_of(sizes, sizes + 7, [](int32_t n) { return n != 0 && n > -(1 << 24) && n < (1 << 24); }) &&
      std::all_of(sizes, sizes + 5, [](int32_t n) { return n > 0; }) && sizes[6] > 0;
  if (is_plausible) return FileKind::kLlama2c;
  std::string head;
  for (const char c : text.substr(0, 8))
    head += fmt::format("{}{:02x}", head.empty() ? "" : " ", static_cast<uint8_t>(c));
  return invalid_argument(
      "{}: not a kind of file that Redline knows ({} "
      "bytes, beginning {}); known: GGUF, safetensors, "
      "Hugging Face folders, llama2.c checkpoints",
      path, text.size(), head.empty() ? "with nothing" : head);
}

}  // namespace redline::cli
