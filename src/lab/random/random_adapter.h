// Random LoRA adapters for any decoder, to measure their cost.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace redline::lab {

/// Writes `count` adapters of the model, a path or "random:SHAPE:TYPE", as llama.cpp's GGUF files adapter-0.gguf, ...
/// into `folder`, and returns their paths. They have factors of `rank` for the seven projections of every layer,
/// random ones in float16, the same on every machine.
/// Errors of open_checkpoint and GgufWriter::write. unsupported: no decoder, or one without such projections.
Result<std::vector<std::string>> save_random_adapters(const std::string& model, int64_t count, int64_t rank,
                                                      const std::string& folder);

}  // namespace redline::lab
