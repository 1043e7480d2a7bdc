// The flag --lora FILE[:WEIGHT].
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "redline/text.h"

namespace redline::cli {

/// "style.safetensors:0.8" -> file and weight; 1 without a weight.
std::pair<std::string, double> parse_lora(const std::string& text);
/// Text adapters with their weights; their ranks are added to `max_adapter_rank`. Errors as text_adapter_rank; a file
/// of another kind is named with the command that takes it.
Result<AdapterWeights> read_text_adapters(const std::vector<std::string>& lora, int64_t& max_adapter_rank);

}  // namespace redline::cli
