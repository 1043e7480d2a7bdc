// Importance matrices: runs a text through a language model and sums the squares of its products' inputs.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "formats/imatrix.h"
#include "redline/text.h"

namespace redline::lab {

struct CollectOptions {
  int threads = 0;
  ComputeType dtype = ComputeType::kAuto;
  bool use_interpreter = false;
  int64_t chunk_size = 512;  ///< tokens; each chunk is a text of its own
  int64_t chunks = 0;        ///< at most so many; 0: all that the text fills
  std::string dataset;       ///< name of the text, for the file
};

/// Entries for all matrices but that of the logits, by their names in GGUF files, so that they serve every file of the
/// model. Chunks begin with the BOS token if the tokenizer adds one, as llama-imatrix does. `on_chunk`: called with the
/// number of chunks done and of all; false ends it (cancelled).
/// The matrices of experts have sums and counts of their own, as llama-imatrix writes them.
/// invalid_argument: a text shorter than one chunk; a sum that is not finite. Errors of TextEngine::open.
Result<ImportanceMatrix> collect_imatrix(const std::string& model, std::string_view text, const CollectOptions& options,
                                         const std::function<bool(int64_t done, int64_t all)>& on_chunk);

}  // namespace redline::lab
