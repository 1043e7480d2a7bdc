// Quantizes a model to a GGUF file, tensor by tensor while the file is written.
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
#include "models/checkpoint/checkpoint.h"
#include "models/files/quantize_mix.h"

namespace redline {

struct QuantizeOptions {
  QuantizeMix mix = {"F32", DType::kF32, 0};
  /// Types of tensors whose name contains a match of the pattern; the last matching pattern decides.
  std::vector<std::pair<std::regex, DType>> types;
  std::optional<DType> output, embedding;     ///< types of output.weight and token_embd.weight
  bool keep_output = false;                   ///< output.weight keeps its type
  bool is_pure = false;                       ///< every quantized tensor has the mix's main type
  bool requantizes = false;                   ///< tensors of block formats are quantized again; false: an error
  const ImportanceMatrix* imatrix = nullptr;  ///< must outlive the quantizer
  std::string imatrix_file;                   ///< name of the importance matrix's file, for the metadata; "": none
};

/// An opened model with the type that each tensor will be written in.
class ModelQuantizer {
 public:
  /// Opens a GGUF file of any architecture, or a Hugging Face folder of a language model (checkpoint_to_gguf.h).
  /// unsupported: block formats without `requantizes`. invalid_argument: an importance matrix of another model (the
  /// message names the tensor and both sizes). Also the errors of the readers.
  static Result<ModelQuantizer> open(const std::string& path, const QuantizeOptions& options);

  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
    DType from, to;
    int64_t from_bytes, to_bytes;
    bool is_fallback;  ///< `to` is a fallback: rows are not whole blocks of the type that the rules give
    bool has_weights;  ///< the importance matrix has weights for the tensor
  };
  const std::vector<Tensor>& tensors() const { return tensors_; }
  int64_t from_bytes() const;
  int64_t file_bytes() const { return writer_.file_bytes(); }
  int64_t elements() const;
  /// Returns the paths of the files that are read.
  std::vector<std::string> sources() const;

  /// Writes the file with the team's workers; each needs some MiB of memory. `on_elements`: called by one thread with
  /// the number of further elements that were written; returning false ends the call as `cancelled`. invalid_argument:
  /// an element that is not finite, or too large for F16. Also the errors of GgufWriter::write.
  Status write(const std::string& path, WorkerTeam& team, const std::function<bool(int64_t)>& on_elements);

 private:
  ModelQuantizer() = default;
  Status plan(const QuantizeOptions& options);
  Status fill(size_t index, int64_t begin, int64_t end, uint8_t* out) const;

  std::unique_ptr<Checkpoint> checkpoint_;  ///< set if the model is a folder
  std::unique_ptr<GgufFile> file_;
  GgufWriter writer_;
  std::vector<GgufWriter::Tensor> inputs_;
  std::vector<Tensor> tensors_;
  std::vector<std::vector<float>> weights_;  ///< importance weights by tensor; empty: none
  WorkerTeam* team_ = nullptr;
  const std::function<bool(int64_t)>* on_elements_ = nullptr;
};

}  // namespace redline
