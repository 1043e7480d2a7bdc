// Computes importance matrices: runs a text through a language model and sums the squares of the inputs of its matrix
// products.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "formats/imatrix.h"
#include "redline/text.h"

namespace redline::lab {

struct CollectOptions {
  int threads = 0;
  Precision dtype = Precision::kAuto;
  bool use_interpreter = false;
  int64_t chunk_size = 512;  ///< tokens of a chunk; each chunk is a separate text
  int64_t chunks = 0;        ///< maximum number of chunks; 0: all complete chunks of the text
  std::string dataset;       ///< name of the text, written to the file
};

/// Returns entries for all matrices except the output matrix, by their names in GGUF files, so that they are valid for
/// every file of the model. Chunks begin with the BOS token if the tokenizer adds one, as in llama-imatrix. `on_chunk`
/// is called with the number of completed chunks and of all chunks; returning false ends the call as `cancelled`.
/// Each expert's matrix has separate sums and counts, as in llama-imatrix.
/// invalid_argument: a text shorter than one chunk; a sum that is not finite. Also the errors of TextEngine::open().
Result<ImportanceMatrix> collect_imatrix(const std::string& model, std::string_view text, const CollectOptions& options,
                                         const std::function<bool(int64_t done, int64_t all)>& on_chunk);

}  // namespace redline::lab
