// A Hugging Face checkpoint as a GGUF file: the counterpart of gguf_checkpoint.cc.
#pragma once

#include <optional>

#include "formats/gguf_writer.h"
#include "models/checkpoint.h"

namespace redline {

struct GgufExport {
  /// Of matrices: f32, f16 or bf16; none: each as the checkpoint has it, f16 where columns go back into their order.
  std::optional<DType> type;
  bool has_tokenizer = true;  ///< false: a file without a vocabulary
};

/// Metadata, vocabulary and tensors of a model that Redline runs, named as llama.cpp's converter names them: vectors in
/// float32, q and k rows in interleaved rope order where the family's row says so. The tensors are read while the
/// writer writes: `checkpoint` must live until then.
/// not_found: no tokenizer. unsupported: another family or format, W8A8 weights, or settings that GGUF cannot express
/// (dynamic rope scaling, other windows than those that llama.cpp takes for granted, pre-tokenizers without a name).
Status checkpoint_to_gguf(const Checkpoint& checkpoint, const GgufExport& options, GgufWriter& writer);

}  // namespace redline
