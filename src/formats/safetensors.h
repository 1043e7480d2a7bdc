// Reading safetensors files: one, or several named by an index.
// Format: https://github.com/huggingface/safetensors#format
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
  TensorView view;        ///< data nullptr when the type is not F32, F16 or BF16; shape {} is a scalar
  int part = 0;
  int64_t file_offset = 0;
  int64_t bytes = 0;
};

class SafetensorsFiles {
 public:
  /// One file. Its header is checked before anything is allocated for it; memory stays below twice the file, plus 1
  /// MiB. Errors name the path, the byte offset and the reason.
  static Result<SafetensorsFiles> open_file(const std::string& path);
  /// model.safetensors, or the files of model.safetensors.index.json, of a Hugging Face folder; or the same with
  /// diffusers' name, diffusion_pytorch_model.
  /// Every file that the index names must exist in the folder and hold the tensors that the index puts there.
  /// not_found: the folder has neither.
  static Result<SafetensorsFiles> open_folder(const std::string& folder);
  /// Files that are mapped already, with their index if there is one: `index` names each by the end of its path.
  static Result<SafetensorsFiles> from_parts(std::vector<std::shared_ptr<MappedFile>> parts,
                                             const MappedFile* index = nullptr);

  /// In the order of the headers, file after file.
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }
  const SafetensorsTensor* tensor(std::string_view name) const;
  const std::vector<std::shared_ptr<MappedFile>>& files() const { return files_; }
  /// unsupported: names the first tensor and type that Redline does not read.
  Status require_readable() const;

 private:
  friend class SafetensorsParser;
  std::vector<SafetensorsTensor> tensors_;
  std::vector<uint32_t> tensors_by_name_;  ///< indices, sorted
  std::vector<std::shared_ptr<MappedFile>> files_;
};

/// The files that an index puts tensors into, in order of first mention. invalid_argument: no "weight_map", or a file
/// that is not a plain name ("../x", "/x", "a/b").
Result<std::vector<std::string>> safetensors_index_files(const MappedFile& index);

}  // namespace redline
