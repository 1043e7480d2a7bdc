#include "cli/model_name.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/text_distance.h"
#include "cli/hub_pull.h"
#include "models/files/random_model.h"

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

/// Returns the folders in which a bare name is looked up, whether they exist or not.
std::vector<fs::path> model_roots() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return error ? std::vector<fs::path>{"assets"} : model_roots_of(program.parent_path());
}

/// Returns the folders of `roots` that exist, each once: assets/ of the current folder may be that of the source tree.
std::vector<fs::path> existing(const std::vector<fs::path>& roots) {
  std::vector<fs::path> found, real;
  for (const fs::path& root : roots) {
    std::error_code error;
    const fs::path path = fs::canonical(root, error);
    if (error || std::find(real.begin(), real.end(), path) != real.end()) continue;
    real.push_back(path);
    found.push_back(root);
  }
  return found;
}

std::string nearest_in(const fs::path& folder, const std::string& word) {
  const std::vector<std::string> names = entries_of(folder);
  const std::vector<std::string_view> views(names.begin(), names.end());
  return std::string(nearest_name(word, views));
}

}  // namespace

std::vector<fs::path> model_roots_of(const fs::path& folder) {
  std::vector<fs::path> roots = {"assets", folder / "models", folder.parent_path() / "share" / "redline"};
  // A program of a build lies some folders below the source tree, as build/release/redline.
  std::error_code error;
  for (fs::path above = folder; above.has_relative_path(); above = above.parent_path())
    if (fs::is_directory(above / "assets" / "redline-tales", error)) {
      roots.push_back(above / "assets");
      break;
    }
  return roots;
}

Result<std::string> find_model(const std::string& name) {
  if (is_hub_name(name)) return find_hub_model(name);
  if (is_random_model(name)) return name;
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
  if (std::count(name.begin(), name.end(), '/') == 1 && name.front() != '.' && parse_hub_name("hf:" + name).ok())
    return not_found("model {}: no such file or folder; a model on Hugging Face is hf:{}", name, name);
  std::vector<std::string> known;
  for (const fs::path& root : existing(roots))
    for (const std::string& entry : entries_of(root))
      if (fs::is_directory(root / entry, error)) known.push_back((root / entry).string());
  if (known.empty() && roots.empty()) return not_found("model {}: no such file or folder", name);
  if (known.empty()) {
    std::vector<std::string> searched;
    for (const fs::path& root : roots) searched.push_back(root.string());
    return not_found("model {}: no such file or folder, and none of that name in {}", name, fmt::join(searched, ", "));
  }
  return not_found("model {}: no such file or folder; bundled: {}", name, fmt::join(known, ", "));
}

std::vector<std::string> bundled_models() {
  std::vector<std::string> paths;
  for (const fs::path& root : existing(model_roots()))
    for (const std::string& entry : entries_of(root)) paths.push_back((root / entry).string());
  return paths;
}

std::string short_name(const std::string& path) {
  const fs::path normal = fs::path(path).lexically_normal();
  // The folder of a model in the cache of the Hub has the name of its commit.
  const std::string repository = normal.parent_path().parent_path().filename().string();
  if (normal.parent_path().filename() == "snapshots" && repository.starts_with("models--"))
    return repository.substr(repository.rfind("--") + 2);
  const std::string name = (normal.filename().empty() ? normal.parent_path() : normal).filename().string();
  return name.empty() || name == "." || name == ".." ? path : name;
}

std::pair<std::string, std::string> name_and_path(const std::string& text) {
  if (const size_t equals = text.find('='); equals != std::string::npos && equals > 0)
    return {text.substr(0, equals), text.substr(equals + 1)};
  std::string name = short_name(text);
  if (name.ends_with(".gguf")) name.resize(name.size() - 5);
  return {name, text};
}

}  // namespace redline::cli
