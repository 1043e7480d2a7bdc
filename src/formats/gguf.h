// Reading GGUF v2 and v3 files: metadata and tensors, one file or split parts, mapped and never trusted.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/mapped_file.h"
#include "tensor/tensor_view.h"

namespace redline {

enum class GgufType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

/// One metadata value. Integers of every width are held as int64 or uint64, floats as double; `type` keeps the file's.
struct GgufValue {
  GgufType type = GgufType::kU32;
  GgufType element_type = GgufType::kU32;  ///< of an array
  std::variant<uint64_t, int64_t, double, bool, std::string, std::vector<uint64_t>, std::vector<int64_t>,
               std::vector<double>, std::vector<bool>, std::vector<std::string>, std::vector<GgufValue>>
      value;

  /// nullopt when the value is of another kind. Integers of any signedness convert when they fit.
  std::optional<int64_t> as_int() const;
  std::optional<double> as_double() const;  ///< integers too
  std::optional<bool> as_bool() const;
  const std::string* as_string() const;
  const std::vector<std::string>* as_strings() const;
  std::optional<std::vector<int64_t>> as_ints() const;
  std::optional<std::vector<double>> as_doubles() const;
  /// Short form for people: long arrays as "[arr of 32000 strings: ...]".
  std::string to_string(size_t max_length = 120) const;
};
std::string_view gguf_value_type_name(GgufType type);

struct GgufTensor {
  std::string name;
  uint32_t gguf_type = 0;  ///< as the file says; see gguf_type_name
  TensorView view;         ///< shape outermost first; data nullptr when the type is not one Redline reads
  int part = 0;            ///< which file of a split
  int64_t file_offset = 0;
  int64_t bytes = 0;
};

class GgufFile {
 public:
  /// Opens `path`; when it is one part of a split ("...-00001-of-00003.gguf", split.count), all its siblings.
  /// Every count, length and offset is checked against the file before use; memory stays below twice the file.
  /// Errors name the path, the byte offset and the reason. Tensors of a type that Redline does not read are listed with
  /// data == nullptr; using one is the caller's error (see require_readable).
  static Result<GgufFile> open(const std::string& path);

  const std::string& path() const { return path_; }
  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }
  const std::vector<std::pair<std::string, GgufValue>>& metadata() const { return metadata_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufValue* find(std::string_view key) const;
  const GgufTensor* tensor(std::string_view name) const;
  const std::vector<std::shared_ptr<MappedFile>>& files() const { return files_; }
  /// unsupported: names the first tensor and type that Redline does not read.
  Status require_readable() const;

 private:
  friend class GgufParser;
  std::string path_;
  uint32_t version_ = 3;
  uint64_t alignment_ = 32;
  std::vector<std::pair<std::string, GgufValue>> metadata_;
  std::vector<GgufTensor> tensors_;
  std::vector<std::shared_ptr<MappedFile>> files_;
};

}  // namespace redline
