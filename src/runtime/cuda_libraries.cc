#include "runtime/cuda_libraries.h"

#include <algorithm>
#include <filesystem>

#include "base/environment.h"

namespace redline {
namespace {

namespace fs = std::filesystem;

/// Returns the prefixes of Python installations: folders that have bin/ and lib/pythonX.Y/.
std::vector<fs::path> python_prefixes() {
  std::vector<fs::path> prefixes;
  const auto add = [&](const fs::path& prefix) {
    if (!prefix.empty() && std::find(prefixes.begin(), prefixes.end(), prefix) == prefixes.end())
      prefixes.push_back(prefix);
  };
  add(environment_variable("VIRTUAL_ENV"));
  add(environment_variable("CONDA_PREFIX"));
  const std::string path = environment_variable("PATH");
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const fs::path bin = path.substr(begin, end - begin);
    std::error_code error;
    if (bin.filename() == "bin" && fs::exists(bin / "python3", error)) add(bin.parent_path());
    begin = end + 1;
  }
  if (const std::string home = environment_variable("HOME"); !home.empty()) add(fs::path(home) / ".local");
  return prefixes;
}

}  // namespace

std::vector<std::string> find_python_libraries(std::string_view file) {
  std::vector<std::string> found;
  for (const fs::path& prefix : python_prefixes()) {
    std::error_code error;
    std::vector<fs::path> pythons;
    for (fs::directory_iterator at(prefix / "lib", error), end; !error && at != end; at.increment(error))
      if (at->path().filename().string().starts_with("python3")) pythons.push_back(at->path());
    std::sort(pythons.begin(), pythons.end());
    for (const fs::path& python : pythons)
      for (const char* packages : {"site-packages", "dist-packages"}) {
        const fs::path folder = python / packages / "nvidia/cu13/lib";
        if (fs::exists(folder / file, error)) found.push_back(folder.string());
      }
  }
  return found;
}

std::string matrix_library_folders(const std::string& setting) {
  if (!setting.empty()) return setting;
  std::string folders = ":/usr/local/cuda/lib64";
  for (const std::string& folder : find_python_libraries("libcublasLt.so.13")) folders += ":" + folder;
  return folders;
}

}  // namespace redline
