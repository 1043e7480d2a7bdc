// A llama2.c checkpoint as a GGUF file that llama.cpp reads too.
#pragma once

#include "formats/gguf_writer.h"
#include "formats/llama2c.h"

namespace redline {

/// The vocabulary as GGUF keeps it: one entry per token in each list; token types are ggml's (1 normal, 2 unknown,
/// 3 control, 6 byte).
struct Llama2cVocab {
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<int32_t> token_types;
};

/// Puts metadata, vocabulary and tensors into `writer`; `name` becomes general.name. The tensors are views into
/// `model`, which must live until the writer has written. invalid_argument: lists whose lengths differ from the model's
/// vocabulary. llama2.c does not store two constants of its run.c: the rope base (10000) and the norm epsilon (1e-5).
Status llama2c_to_gguf(const Llama2cFile& model, const std::string& name, const Llama2cVocab& vocab,
                       GgufWriter& writer);

}  // namespace redline
