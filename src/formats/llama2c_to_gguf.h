// Converts a llama2.c checkpoint to a GGUF file that llama.cpp can read.
#pragma once

#include "formats/gguf_writer.h"
#include "formats/llama2c.h"

namespace redline {

/// The vocabulary in GGUF form: one entry per token in each list. Token types are ggml's (1 normal, 2 unknown, 3
/// control, 6 byte).
struct Llama2cVocab {
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<int32_t> token_types;
};

/// Adds metadata, vocabulary and tensors to `writer`; `name` becomes general.name. Tensors are views into `model`,
/// which must stay alive until the file is written. llama2.c stores neither the rope base (10000) nor the norm epsilon
/// (1e-5) of its run.c; they are written here. invalid_argument: list lengths differ from the model's vocabulary.
Status llama2c_to_gguf(const Llama2cFile& model, const std::string& name, const Llama2cVocab& vocab,
                       GgufWriter& writer);

}  // namespace redline
