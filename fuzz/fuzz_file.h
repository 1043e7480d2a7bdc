// Temporary files for readers that take a path, in memory if the system has /dev/shm.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "fuzz_input.h"

namespace redline {

/// A temporary folder, removed when the object is destroyed.
class FuzzFolder {
 public:
  FuzzFolder() {
    const bool has_memory = std::filesystem::is_directory("/dev/shm");
    std::string pattern = has_memory ? "/dev/shm/redline_fuzz_XXXXXX" : "/tmp/redline_fuzz_XXXXXX";
    require(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~FuzzFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  FuzzFolder(const FuzzFolder&) = delete;
  FuzzFolder& operator=(const FuzzFolder&) = delete;

  const std::string& path() const { return path_; }
  /// Replaces a file; a mapping of the old file stays valid.
  void write(const std::string& name, std::string_view bytes) const {
    const std::string path = path_ + "/" + name;
    std::filesystem::remove(path);
    std::ofstream(path, std::ios::binary) << bytes;
  }

 private:
  std::string path_;
};

/// One file in a temporary folder of its own.
class FuzzFile {
 public:
  explicit FuzzFile(std::string name) : name_(std::move(name)) {}
  void write(std::string_view bytes) const { folder_.write(name_, bytes); }
  std::string path() const { return folder_.path() + "/" + name_; }

 private:
  FuzzFolder folder_;
  std::string name_;
};

}  // namespace redline
