// Where the libraries of CUDA are looked for, and what is said where the driver's are missing.
#include "runtime/cuda_libraries.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "runtime/cuda_driver.h"

namespace redline::test {
namespace {

namespace fs = std::filesystem;

/// Sets variables of the environment until the end of a test.
class Environment {
 public:
  void set(const std::string& name, const std::string& value) {
    const char* old = std::getenv(name.c_str());
    if (!kept_.contains(name)) kept_[name] = old != nullptr ? old : "";
    ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~Environment() {
    for (const auto& [name, value] : kept_) ::setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  std::map<std::string, std::string> kept_;
};

void touch(const fs::path& file) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << "";
}

TEST(CudaLibraries, ThePythonsOfTheMachineAreSearched) {
  const fs::path root = fs::path(::testing::TempDir()) / "cuda_libraries";
  fs::remove_all(root);
  const std::string packages = "site-packages/nvidia/cu13/lib", file = "libcublasLt.so.13";
  touch(root / "env/lib/python3.12" / packages / file);
  touch(root / "opt/bin/python3");
  touch(root / "opt/lib/python3.10/dist-packages/nvidia/cu13/lib" / file);
  touch(root / "opt/lib/python3.11" / packages / "libcublasLt.so.12");
  touch(root / "plain/lib/python3.11" / packages / file);  // no Python there
  touch(root / "home/.local/lib/python3.11" / packages / file);
  Environment environment;
  environment.set("VIRTUAL_ENV", (root / "env").string());
  environment.set("CONDA_PREFIX", "");
  environment.set("HOME", (root / "home").string());
  environment.set("PATH", (root / "plain/bin").string() + ":" + (root / "opt/bin").string());
  const std::vector<std::string> want = {(root / "env/lib/python3.12" / packages).string(),
                                         (root / "opt/lib/python3.10/dist-packages/nvidia/cu13/lib").string(),
                                         (root / "home/.local/lib/python3.11" / packages).string()};
  EXPECT_EQ(find_python_libraries(file), want);
  // The loader's own first.
  EXPECT_EQ(matrix_library_folders(""), ":/usr/local/cuda/lib64:" + want[0] + ":" + want[1] + ":" + want[2]);
  EXPECT_EQ(matrix_library_folders("/opt/cuda"), "/opt/cuda");
  EXPECT_EQ(matrix_library_folders("none"), "none");
  fs::remove_all(root);
}

TEST(CudaLibraries, ADriverWithoutItsLibraryIsThatOfAContainer) {
  EXPECT_EQ(missing_driver_text("/nowhere"), "there is no NVIDIA driver on this machine (libcuda.so.1 is not found)");
  const fs::path version = fs::path(::testing::TempDir()) / "nvidia_version";
  touch(version);
  const std::string text = missing_driver_text(version.c_str());
  EXPECT_NE(text.find("docker run --gpus all"), std::string::npos) << text;
  fs::remove(version);
}

}  // namespace
}  // namespace redline::test
