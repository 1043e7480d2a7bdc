// Reading the tensors of a file that torch.save wrote: a zip archive of a pickle and one member for each storage
// (pytorch/pytorch: torch/serialization.py, caffe2/serialize/inline_container.h). The pickle is a program; what is read
// here is the small part of its language that a dictionary of tensors is written in, and nothing is ever called.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "tensor/tensor_view.h"

namespace redline {

struct TorchTensor {
  std::string name;
  std::string type_name;  ///< as the file spells its storage ("HalfStorage")
  TensorView view;        ///< data nullptr when the type is not float32, float16 or bfloat16; dense, row-major
};

class TorchFile {
 public:
  /// A dictionary of tensors, or one that holds such a dictionary as "state_dict". Everything is checked against the
  /// file before it is used.
  /// invalid_argument: damaged, or no such dictionary. unsupported: compressed or encrypted members, the format before
  /// PyTorch 1.6, tensors that are not dense, and values of other types than tensors and plain ones; the message names
  /// it.
  static Result<TorchFile> open(const std::string& path);
  static Result<TorchFile> from_file(std::shared_ptr<MappedFile> file);

  /// In the order of the dictionary. Plain values (epochs, version numbers) are left out.
  const std::vector<TorchTensor>& tensors() const { return tensors_; }
  const std::shared_ptr<MappedFile>& file() const { return file_; }
  const std::string& path() const { return file_->path(); }

 private:
  std::shared_ptr<MappedFile> file_;
  std::vector<TorchTensor> tensors_;
};

}  // namespace redline
