// Small files made byte by byte, so that a test can make each of them wrong in one place.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/mapped_file.h"

namespace redline {

template <class T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}
inline std::string u32(uint64_t value) { return raw(static_cast<uint32_t>(value)); }
inline std::string u64(uint64_t value) { return raw(value); }
inline std::string counted(std::string_view text) { return u64(text.size()) + std::string(text); }

/// Metadata entry: key, type number, payload.
inline std::string kv(std::string_view key, uint32_t type, const std::string& payload) {
  return counted(key) + u32(type) + payload;
}
/// Tensor entry; sizes innermost first as the file has them.
inline std::string tensor_info(std::string_view name, const std::vector<uint64_t>& sizes, uint32_t type,
                               uint64_t offset) {
  std::string out = counted(name) + u32(sizes.size());
  for (const uint64_t size : sizes) out += u64(size);
  return out + u32(type) + u64(offset);
}
struct RawGguf {
  std::string magic = "GGUF";
  uint32_t version = 3;
  std::vector<std::string> keys, tensors;
  std::string data;
  uint64_t alignment = 32;
  uint64_t more_keys = 0, more_tensors = 0;  ///< declared beyond those that are there

  std::string bytes() const {
    std::string out = magic + u32(version) + u64(tensors.size() + more_tensors) + u64(keys.size() + more_keys);
    for (const auto& key : keys) out += key;
    for (const auto& tensor : tensors) out += tensor;
    if (!data.empty()) out.resize((out.size() + alignment - 1) / alignment * alignment, '\0');
    return out + data;
  }
};

inline std::shared_ptr<MappedFile> memory_file(std::string_view bytes) {
  return MappedFile::from_bytes("x.bin", bytes);
}

inline void put_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// A folder of the running test's own, removed at its end.
class TestFolder {
 public:
  TestFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "redline-test-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(std::string_view name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

/// Files that are not part of this project: tests that want them pass by with a printed reason when they are absent.
#define REDLINE_NEEDS_SHARED(path)                                              \
  if (!std::filesystem::exists(std::string(REDLINE_SHARED_DIR) + "/" + (path))) \
  GTEST_SKIP() << REDLINE_SHARED_DIR << "/" << (path) << " is not on this machine"

}  // namespace redline
