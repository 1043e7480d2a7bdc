// Writing GGUF v3.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "formats/gguf.h"

namespace redline {

/// Collects metadata and tensors, then writes one file. Views must stay alive until write().
/// Setting a key again replaces its value in place.
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
  /// Any value as another file holds it. general.alignment is the writer's own business: it is refused by write().
  void set_value(std::string key, const GgufValue& value);
  /// A scalar or array of any type from the bytes that follow its type number in the file, for tests.
  void set_payload(std::string key, GgufType type, std::string payload);
  /// `view.shape` outermost first, as everywhere in Redline.
  void add_tensor(std::string name, TensorView view);
  /// Writes rows [begin, end) of a tensor to `out`, (end - begin) * row_bytes in all. A vector is one row.
  using FillRows = std::function<Status(int64_t begin, int64_t end, uint8_t* out)>;
  /// A tensor whose rows are made while the file is written, some MiB at a time; `view` has type and shape, no data.
  void add_tensor(std::string name, TensorView view, FillRows fill);
  /// Writes to a temporary name beside `path` and renames it: never a half-written file under the final name.
  /// invalid_argument: a name or shape that GGUF cannot hold. io: what the system says (disk full, no such folder,
  /// ...).
  Status write(const std::string& path) const;
  /// The same file in memory, for tests and fuzzing.
  Result<std::string> to_bytes() const;
  /// The file up to the first tensor's bytes; no tensor needs data yet. Then each tensor follows in its order, filled
  /// up with zeros to padded_bytes. For files that are made in place.
  std::string header() const;
  static int64_t padded_bytes(const TensorView& view);
  /// A whole file that is in memory already, as write() writes.
  static Status write_bytes(const std::string& path, std::string_view bytes);

 private:
  struct Value {
    GgufType type;
    std::string payload;  ///< as it stands in the file
  };
  Status check() const;

  struct Tensor {
    std::string name;
    TensorView view;
    FillRows fill;  ///< empty: view.data
  };
  template <class Sink>
  Status write_all(Sink&& write) const;

  std::vector<std::pair<std::string, Value>> metadata_;
  std::vector<Tensor> tensors_;
};

}  // namespace redline
