// Makes random LoRA adapters for any decoder, to measure their cost.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace redline::lab {

/// Writes `count` adapters of the model, a path or "random:SHAPE:TYPE", as llama.cpp's GGUF files adapter-0.gguf, ...
/// into `folder`, and returns their paths. They have random float16 factors of `rank` for the seven projections of
/// every layer, the same on every machine.
/// Errors: those of Checkpoint::open() and GgufWriter::write(); unsupported: the model is not a decoder, or does not
/// have these projections.
Result<std::vector<std::string>> save_random_adapters(const std::string& model, int64_t count, int64_t rank,
                                                      const std::string& folder);

}  // namespace redline::lab
