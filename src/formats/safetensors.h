// Reader for safetensors files: one, or several listed in an index.
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
  std::string type_name;  ///< as stored ("BF16")
  TensorView view;        ///< data is nullptr unless F32, F16 or BF16; shape {} is a scalar
  int part = 0;
  int64_t file_offset = 0;
  int64_t bytes = 0;
};

class SafetensorsFiles {
 public:
  /// Opens one file. The header is validated before anything is allocated for it; memory stays below twice the file
  /// size plus 1 MiB. Errors state the path, the byte offset and the reason.
  static Result<SafetensorsFiles> open_file(const std::string& path);
  /// Opens the weights in a Hugging Face folder. Looks for model.safetensors, then for the files of
  /// model.safetensors.index.json, then for both under the diffusers name diffusion_pytorch_model. Without any of these
  /// it opens the files of a variant (model.fp16.safetensors). Every file in the index must exist in the folder and
  /// contain the tensors that the index assigns to it. not_found: the folder has no such file (open_torch_folder()
  /// reads older formats).
  static Result<SafetensorsFiles> open_folder(const std::string& folder);
  /// Parses mapped files, with their index if there is one; `index` names each by the end of its path.
  static Result<SafetensorsFiles> from_parts(std::vector<std::shared_ptr<MappedFile>> parts,
                                             const MappedFile* index = nullptr);

  /// Returns the tensors in header order, file after file.
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }
  const SafetensorsTensor* tensor(std::string_view name) const;
  const std::vector<std::shared_ptr<MappedFile>>& files() const { return files_; }
  /// Returns the text under `key` in the first file's __metadata__; "" if it has none. invalid_argument: the value is
  /// not a string, or has more than a MiB.
  Result<std::string> metadata(std::string_view key) const;
  /// Checks that all tensors can be read. unsupported: states the first tensor of an unsupported type.
  Status require_readable() const;

 private:
  friend class SafetensorsParser;
  std::vector<SafetensorsTensor> tensors_;
  std::vector<uint32_t> tensors_by_name_;  ///< indices, sorted
  std::vector<std::shared_ptr<MappedFile>> files_;
};

/// Returns the files named in an index, in order of first mention. invalid_argument: no "weight_map", or a file that is
/// not a plain name ("../x", "/x", "a/b").
Result<std::vector<std::string>> safetensors_index_files(const MappedFile& index);

}  // namespace redline
