#include "cli/lora_option.h"

#include <cstdlib>

#include "base/error.h"
#include "cli/file_kind.h"

namespace redline::cli {

std::pair<std::string, double> parse_lora(const std::string& text) {
  const size_t colon = text.rfind(':');
  char* end = nullptr;
  if (colon == std::string::npos || colon + 1 == text.size()) return {text, 1};
  const double weight = std::strtod(text.c_str() + colon + 1, &end);
  return *end == 0 ? std::pair{text.substr(0, colon), weight} : std::pair{text, 1.0};
}

Result<AdapterWeights> read_text_adapters(const std::vector<std::string>& lora, int64_t& max_adapter_rank) {
  AdapterWeights adapters;
  for (const std::string& text : lora) {
    adapters.push_back(parse_lora(text));
    const std::string& file = adapters.back().first;
    const Result<int64_t> rank = text_adapter_rank(file);
    if (!rank.ok()) return explain_kind(rank.status(), file, ModelUse::kTextAdapter);
    max_adapter_rank += *rank;
  }
  return adapters;
}

}  // namespace redline::cli
