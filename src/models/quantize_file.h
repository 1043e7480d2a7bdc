// Quantizing a model to a GGUF file, tensor by tensor while the file is written.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "base/worker_team.h"
#include "formats/gguf_writer.h"
#include "formats/imatrix.h"
#include "models/checkpoint.h"
#include "models/quantize_mix.h"

namespace redline {

struct QuantizeOptions {
  QuantizeMix mix = {"F32", DType::kF32, 0};
  /// Types of tensors whose name contains a match of the pattern; the last that matches decides.
  std::vector<std::pair<std::regex, DType>> types;
  std::optional<DType> output, embedding;     ///< of output.weight and token_embd.weight
  bool keep_output = false;                   ///< output.weight stays as it is
  bool is_pure = false;                       ///< every quantized tensor has the mix's main type
  bool requantizes = false;                   ///< tensors of block formats are quantized again; false: an error
  const ImportanceMatrix* imatrix = nullptr;  ///< must outlive the quantizer
  std::string imatrix_file;                   ///< named in the metadata, if there is one
};

/// A model as it will be written: opened, with a type for each tensor.
class ModelQuantizer {
 public:
  /// `path`: a GGUF file of any architecture, or a Hugging Face folder of a language model (checkpoint_to_gguf.h).
  /// unsupported: block formats without `requantizes`. invalid_argument: an importance matrix of another model (the
  /// message names the tensor and both sizes). Errors of the readers.
  static Result<ModelQuantizer> open(const std::string& path, const QuantizeOptions& options);

  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
    DType from, to;
    int64_t from_bytes, to_bytes;
    bool is_fallback;  ///< the rules' type does not divide its rows
    bool has_weights;  ///< of the importance matrix
  };
  const std::vector<Tensor>& tensors() const { return tensors_; }
  int64_t from_bytes() const;
  int64_t file_bytes() const { return writer_.file_bytes(); }
  int64_t elements() const;
  /// The files that are read.
  std::vector<std::string> sources() const;

  /// Writes the file with the team's workers; memory stays at some MiB for each. `on_elements`: called by one thread
  /// after so many more elements; false ends it (cancelled). invalid_argument: an element that is not finite, or too
  /// large for F16. Errors of GgufWriter::write.
  Status write(const std::string& path, WorkerTeam& team, const std::function<bool(int64_t)>& on_elements);

 private:
  ModelQuantizer() = default;
  Status plan(const QuantizeOptions& options);
  Status fill(size_t index, int64_t begin, int64_t end, uint8_t* out) const;

  std::unique_ptr<Checkpoint> checkpoint_;  ///< of a folder
  std::unique_ptr<GgufFile> file_;
  GgufWriter writer_;
  std::vector<GgufWriter::Tensor> inputs_;
  std::vector<Tensor> tensors_;
  std::vector<std::vector<float>> weights_;  ///< by tensor; empty: none
  WorkerTeam* team_ = nullptr;
  const std::function<bool(int64_t)>* on_elements_ = nullptr;
};

}  // namespace redline
