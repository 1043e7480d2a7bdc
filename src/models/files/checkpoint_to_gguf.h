// Writes a Hugging Face checkpoint as a GGUF file: the counterpart of gguf_checkpoint.cc.
#pragma once

#include <optional>

#include "formats/gguf_writer.h"
#include "models/checkpoint/checkpoint.h"

namespace redline {

struct GgufExport {
  /// Type of the matrices: f32, f16 or bf16. Unset: the type in the checkpoint, or f16 if the checkpoint stores the
  /// columns in another order.
  std::optional<DType> type;
  bool has_tokenizer = true;  ///< false: a file without a vocabulary
};

/// Adds the metadata, vocabulary and tensors of a model that Redline runs to `writer`, with the names of llama.cpp's
/// converter. Vectors are float32, and rows of q and k are in interleaved rope order if the family's row says so. The
/// tensors are read while the writer writes, so `checkpoint` must outlive the writing.
/// not_found: no tokenizer. unsupported: another family or format, W8A8 weights, or settings that GGUF cannot express
/// (dynamic rope scaling, windows other than those that llama.cpp assumes, pre-tokenizers without a name).
Status checkpoint_to_gguf(const Checkpoint& checkpoint, const GgufExport& options, GgufWriter& writer);

}  // namespace redline
