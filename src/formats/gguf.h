// Reader for untrusted GGUF v2 and v3 files: metadata and memory-mapped tensors, single files or splits.
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
/// Returns "u32", "string", ...; "?" for an unknown type number.
std::string_view gguf_value_type_name(GgufType type);

/// A lazy view of a string array that decodes strings during iteration, so a vocabulary needs no memory until it is
/// copied. Valid as long as the GgufFile.
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
  /// Copies the strings (at least 32 bytes each): check size() first if it must match something.
  std::vector<std::string> to_vector() const { return {begin(), end()}; }

 private:
  std::string_view elements_;
  uint64_t count_;
};

/// A metadata value: a validated view into the mapped file, valid as long as the GgufFile. Nothing is copied,
/// regardless of the counts a file declares; the accessors decode.
class GgufValue {
 public:
  GgufType type = GgufType::kU32;
  GgufType element_type = GgufType::kU32;  ///< type of the elements of an array
  uint64_t count = 1;                      ///< number of elements of an array, else 1
  std::string_view payload;                ///< as stored: the scalar, the text, or the elements of the array

  /// Returns nullopt for a value of another kind. Integers of any signedness convert if they fit.
  std::optional<int64_t> as_int() const;
  std::optional<double> as_double() const;  ///< accepts integers too
  std::optional<bool> as_bool() const;
  std::optional<std::string_view> as_string() const;
  std::optional<GgufStrings> as_strings() const;
  /// Return an array of integers (or bools as 0 and 1), of floats or integers, or of values of any kind. They allocate
  /// `count` elements.
  std::optional<std::vector<int64_t>> as_ints() const;
  std::optional<std::vector<double>> as_doubles() const;
  std::optional<std::vector<GgufValue>> as_array() const;
  /// Returns one element of a numeric array, without copying the array.
  std::optional<int64_t> int_at(uint64_t index) const;
  std::optional<double> double_at(uint64_t index) const;
  /// Returns a short form for display: long arrays as "[32000 strings: "<unk>", "<s>", ...]". Control bytes are
  /// escaped.
  std::string to_string(size_t max_length = 120) const;
};

struct GgufTensor {
  std::string name;
  uint32_t gguf_type = 0;  ///< as stored; see gguf_type_name
  TensorView view;         ///< the shape is outermost first; data is nullptr for an unsupported type
  int part = 0;            ///< file index within a split
  int64_t file_offset = 0;
  int64_t bytes = 0;  ///< 0 for a type number unknown to ggml
};

class GgufFile {
 public:
  /// Opens `path`; for one part of a split ("...-00001-of-00003.gguf", split.count), all its siblings too. Every count,
  /// length and offset is checked against the file before use; memory stays below twice the file size plus 1 MiB.
  /// Errors state the path, the byte offset and the reason. Tensors of an unsupported type are listed with data ==
  /// nullptr; callers must check before using one (see require_readable).
  static Result<GgufFile> open(const std::string& path);
  /// Parses mapped files: one file, or all parts of a split in order.
  static Result<GgufFile> from_parts(std::vector<std::shared_ptr<MappedFile>> parts);

  const std::string& path() const { return path_; }
  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }
  /// Returns the metadata in file order; for a split, that of the first part.
  const std::vector<std::pair<std::string, GgufValue>>& metadata() const { return metadata_; }
  /// Returns the tensors in file order, part after part.
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufValue* find(std::string_view key) const;
  const GgufTensor* tensor(std::string_view name) const;
  const std::vector<std::shared_ptr<MappedFile>>& files() const { return files_; }
  /// Checks that all tensors can be read. unsupported: states the first tensor of an unsupported type.
  Status require_readable() const;

 private:
  friend class GgufParser;
  std::string path_;
  uint32_t version_ = 3;
  uint64_t alignment_ = 32;
  std::vector<std::pair<std::string, GgufValue>> metadata_;
  std::vector<GgufTensor> tensors_;
  std::vector<uint32_t> keys_by_name_, tensors_by_name_;  ///< sorted indices, for find and duplicate checks
  std::vector<std::shared_ptr<MappedFile>> files_;
};

}  // namespace redline
