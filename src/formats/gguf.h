// Reading GGUF v2 and v3 files: metadata and tensors, one file or split parts, mapped and never trusted.
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "tensor/tensor_view.h"

namespace redline {

enum class GgufType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };
inline constexpr uint32_t kNumGgufTypes = 13;
/// "u32", "string", ...; "?" for a number that is no type.
std::string_view gguf_value_type_name(GgufType type);

/// The strings of an array, read from the file one after the other as they are asked for: a vocabulary costs no memory
/// until somebody keeps it. Valid as long as the GgufFile.
class GgufStrings {
 public:
  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = std::string_view;
    using difference_type = std::ptrdiff_t;
    using pointer = const std::string_view*;
    using reference = std::string_view;

    Iterator() = default;
    explicit Iterator(const char* at) : at_(at) {}
    std::string_view operator*() const { return {at_ + sizeof(uint64_t), length()}; }
    Iterator& operator++() {
      at_ += sizeof(uint64_t) + length();
      return *this;
    }
    Iterator operator++(int) {
      const Iterator before = *this;
      ++*this;
      return before;
    }
    friend bool operator==(const Iterator&, const Iterator&) = default;

   private:
    size_t length() const {
      uint64_t length = 0;
      std::memcpy(&length, at_, sizeof(length));
      return length;
    }
    const char* at_ = nullptr;
  };

  GgufStrings(std::string_view elements, uint64_t count) : elements_(elements), count_(count) {}
  size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  Iterator begin() const { return Iterator(elements_.data()); }
  Iterator end() const { return Iterator(elements_.data() + elements_.size()); }
  /// Copies: 32 bytes and more for each, so look at size() first when it must match something.
  std::vector<std::string> to_vector() const { return {begin(), end()}; }

 private:
  std::string_view elements_;
  uint64_t count_;
};

/// One metadata value: a checked view into the mapped file, valid as long as the GgufFile. Nothing is copied, whatever
/// counts a file declares; the accessors decode.
class GgufValue {
 public:
  GgufType type = GgufType::kU32;
  GgufType element_type = GgufType::kU32;  ///< of an array
  uint64_t count = 1;                      ///< elements of an array, else 1
  std::string_view payload;                ///< as the file holds it: the scalar, the text, or the array's elements

  /// nullopt when the value is of another kind. Integers of any signedness convert when they fit.
  std::optional<int64_t> as_int() const;
  std::optional<double> as_double() const;  ///< integers too
  std::optional<bool> as_bool() const;
  std::optional<std::string_view> as_string() const;
  std::optional<GgufStrings> as_strings() const;
  /// Arrays of integers (or bools as 0 and 1), of floats or integers, and of anything. These allocate count elements.
  std::optional<std::vector<int64_t>> as_ints() const;
  std::optional<std::vector<double>> as_doubles() const;
  std::optional<std::vector<GgufValue>> as_array() const;
  /// One element of an array of numbers, without a copy of the array.
  std::optional<int64_t> int_at(uint64_t index) const;
  std::optional<double> double_at(uint64_t index) const;
  /// Short form for people: long arrays as "[32000 strings: "<unk>", "<s>", ...]". Control bytes are escaped.
  std::string to_string(size_t max_length = 120) const;
};

struct GgufTensor {
  std::string name;
  uint32_t gguf_type = 0;  ///< as the file says; see gguf_type_name
  TensorView view;         ///< shape outermost first; data nullptr when the type is not one Redline reads
  int part = 0;            ///< which file of a split
  int64_t file_offset = 0;
  int64_t bytes = 0;  ///< 0 for a type number that ggml does not have
};

class GgufFile {
 public:
  /// Opens `path`; when it is one part of a split ("...-00001-of-00003.gguf", split.count), all its siblings.
  /// Every count, length and offset is checked against the file before use; memory stays below twice the file, plus 1
  /// MiB. Errors name the path, the byte offset and the reason. Tensors of a type that Redline does not read are listed
  /// with data == nullptr; using one is the caller's error (see require_readable).
  static Result<GgufFile> open(const std::string& path);
  /// The same from files that are mapped already: one, or all the parts of a split in their order.
  static Result<GgufFile> from_parts(std::vector<std::shared_ptr<MappedFile>> parts);

  const std::string& path() const { return path_; }
  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }
  /// In the file's order; of a split, those of its first part.
  const std::vector<std::pair<std::string, GgufValue>>& metadata() const { return metadata_; }
  /// In the file's order, part after part.
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
  std::vector<uint32_t> keys_by_name_, tensors_by_name_;  ///< indices, sorted: find and the check for duplicates
  std::vector<std::shared_ptr<MappedFile>> files_;
};

}  // namespace redline
