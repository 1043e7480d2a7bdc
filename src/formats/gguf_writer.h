// Writing GGUF v3.
#pragma once

#include <string>
#include <vector>

#include "formats/gguf.h"

namespace redline {

/// Collects metadata and tensors, then writes one file. Views must stay alive until write().
class GgufWriter {
 public:
  void set(std::string key, std::string text);
  void set_u32(std::string key, uint32_t value);
  void set_f32(std::string key, float value);
  void set_bool(std::string key, bool value);
  void set_strings(std::string key, std::vector<std::string> values);
  void set_f32s(std::string key, std::vector<float> values);
  void set_i32s(std::string key, std::vector<int32_t> values);
  /// `view.shape` outermost first, as everywhere in Redline.
  void add_tensor(std::string name, TensorView view);
  /// Writes to a temporary name beside `path` and renames it: never a half-written file under the final name.
  Status write(const std::string& path) const;

 private:
  std::vector<std::pair<std::string, GgufValue>> metadata_;
  std::vector<std::pair<std::string, TensorView>> tensors_;
};

}  // namespace redline
