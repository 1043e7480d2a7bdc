// The flag --lora FILE[:WEIGHT].
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "redline/text.h"

namespace redline::cli {

/// Splits "style.safetensors:0.8" into file and weight; the weight is 1 if it is missing.
std::pair<std::string, double> parse_lora(const std::string& text);
/// Opens text adapters with their weights, and adds their ranks to `max_adapter_rank`. Errors as text_adapter_rank; for
/// a file of another kind the error names the command that accepts it.
Result<AdapterWeights> read_text_adapters(const std::vector<std::string>& lora, int64_t& max_adapter_rank);

}  // namespace redline::cli
