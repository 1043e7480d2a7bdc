// Writes GGUF v3 files.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "formats/gguf.h"

namespace redline {

/// Collects metadata and tensors, then writes one file. Views must stay alive until write(). Setting an existing key
/// replaces its value in place.
class GgufWriter {
 public:
  void set(std::string key, std::string_view text);
  void set_u32(std::string key, uint32_t value);
  void set_i32(std::string key, int32_t value);
  void set_f32(std::string key, float value);
  void set_bool(std::string key, bool value);
  void set_strings(std::string key, const std::vector<std::string>& values);
  void set_f32s(std::string key, const std::vector<float>& values);
  void set_i32s(std::string key, const std::vector<int32_t>& values);
  /// Copies a value of another file. general.alignment is reserved for the writer: write() rejects it.
  void set_value(std::string key, const GgufValue& value);
  /// Returns the value that has been set, valid until the next change. nullopt: no such key.
  std::optional<GgufValue> find(std::string_view key) const;
  /// Sets a scalar or array given by its encoded bytes after the type number, for tests.
  void set_payload(std::string key, GgufType type, std::string payload);
  /// Adds a tensor. `view.shape` is outermost first.
  void add_tensor(std::string name, TensorView view);
  /// Writes rows [begin, end) of a tensor, (end - begin) * row_bytes, to `out`. A vector is one row.
  using FillRows = std::function<Status(int64_t begin, int64_t end, uint8_t* out)>;
  /// Adds a tensor whose rows are generated during writing, some MiB at a time; `view` has type and shape, no data.
  void add_tensor(std::string name, TensorView view, FillRows fill);
  /// A tensor as passed to add_tensor().
  struct Tensor {
    std::string name;
    TensorView view;
    FillRows fill;  ///< empty: view.data is used
  };
  const std::vector<Tensor>& tensors() const { return tensors_; }
  /// Replaces type and contents of a tensor.
  void replace_tensor(size_t index, DType dtype, FillRows fill);
  /// Returns the bytes of the whole file.
  int64_t file_bytes() const;
  /// Writes to a temporary name next to `path` and renames it, so no partial file appears under the final name.
  /// invalid_argument: a name or shape that GGUF cannot represent. io: system error (disk full, no such folder, ...).
  Status write(const std::string& path) const;
  /// Returns the file contents, for tests and fuzzing.
  Result<std::string> to_bytes() const;
  /// Returns the file up to the first tensor's data; tensors need no data yet. The tensors follow in order, each
  /// zero-padded to padded_bytes. For files that are built in place.
  std::string header() const;
  static int64_t padded_bytes(const TensorView& view);
  /// Writes a complete file from memory, with the guarantees of write().
  static Status write_bytes(const std::string& path, std::string_view bytes);

 private:
  struct Value {
    GgufType type;
    std::string payload;  ///< encoded, as in the file
  };
  Status check() const;
  template <class Sink>
  Status write_all(Sink&& write) const;

  std::vector<std::pair<std::string, Value>> metadata_;
  std::vector<Tensor> tensors_;
};

}  // namespace redline
