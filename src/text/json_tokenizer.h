// Makes tokenizers from a parsed tokenizer.json, or from one that was assembled from other files.
#pragma once

#include "text/hf_config.h"
#include "text/json_reader.h"

namespace redline {

Result<std::unique_ptr<Tokenizer>> tokenizer_from_json_object(const Json& json, const HfConfig& config);

}  // namespace redline
