// Importance matrices: mean squares of the activations that each weight matrix of a model is multiplied with, by
// column. A quantizer weighs errors by them. Files of llama.cpp's imatrix tool: GGUF, and the older binary format.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/error.h"

namespace redline {

struct ImportanceMatrix {
  /// The sums of one tensor, which has one matrix, or one for each expert.
  struct Entry {
    std::vector<float> sums;    ///< of squares: [matrices, columns]
    std::vector<float> counts;  ///< [matrices]: rows of activations
    /// [matrices, columns]: sums / counts; 1 for a matrix that has seen nothing.
    std::vector<float> means() const;
  };
  std::map<std::string, Entry> entries;  ///< by the tensor's name in GGUF files: "blk.0.attn_q.weight"
  std::vector<std::string> datasets;     ///< what the activations come from: names of files
  int64_t chunks = 0, chunk_size = 0;    ///< how much of it; 0 where the file does not say

  /// Either format. invalid_argument: another kind of file, or one that is damaged; values that are negative or not
  /// finite (the message names the tensor). Errors of MappedFile::open.
  static Result<ImportanceMatrix> read(const std::string& path);
  /// As GGUF. Errors of GgufWriter::write.
  Status write(const std::string& path) const;
};

}  // namespace redline
