// Reader for the tensors of a file written by torch.save: a zip archive of a pickle and one member per storage
// (pytorch/pytorch: torch/serialization.py, caffe2/serialize/inline_container.h). Only the part of the pickle language
// needed for a dictionary of tensors is supported, and nothing is ever executed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "tensor/tensor_view.h"

namespace redline {

struct TorchTensor {
  std::string name;
  std::string type_name;  ///< storage type as stored ("HalfStorage")
  TensorView view;        ///< dense, row-major; data is nullptr unless float32, float16 or bfloat16
};

class TorchFile {
 public:
  /// Opens a file that holds a dictionary of tensors, or a dictionary with such a one as "state_dict". Everything is
  /// validated against the file before use. invalid_argument: corrupt, or no such dictionary. unsupported: compressed
  /// or encrypted members, the format before PyTorch 1.6, non-dense tensors, and values other than tensors and plain
  /// ones; the message states which.
  static Result<TorchFile> open(const std::string& path);
  static Result<TorchFile> from_file(std::shared_ptr<MappedFile> file);

  /// Returns the tensors in dictionary order. Plain values (epochs, version numbers) are omitted.
  const std::vector<TorchTensor>& tensors() const { return tensors_; }
  const std::shared_ptr<MappedFile>& file() const { return file_; }
  const std::string& path() const { return file_->path(); }

 private:
  std::shared_ptr<MappedFile> file_;
  std::vector<TorchTensor> tensors_;
};

/// The weights of a Hugging Face folder from before safetensors: pytorch_model.bin, or the files of
/// pytorch_model.bin.index.json; or the same with the diffusers name diffusion_pytorch_model; without either, those of
/// the variants fp16 and bf16. Errors as TorchFile::open; not_found: the folder has none of these; invalid_argument: an
/// index that names other files than its own folder's, or two files with the same tensor.
Result<std::vector<TorchFile>> open_torch_folder(const std::string& folder);
/// Returns true if the folder has any of these files.
bool has_torch_weights(const std::string& folder);
/// The type as safetensors names it: "F16" of "HalfStorage"; other names stay.
std::string_view safetensors_type_of(std::string_view storage);

}  // namespace redline
