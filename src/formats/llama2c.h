// Reader for llama2.c checkpoints (legacy version 0 files of karpathy/llama2.c, export.py legacy_export).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "tensor/tensor_view.h"

namespace redline {

/// A parsed checkpoint. The file has seven int32 (dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len;
/// a negative vocab_size means an untied classifier), then float32 weights in a fixed order. Tensors get GGUF names
/// ("blk.0.attn_q.weight") and shapes outermost first; attention q and k rows are in the interleaved rope order, which
/// GGUF's llama uses as well.
struct Llama2cFile {
  int64_t hidden_size, intermediate_size, num_layers, num_heads, num_kv_heads, vocab_size, context_length;
  bool tied;
  std::vector<std::pair<std::string, TensorView>> tensors;  ///< in GGUF's usual order, layer after layer
  std::shared_ptr<MappedFile> file;

  int64_t head_dim() const { return hidden_size / num_heads; }

  /// Opens a checkpoint. invalid_argument: an implausible size or one that contradicts the file length; the message
  /// states both.
  static Result<Llama2cFile> open(const std::string& path);
  static Result<Llama2cFile> from_file(std::shared_ptr<MappedFile> file);
};

}  // namespace redline
