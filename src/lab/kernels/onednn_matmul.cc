#include "lab/kernels/onednn_matmul.h"

#include <dlfcn.h>

#include <filesystem>

namespace redline::lab {
namespace {

namespace fs = std::filesystem;

Result<const OneDnnModule*> open_module() {
  std::error_code failed;
  const fs::path folder = fs::read_symlink("/proc/self/exe", failed).parent_path();
  // The module is next to the program, in the build tree or the install tree. Test programs are one folder deeper.
  for (const fs::path& place : {folder, folder.parent_path(), folder.parent_path() / "lib" / "redline"}) {
    const fs::path file = place / "redline_onednn.so";
    if (!fs::exists(file, failed)) continue;
    void* const module = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr) return unsupported("{} cannot be opened: {}", file.string(), dlerror());
    const auto entry = reinterpret_cast<OneDnnEntry>(dlsym(module, "redline_onednn"));
    if (entry == nullptr) return unsupported("{} is not a module of this Redline", file.string());
    return entry();
  }
  return unsupported(
      "oneDNN is not here: install its headers and library, version 2 (Debian's libdnnl-dev), "
      "then configure and build Redline again");
}

}  // namespace

Result<const OneDnnModule*> onednn_module() {
  static const Result<const OneDnnModule*> module = open_module();
  return module;
}

}  // namespace redline::lab
