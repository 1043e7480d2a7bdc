// Importance matrices: mean squares of the activations that each weight matrix of a model is multiplied with, by
// column. A quantizer weighs errors by them. Files of llama.cpp's imatrix tool: GGUF, and the older binary format.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/error.h"

namespace redline {

struct ImportanceMatrix {
  /// The sums of one tensor, which holds one matrix, or one per expert.
  struct Entry {
    std::vector<float> sums;    ///< sums of squares: [matrices, columns]
    std::vector<float> counts;  ///< [matrices]: number of activation rows
    /// Returns sums / counts, [matrices, columns]; 1 for a matrix without rows.
    std::vector<float> means() const;
  };
  std::map<std::string, Entry> entries;  ///< by the tensor's name in GGUF files, such as "blk.0.attn_q.weight"
  std::vector<std::string> datasets;     ///< names of the text files that the activations come from
  int64_t chunks = 0, chunk_size = 0;    ///< number and tokens of the text chunks used; 0 where the file does not say

  /// Reads either format. invalid_argument: another kind of file, a damaged file, or values that are negative or not
  /// finite (the message names the tensor). Other errors as MappedFile::open.
  static Result<ImportanceMatrix> read(const std::string& path);
  /// Writes a GGUF file. Errors as GgufWriter::write.
  Status write(const std::string& path) const;
};

}  // namespace redline
