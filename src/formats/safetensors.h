// Reading safetensors files: one, or several named by an index.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "tensor/tensor_view.h"

namespace redline {

struct SafetensorsTensor {
  std::string name;
  std::string type_name;  ///< as the file spells it ("BF16")
  TensorView view;        ///< data nullptr when the type is not F32, F16 or BF16
  int part = 0;
  int64_t file_offset = 0;
  int64_t bytes = 0;
};

class SafetensorsFiles {
 public:
  /// One file.
  static Result<SafetensorsFiles> open_file(const std::string& path);
  /// model.safetensors, or the files of model.safetensors.index.json, of a Hugging Face folder.
  /// Every file that the index names must exist and hold the tensors that the index puts there.
  static Result<SafetensorsFiles> open_folder(const std::string& folder);

  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }
  const SafetensorsTensor* tensor(std::string_view name) const;
  const std::vector<std::shared_ptr<MappedFile>>& files() const { return files_; }

 private:
  std::vector<SafetensorsTensor> tensors_;
  std::vector<std::shared_ptr<MappedFile>> files_;
};

}  // namespace redline
